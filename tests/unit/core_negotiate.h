/* SPDX-License-Identifier: Apache-2.0 */
/* A table and its answers, for the core_negotiate_*_test.c programs. */
#ifndef TESTS_UNIT_CORE_NEGOTIATE_H
#define TESTS_UNIT_CORE_NEGOTIATE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"

static inline struct tensor_request request_make(enum collective coll, const char *name)
{
    struct tensor_request r = {
        .coll = coll, .dtype = DT_F32, .op = OP_SUM, .prescale = 1, .postscale = 1};

    r.ndim = 2;
    r.shape[0] = 2;
    r.shape[1] = 3;
    (void)snprintf(r.name, sizeof(r.name), "%s", name);
    return r;
}

struct answers {
    struct strbuf b;
    struct message_reader in;
    uint64_t counts[8];
    uint32_t n_ranks;
};

static inline struct negotiate *negotiate_make(uint32_t n_ranks, uint64_t fusion_bytes)
{
    struct negotiate_config cfg = {.n_ranks = n_ranks, .fusion_bytes = fusion_bytes};
    struct negotiate *n;

    assert_int_equal(negotiate_new(&cfg, &n), 0);
    return n;
}

static inline bool answers_next(struct answers *a, struct down *ret)
{
    int r = message_next_down(&a->in, a->counts, a->n_ranks, ret, NULL);

    assert_true(r >= 0);
    return r == 1;
}

/* One message; returns the number of its entries. */
static inline size_t
answers_take(struct negotiate *n, struct answers *a, uint32_t n_ranks)
{
    struct down d;
    size_t k = 0;

    strbuf_init(&a->b, MESSAGE_MAX_BYTES);
    a->n_ranks = n_ranks;
    if (!negotiate_has_news(n))
        return 0;
    assert_int_equal(negotiate_write(n, &a->b), 0);
    assert_int_equal(message_open(&a->in, a->b.p, a->b.n, NULL), 0);
    while (answers_next(a, &d))
        k++;
    assert_int_equal(message_open(&a->in, a->b.p, a->b.n, NULL), 0);
    return k;
}

static inline struct down answers_expect(struct answers *a)
{
    struct down d;

    assert_true(answers_next(a, &d));
    return d;
}

static inline struct tensor_request set_of(const uint8_t *ranks, uint32_t n_set)
{
    struct tensor_request q = request_make(COLL_SET_ADD, "set");

    q.n_set = n_set;
    q.set = ranks;
    return q;
}

#endif

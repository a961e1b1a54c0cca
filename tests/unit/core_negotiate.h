/* SPDX-License-Identifier: Apache-2.0 */
/* A table and its answers, for the core_negotiate_*_test.c programs. */
#ifndef TESTS_UNIT_CORE_NEGOTIATE_H
#define TESTS_UNIT_CORE_NEGOTIATE_H

#include "runtime/base/mem.h"
#include "runtime/core/negotiate.h"
#include "runtime/core/pair.h"
#include "tests/unit/unit.h"

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

static uint32_t world_size; /* of the last table */

static inline struct negotiate *negotiate_make(uint32_t n_ranks, uint64_t fusion_bytes)
{
    struct negotiate_config cfg = {.n_ranks = n_ranks, .fusion_bytes = fusion_bytes};
    struct negotiate *n;

    world_size = n_ranks;
    assert_int_equal(negotiate_new(&cfg, &n), 0);
    return n;
}

static inline void
rank_add(struct negotiate *n, uint32_t rank, const struct tensor_request *q)
{
    assert_int_equal(negotiate_add(n, rank, q, 1, NULL), 0);
}

static inline void
all_add(struct negotiate *n, uint32_t n_ranks, const struct tensor_request *q)
{
    for (uint32_t rank = n_ranks; rank-- > 0;)
        rank_add(n, rank, q);
}

static inline void put_run(struct strbuf *got, const struct down *d)
{
    assert_true(d->has_req);
    strbuf_puts(got, d->req.name);
    for (uint32_t i = 0; i < d->n_counts; i++)
        strbuf_printf(got, "%c%llu", i ? ' ' : '[', (unsigned long long)d->counts[i]);
    if (d->n_counts)
        strbuf_putc(got, ']');
    if (d->req.coll == COLL_SET_ADD)
        strbuf_printf(got, " = %u", d->req.process_set);
    if (request_by_members(&d->req))
        strbuf_printf(got, " by %u", d->req.n_set);
    strbuf_puts(got, d->fuse_next ? " and " : "; ");
}

/* One message; "" when there is none. "a[2 7] and b; " are two in a batch, the first
 * with the rows of two ranks; "set = 1 by 2; " is a set that its 2 members add. */
static inline void assert_answers(struct negotiate *n, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf got, b;
    struct message_reader in;
    uint64_t counts[16];
    struct down d;

    strbuf_init(&got, 4096);
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    if (negotiate_has_news(n)) {
        assert_int_equal(negotiate_write(n, &b), 0);
        assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
        while (message_next_down(&in, counts, world_size, &d, NULL) > 0)
            switch (d.kind) {
            case DOWN_PAIR:
                strbuf_printf(&got, "pair %u; ", d.pair & ~PAIR_BIT);
                break;
            case DOWN_RUN:
                put_run(&got, &d);
                break;
            case DOWN_FAIL:
                strbuf_printf(&got, "fails: %s; ", d.text);
                break;
            case DOWN_JOINED:
                strbuf_printf(&got, "joined, %u last; ", d.req.root);
                break;
            case DOWN_LATE:
                strbuf_printf(&got, "late %s; ", d.req.name);
                break;
            case DOWN_TUNE:
                strbuf_printf(&got, "tune %llu %llu; ",
                              (unsigned long long)d.tuning.fusion_bytes,
                              (unsigned long long)d.tuning.gather_ns);
                break;
            case DOWN_FREEZE:
            case DOWN_LEAVE:
                fail();
            }
    }
    assert_string_equal(strbuf_str(&got), want);
}

static inline struct tensor_request set_of(const uint8_t *ranks, uint32_t n_set)
{
    struct tensor_request q = request_make(COLL_SET_ADD, "set");

    q.n_set = n_set;
    q.set = ranks;
    return q;
}

#endif

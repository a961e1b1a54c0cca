/* SPDX-License-Identifier: Apache-2.0 */
/* A table and its answers, for the tests of negotiation. */
#ifndef TESTS_UNIT_CORE_NEGOTIATE_H
#define TESTS_UNIT_CORE_NEGOTIATE_H

#include "runtime/core/negotiate.h"
#include "runtime/core/pair.h"
#include "tests/unit/core_request.h"

static uint32_t world_size; /* of the last table */

/* A test of one table, n; more fields of its configuration may follow. */
#define NEGOTIATE_TEST(name, size, bytes, ...)                                         \
    static void name##_in(struct negotiate *n);                                        \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        const struct negotiate_config cfg = {                                          \
            .n_ranks = (size), .fusion_bytes = (bytes), __VA_ARGS__};                  \
        struct negotiate *n;                                                           \
                                                                                       \
        world_size = cfg.n_ranks;                                                      \
        assert_int_equal(negotiate_new(&cfg, &n), 0);                                  \
        name##_in(n);                                                                  \
        negotiate_free(n);                                                             \
    }                                                                                  \
    static void name##_in(struct negotiate *n)

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
    if (!d->has_req) {
        strbuf_printf(got, "#%u; ", d->slot);
        return;
    }
    strbuf_puts(got, d->req.name);
    if (d->slot != SLOT_NONE)
        strbuf_printf(got, "@%u", d->slot);
    for (uint32_t i = 0; i < d->n_counts; i++)
        strbuf_printf(got, "%c%llu", i ? ' ' : '[', (unsigned long long)d->counts[i]);
    if (d->n_counts)
        strbuf_putc(got, ']');
    if (d->req.coll == COLL_SET_ADD)
        strbuf_printf(got, " = %u", d->req.process_set);
    if (d->req.coll == COLL_PROBE)
        strbuf_printf(got, " is from %u", d->req.root);
    if (request_by_members(&d->req))
        strbuf_printf(got, " by %u", d->req.n_set);
    strbuf_puts(got, d->fuse_next ? " and " : "; ");
}

static inline void put_answer(struct strbuf *got, const struct down *d)
{
    switch (d->kind) {
    case DOWN_PAIR:
        strbuf_printf(got, "pair %u; ", d->pair & ~PAIR_BIT);
        break;
    case DOWN_RUN:
        put_run(got, d);
        break;
    case DOWN_FAIL:
        strbuf_printf(got, "fails: %s; ", d->text);
        break;
    case DOWN_JOINED:
        strbuf_printf(got, "joined, %u last; ", d->req.root);
        break;
    case DOWN_LATE:
        strbuf_printf(got, "late %s; ", d->req.name);
        break;
    case DOWN_TUNE:
        strbuf_printf(got, "tune %llu %llu; ",
                      (unsigned long long)d->tuning.fusion_bytes,
                      (unsigned long long)d->tuning.gather_ns);
        break;
    case DOWN_FREEZE:
        strbuf_printf(got, "plan %u of", d->plan);
        for (uint32_t i = 0; i < d->n_slots; i++)
            strbuf_printf(got, " #%u", down_slot(d, i));
        strbuf_puts(got, "; ");
        break;
    case DOWN_LEAVE:
        strbuf_printf(got, "leave %u; ", d->plan);
        break;
    }
}

/* One message; "" when there is none. "a[2 7] and b; " are two in a batch, the first
 * with the rows of two ranks; "a@3; " is a, which gets slot 3, "#3; " the slot only;
 * "set = 1 by 2; " is a set that its 2 members add. */
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
            put_answer(&got, &d);
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

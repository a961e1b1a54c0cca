/* SPDX-License-Identifier: Apache-2.0 */
/* A member and a rank 0 whose answers the test writes. What the member sends to rank 0
 * is compared as text. */
#ifndef TESTS_UNIT_MEMBER_FIXTURE_H
#define TESTS_UNIT_MEMBER_FIXTURE_H

#include "runtime/core/member.h"
#include "tests/unit/core_request.h"

enum { RANKS = 3, OPS = 8 };

struct fixture {
    struct member *m;
    struct member_op ops[OPS];
    struct tensor_request reqs[OPS];
    struct strbuf up, down;
    struct member_act act;
    struct err err;
};

#define MEMBER_TEST(name)                                                              \
    static void name##_in(struct fixture *f);                                          \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        struct fixture f = {.m = NULL};                                                \
                                                                                       \
        assert_int_equal(member_new(0, RANKS, &f.m), 0);                               \
        strbuf_init(&f.up, MESSAGE_MAX_BYTES);                                         \
        strbuf_init(&f.down, MESSAGE_MAX_BYTES);                                       \
        name##_in(&f);                                                                 \
        member_free(f.m);                                                              \
        strbuf_release(&f.up);                                                         \
        strbuf_release(&f.down);                                                       \
    }                                                                                  \
    static void name##_in(struct fixture *f)

static inline struct member_op *member_submit_group(struct fixture *f,
                                                    size_t i,
                                                    enum collective coll,
                                                    const char *name,
                                                    uint32_t group_n)
{
    f->reqs[i] = request_make(coll, name);
    f->reqs[i].group = group_n ? 7 : 0;
    f->reqs[i].group_n = group_n;
    f->ops[i] = (struct member_op){.req = &f->reqs[i]};
    assert_int_equal(member_submit(f->m, &f->ops[i]), 0);
    return &f->ops[i];
}

static inline struct member_op *
member_submit_op(struct fixture *f, size_t i, const char *name)
{
    return member_submit_group(f, i, COLL_ALLREDUCE, name, 0);
}

/* --- what goes up, as text: n_seen: name | #slot | leave N --- */

static inline void put_bits(struct strbuf *b, const struct up *u)
{
    for (uint32_t w = 0; w < u->n_words; w++)
        for (unsigned i = 0; i < 64; i++)
            if (up_word(u, w) >> i & 1)
                strbuf_printf(b, " #%u", u->first + w * 64 + i);
}

static inline void assert_sends(struct fixture *f, const char *want)
{
    CLEANUP(strbuf_release) struct strbuf got;
    struct message_reader in;
    struct up u;

    strbuf_init(&got, 4096);
    if (!member_take_up(f->m, &f->up)) {
        assert_string_equal("", want);
        return;
    }
    assert_int_equal(strbuf_status(&f->up), 0);
    assert_int_equal(message_open(&in, f->up.p, f->up.n, NULL), 0);
    strbuf_printf(&got, "%llu:", (unsigned long long)in.n_seen);
    while (message_next_up(&in, &u, NULL) > 0) {
        switch (u.kind) {
        case UP_REQUEST:
            strbuf_printf(&got, " %s", u.req.name);
            break;
        case UP_HITS:
            put_bits(&got, &u);
            break;
        case UP_LEAVE:
            strbuf_printf(&got, " leave %u", u.plan);
            break;
        }
    }
    assert_string_equal(strbuf_str(&got), want);
}

/* --- what comes down --- */

static inline void down_begin(struct fixture *f)
{
    strbuf_clear(&f->down);
    message_begin_down(&f->down);
}

static inline void down_put(struct fixture *f, struct down d)
{
    message_put_down(&f->down, &d);
}

static inline struct down down_whole(const char *name, uint32_t slot)
{
    return (struct down){.kind = DOWN_RUN,
                         .has_req = true,
                         .slot = slot,
                         .req = request_make(COLL_ALLREDUCE, name)};
}

static inline struct down down_by_slot(uint32_t slot)
{
    return (struct down){.kind = DOWN_RUN, .slot = slot};
}

static inline struct down down_freeze(uint32_t plan, const uint8_t *raw, uint32_t n)
{
    return (struct down){.kind = DOWN_FREEZE,
                         .slot = SLOT_NONE,
                         .plan = plan,
                         .fusion_bytes = 0,
                         .n_slots = n,
                         .slots = raw};
}

static inline int down_receive(struct fixture *f)
{
    assert_int_equal(strbuf_status(&f->down), 0);
    return member_receive(f->m, f->down.p, f->down.n, &f->err);
}

static inline void down_send(struct fixture *f, struct down d)
{
    down_begin(f);
    down_put(f, d);
    assert_int_equal(down_receive(f), 0);
}

static inline enum member_kind member_next_kind(struct fixture *f)
{
    assert_int_equal(member_next(f->m, true, &f->act, &f->err), 0);
    return f->act.kind;
}

static inline void assert_runs(struct fixture *f, const struct member_op *op)
{
    assert_int_equal(member_next_kind(f), MEMBER_RUN);
    assert_ptr_equal(f->act.items[0].op, op);
}

/* a, b, ... get the slots 0, 1, ... */
static inline void member_learn(struct fixture *f, const char *names)
{
    for (uint32_t i = 0; names[i]; i++) {
        char name[2] = {names[i], 0};
        struct member_op *op = member_submit_op(f, i, name);

        while (member_take_up(f->m, &f->up))
            ;
        down_send(f, down_whole(name, i));
        assert_runs(f, op);
        assert_int_equal(f->act.n_items, 1);
    }
    assert_int_equal(member_next_kind(f), MEMBER_NOTHING);
}

static const uint8_t SLOTS_0_1[] = {0, 0, 0, 0, 1, 0, 0, 0};

static inline bool member_agree(struct fixture *f, uint64_t word)
{
    bool is_empty;

    assert_true(member_is_agreeing(f->m));
    assert_int_equal(member_agreed(f->m, &word, &is_empty), 0);
    return is_empty;
}

#endif

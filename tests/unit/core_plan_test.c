/* SPDX-License-Identifier: Apache-2.0 */
/* The small pure modules of the coordinator: fusion, life cycle, stall report, names.
 * What a plan agrees on is core_sim_test's. */
#include "runtime/core/fusion.h"
#include "runtime/core/lifecycle.h"
#include "runtime/core/nametab.h"
#include "runtime/core/plan.h"
#include "runtime/core/stall.h"
#include "tests/unit/core_negotiate.h"

static struct tensor_request
request_of(enum collective coll, enum dtype dtype, int64_t n)
{
    return (struct tensor_request){.coll = coll,
                                   .dtype = dtype,
                                   .op = OP_SUM,
                                   .prescale = 1,
                                   .postscale = 1,
                                   .ndim = 1,
                                   .shape = {n}};
}

static size_t
fuse_groups(const struct tensor_request *v, size_t n, uint64_t bytes, bool is_apart)
{
    struct fusion_limit limit = {bytes, is_apart};
    const struct tensor_request *p[8] = {NULL};

    for (size_t i = 0; i < n; i++)
        p[i] = &v[i];
    return fusion_take(p, n, &limit);
}

static size_t requests_fuse(const struct tensor_request *v, size_t n, uint64_t bytes)
{
    return fuse_groups(v, n, bytes, false);
}

UNIT_TEST(fusion_takes_what_fits)
{
    struct tensor_request v[4];

    for (size_t i = 0; i < 4; i++)
        v[i] = request_of(COLL_ALLREDUCE, DT_F32, 10); /* 40 bytes */
    assert_int_equal(requests_fuse(v, 0, 1000), 0);
    assert_int_equal(requests_fuse(v, 4, 1000), 4);
    assert_int_equal(requests_fuse(v, 4, 160), 4);
    assert_int_equal(requests_fuse(v, 4, 159), 3);
    assert_int_equal(requests_fuse(v, 4, 40), 1);
    assert_int_equal(requests_fuse(v, 4, 39), 1); /* above the limit: alone */
    assert_int_equal(requests_fuse(v, 4, 0), 1);  /* off */
    v[2] = request_of(COLL_ALLREDUCE, DT_F16, 10);
    assert_int_equal(requests_fuse(v, 4, 1000), 2);
    v[2] = request_of(COLL_BROADCAST, DT_F32, 10);
    assert_int_equal(requests_fuse(v, 4, 1000), 2);
    v[2] = request_of(COLL_ALLREDUCE, DT_F32, 10);
    v[2].op = OP_AVERAGE;
    assert_int_equal(requests_fuse(v, 4, 1000), 2);
    v[2].op = OP_SUM;
    v[2].postscale = 0.5;
    assert_int_equal(requests_fuse(v, 4, 1000), 2);
    v[2].postscale = 1;
    v[2].place = PLACE_CUDA;
    assert_int_equal(requests_fuse(v, 4, 1000), 2);
    for (size_t i = 0; i < 2; i++)
        v[i].place = PLACE_CUDA;
    assert_int_equal(requests_fuse(v, 3, 1000), 3);
    v[2].region = 1;
    assert_int_equal(requests_fuse(v, 3, 1000), 2);
    v[1].place = PLACE_HOST;
    v[0] = request_of(COLL_ALLGATHER, DT_F32, 10);
    assert_int_equal(requests_fuse(v, 4, 1000), 1);
    v[0] = request_of(COLL_ALLREDUCE, DT_F32, 0); /* empty tensors cost nothing */
    assert_int_equal(requests_fuse(v, 2, 40), 2);
    v[1].process_set = 1;
    assert_int_equal(requests_fuse(v, 2, 40), 1);
}

UNIT_TEST(fusion_keeps_groups_and_roots_apart)
{
    struct tensor_request v[3];

    for (size_t i = 0; i < 3; i++) {
        v[i] = request_of(COLL_ALLREDUCE, DT_F32, 10);
        v[i].group = i < 2 ? 7 : 8;
        v[i].group_n = i < 2 ? 2 : 1;
    }
    assert_int_equal(fuse_groups(v, 3, 1000, false), 3);
    assert_int_equal(fuse_groups(v, 3, 1000, true), 2);
    for (size_t i = 0; i < 3; i++)
        v[i].coll = COLL_BROADCAST;
    assert_int_equal(requests_fuse(v, 3, 1000), 3);
    v[1].root = 1;
    assert_int_equal(requests_fuse(v, 3, 1000), 1);
}

UNIT_TEST(a_plan_knows_when_a_step_is_complete)
{
    const struct tensor_request v = request_of(COLL_ALLREDUCE, DT_F32, 1);
    const struct tensor_request *reqs[3] = {&v, &v, &v};
    uint64_t w = 1 | 1 << 1; /* all have the first */
    uint32_t order[3];
    struct frozen_plan *p;
    bool stays;

    assert_int_equal(plan_new(reqs, 3, &p), 0);
    for (int step = 0; step < 2; step++) {
        assert_true(plan_is_whole(p));
        plan_have(p, 0);
        assert_false(plan_is_whole(p));
        assert_int_equal(plan_agreed(p, &w, &stays, order), 1);
        assert_false(
            plan_is_whole(p)); /* done is not to be waited for, but the rest is */
        plan_have(p, 2);
        assert_false(plan_is_whole(p));
        plan_have(p, 1);
    }
    assert_true(plan_is_whole(p));
    plan_free(p);
}

/* The whole table, absent edges too. */
UNIT_TEST(lifecycle_has_these_edges_and_no_others)
{
    static const enum life want[LIFE_COUNT][LIFE_EV_COUNT] = {
        /*                  joined         leave           ended          failed */
        [LIFE_JOINING] = {LIFE_READY, LIFE_DRAINING, LIFE_JOINING, LIFE_ABORTED},
        [LIFE_READY] = {LIFE_READY, LIFE_DRAINING, LIFE_DOWN, LIFE_ABORTED},
        [LIFE_DRAINING] = {LIFE_DRAINING, LIFE_DRAINING, LIFE_DOWN, LIFE_ABORTED},
        [LIFE_DOWN] = {LIFE_DOWN, LIFE_DOWN, LIFE_DOWN, LIFE_DOWN},
        [LIFE_ABORTED] = {LIFE_ABORTED, LIFE_ABORTED, LIFE_ABORTED, LIFE_ABORTED},
    };

    for (int l = 0; l < LIFE_COUNT; l++) {
        for (int e = 0; e < LIFE_EV_COUNT; e++)
            assert_int_equal(life_next((enum life)l, (enum life_event)e), want[l][e]);
        assert_int_equal(life_accepts((enum life)l), l == LIFE_READY);
        assert_string_not_equal(life_name((enum life)l), "?");
    }
}

enum { S = 1000000000 };

NEGOTIATE_TEST(stall_names_tensors_and_missing_ranks, 4, 0)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stall s = {.warn_ns = 60ull * S};
    struct tensor_request a = request_make(COLL_ALLREDUCE, "a"),
                          b = request_make(COLL_ALLREDUCE, "b");
    uint64_t next;

    strbuf_init(&out, 4096);
    assert_int_equal(stall_step(&s, n, 100ull * S, &out, &next), STALL_NONE);
    assert_true(next == UINT64_MAX);
    assert_int_equal(negotiate_add(n, 0, &a, 100ull * S, NULL), 0);
    assert_int_equal(negotiate_add(n, 2, &a, 100ull * S, NULL), 0);
    assert_int_equal(negotiate_add(n, 1, &b, 140ull * S, NULL), 0);
    assert_int_equal(stall_step(&s, n, 159ull * S, &out, &next), STALL_NONE);
    assert_int_equal(next, 160ull * S);
    assert_int_equal(stall_step(&s, n, 161ull * S, &out, &next), STALL_WARN);
    assert_string_equal(strbuf_str(&out),
                        "tensor \"a\" (ALLREDUCE) has waited 61 s for ranks 1, 3");
    assert_int_equal(next, 176ull * S); /* it is noticed again */
    strbuf_clear(&out);
    assert_int_equal(stall_step(&s, n, 200ull * S, &out, &next), STALL_NONE);
    assert_int_equal(stall_step(&s, n, 221ull * S, &out, &next), STALL_WARN);
    assert_string_equal(
        strbuf_str(&out),
        "3 ranks wait only for each other: rank 0 waits for rank 1 in "
        "tensor \"a\" (ALLREDUCE), rank 1 waits for rank 0 in tensor "
        "\"b\" (ALLREDUCE); usual causes are different numbers of steps "
        "or a branch that only some ranks take: give all ranks equal "
        "steps, or call hvd.join() after the last one; "
        "tensor \"a\" (ALLREDUCE) has waited 121 s for ranks 1, 3; "
        "tensor \"b\" (ALLREDUCE) has waited 81 s for ranks 0, 2, 3");
}

/* Times in seconds. */
static enum stall_act
stall_at(struct stall *s, const struct negotiate *n, unsigned now, unsigned *ret_next)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    uint64_t next;
    enum stall_act act;

    strbuf_init(&out, 4096);
    act = stall_step(s, n, (uint64_t)now * S, &out, &next);
    *ret_next = next == UINT64_MAX ? 0 : (unsigned)(next / S);
    if (act == STALL_DEADLOCK) /* the sentence only */
        assert_null(strstr(strbuf_str(&out), "has waited"));
    return act;
}

static void add_at(struct negotiate *n, uint32_t rank, const char *name, unsigned now)
{
    struct tensor_request q = request_make(COLL_ALLREDUCE, name);

    assert_int_equal(negotiate_add(n, rank, &q, (uint64_t)now * S, NULL), 0);
}

NEGOTIATE_TEST(a_deadlock_ends_the_world_after_its_own_time, 3, 0)
{
    struct stall s = {.warn_ns = 60ull * S, .deadlock_ns = 600ull * S};
    unsigned next;

    add_at(n, 0, "a", 100);
    add_at(n, 1, "b", 130);
    assert_int_equal(stall_at(&s, n, 160, &next), STALL_WARN);
    assert_int_equal(stall_at(&s, n, 720, &next), STALL_WARN);
    assert_int_equal(next, 730);
    add_at(n, 1, "c", 725); /* rank 1 works */
    assert_int_equal(stall_at(&s, n, 730, &next), STALL_NONE);
    assert_int_equal(stall_at(&s, n, 1310, &next), STALL_WARN);
    assert_int_equal(next, 1325);
    assert_int_equal(stall_at(&s, n, 1324, &next), STALL_NONE);
    assert_int_equal(stall_at(&s, n, 1325, &next), STALL_DEADLOCK);
}

NEGOTIATE_TEST(a_late_rank_never_ends_the_world_by_default, 3, 0)
{
    struct stall s = {.warn_ns = 60ull * S, .deadlock_ns = 600ull * S};
    unsigned next;

    add_at(n, 0, "a", 100);
    add_at(n, 2, "a", 100);
    add_at(n, 2, "b", 100);
    assert_int_equal(stall_at(&s, n, 86400, &next), STALL_WARN);
    assert_int_equal(stall_at(&s, n, 86460, &next), STALL_WARN);
    add_at(n, 1, "b", 86461);
    add_at(n, 1, "a", 86461);
    add_at(n, 0, "b", 86461);
    assert_int_equal(stall_at(&s, n, 90000, &next), STALL_NONE);
    assert_int_equal(next, 0);
}

NEGOTIATE_TEST(a_deadlock_is_found_without_warnings, 2, 0)
{
    struct stall s = {.deadlock_ns = 600ull * S};
    unsigned next;

    add_at(n, 0, "a", 100);
    assert_int_equal(stall_at(&s, n, 100, &next), STALL_NONE);
    assert_int_equal(next, 700);
    assert_int_equal(stall_at(&s, n, 700, &next), STALL_NONE);
    assert_int_equal(next, 1000);
    add_at(n, 1, "b", 800);
    assert_int_equal(stall_at(&s, n, 1000, &next), STALL_NONE);
    assert_int_equal(next, 1400);
    assert_int_equal(stall_at(&s, n, 1400, &next), STALL_DEADLOCK);
}

NEGOTIATE_TEST(a_probe_waits_for_any_rank, 2, 0)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stall s = {.warn_ns = 5ull * S};
    struct tensor_request q = request_make(COLL_PROBE, "x (any -> 0)");
    uint64_t next;

    strbuf_init(&out, 4096);
    assert_int_equal(negotiate_add(n, 0, &q, 1ull * S, NULL), 0);
    assert_int_equal(stall_step(&s, n, 6ull * S, &out, &next), STALL_WARN);
    assert_string_equal(
        strbuf_str(&out),
        "tensor \"x (any -> 0)\" (PROBE) has waited 5 s for a send from any rank");
}

NEGOTIATE_TEST(stall_can_end_the_world, 2, 0)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stall s = {.warn_ns = 0, .fail_ns = 5ull * S};
    struct tensor_request a = request_make(COLL_BARRIER, "a");
    uint64_t next;

    strbuf_init(&out, 4096);
    assert_int_equal(negotiate_add(n, 0, &a, 1ull * S, NULL), 0);
    /* the clock was read before the request arrived */
    assert_int_equal(stall_step(&s, n, 1, &out, &next), STALL_NONE);
    assert_int_equal(stall_step(&s, n, 5ull * S, &out, &next), STALL_NONE);
    assert_int_equal(next, 6ull * S);
    assert_int_equal(stall_step(&s, n, 6ull * S, &out, &next), STALL_FAIL);
    assert_string_equal(strbuf_str(&out),
                        "tensor \"a\" (BARRIER) has waited 5 s for rank 1");
}

UNIT_TEST(nametab_finds_thousands_and_forgets_them)
{
    enum { N = 5000 };
    static struct nametab_node node[N];
    static char name[N][32];
    struct nametab t = {0};

    for (int i = 0; i < N; i++) {
        (void)snprintf(name[i], sizeof(name[i]), "grad/%d", i);
        node[i].name = name[i];
        node[i].set = (uint32_t)i % 3;
        assert_int_equal(nametab_add(&t, &node[i]), 0);
    }
    for (int i = 0; i < N; i++)
        assert_ptr_equal(nametab_find(&t, (uint32_t)i % 3, name[i]), &node[i]);
    for (int i = 0; i < N; i += 2)
        nametab_remove(&t, &node[i]);
    for (int i = 0; i < N; i++)
        assert_ptr_equal(nametab_find(&t, (uint32_t)i % 3, name[i]),
                         i % 2 ? &node[i] : NULL);
    assert_int_equal(t.n, N / 2);
    assert_null(nametab_find(&t, 0, name[1])); /* it is in set 1 */
    nametab_release(&t);
}

UNIT_TEST(long_names_are_shown_short)
{
    char name[TENSOR_NAME_MAX], buf[NAME_SHOWN_MAX];

    assert_string_equal(name_shown("x", buf), "\"x\"");
    assert_string_equal(name_shown("a\nb\x1b", buf),
                        "\"a?b?\""); /* one line, no escapes */
    memset(name, 'a', sizeof(name));
    memcpy(name + sizeof(name) - 5, "/end", 5);
    (void)name_shown(name, buf);
    assert_true(strlen(buf) < NAME_SHOWN_MAX);
    assert_non_null(strstr(buf, "aaa...a"));
    assert_non_null(strstr(buf, "/end\""));
}

UNIT_MAIN(NULL, NULL)

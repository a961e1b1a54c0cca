/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's side of the response cache and the plan, as a conversation in text. Answers:
 * see assert_answers().
 *
 * Up: "7 a #3 join leave1": the rank has seen 7 answers, has tensor a and the tensor of
 * slot 3, has joined, must leave plan 1. Tensors g and h are a group, s is of process
 * set 1. */
#include "tests/unit/core_negotiate.h"

enum { RANKS = 3 };

#define PLAN_TEST(name)                                                                \
    NEGOTIATE_TEST(name, RANKS, 0, .cache_capacity = 3, .may_freeze = true)

static struct tensor_request request_named(const char *name)
{
    bool is_join = strcmp(name, "join") == 0;
    struct tensor_request r = request_make(is_join ? COLL_JOIN : COLL_ALLREDUCE, name);

    if (name[0] == 'g' || name[0] == 'h') {
        r.group = 5;
        r.group_n = 2;
    }
    r.process_set = name[0] == 's';
    return r;
}

static int rank_send(struct negotiate *n, uint32_t rank, const char *text)
{
    CLEANUP(strbuf_release) struct strbuf b;
    char copy[200], *save = NULL;
    struct message_reader in;
    struct tensor_request q;

    strbuf_init(&b, MESSAGE_MAX_BYTES);
    (void)snprintf(copy, sizeof(copy), "%s", text);
    message_begin_up(&b, strtoull(strtok_r(copy, " ", &save), NULL, 10));
    for (const char *w; (w = strtok_r(NULL, " ", &save)) != NULL;) {
        if (w[0] == '#') {
            uint64_t word = 1ull << atoi(w + 1);

            message_put_hits(&b, 0, &word, 1);
        } else if (strncmp(w, "leave", 5) == 0) {
            message_put_leave(&b, (uint32_t)atoi(w + 5), 9);
        } else {
            q = request_named(w);
            message_put_request(&b, &q);
        }
    }
    assert_int_equal(strbuf_status(&b), 0);
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    return negotiate_receive(n, rank, &in, 1, NULL);
}

static void all_send(struct negotiate *n, const char *text)
{
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(rank_send(n, r, text), 0);
}

/* Three answers, the first of them to ranks that have seen n_seen. */
static void three_equal_steps(struct negotiate *n, int n_seen)
{
    char text[40];

    for (int i = 0; i < 3; i++) {
        (void)snprintf(text, sizeof(text), "%d #0 #1", n_seen + i);
        all_send(n, text);
        assert_answers(n, "#0; #1; ");
    }
}

/* Messages 1 to 4: a and b have the slots 0 and 1, and the next a begins a plan. */
static void two_equal_steps(struct negotiate *n)
{
    all_send(n, "0 a b");
    assert_answers(n, "a@0; b@1; ");
    three_equal_steps(n, 1);
}

PLAN_TEST(equal_steps_become_a_plan)
{
    two_equal_steps(n);
    assert_int_equal(rank_send(n, 0, "4 #0 #1"), 0);
    assert_int_equal(rank_send(n, 1, "4 #0"), 0);
    assert_answers(n, "");
    assert_int_equal(rank_send(n, 2, "4 #0"), 0);
    assert_answers(n, "plan 1 of #0 #1; ");
    /* What comes from before it is dropped; so it is with them again. */
    assert_int_equal(rank_send(n, 1, "4 #1"), 0);
    assert_int_equal(rank_send(n, 2, "4 b"), 0);
    assert_answers(n, "");
    assert_int_equal(negotiate_pending(n), 0);
    all_send(n, "5 #1 #0");
    assert_answers(n, "#1; #0; ");
    assert_int_equal(negotiate_counts(n).n_plans, 1);
}

PLAN_TEST(pending_tensors_delay_a_plan)
{
    two_equal_steps(n);
    assert_int_equal(rank_send(n, 1, "4 c"), 0);
    all_send(n, "4 #0 #1");
    assert_answers(n, "#0; #1; ");
    assert_int_equal(negotiate_counts(n).n_plans, 0);
}

PLAN_TEST(a_plan_is_left_once)
{
    two_equal_steps(n);
    all_send(n, "4 #0 #1");
    assert_answers(n, "plan 1 of #0 #1; ");
    assert_int_equal(rank_send(n, 2, "5 leave1"), 0);
    assert_int_equal(rank_send(n, 1, "5 leave1"), 0);
    assert_answers(n, "leave 1; ");
    assert_answers(n, "");
    three_equal_steps(n, 6);
    all_send(n, "9 #0 #1");
    assert_answers(n, "plan 2 of #0 #1; ");
    assert_int_equal(rank_send(n, 0, "10 leave1"), 0); /* not this one */
    assert_answers(n, "");
    assert_int_equal(rank_send(n, 0, "10 leave2"), 0);
    assert_answers(n, "leave 2; ");
    assert_int_equal(negotiate_counts(n).n_leaves, 2);
}

/* One step: a of the world and s of the set of ranks 0 and 2. */
static void step_with_a_set(struct negotiate *n, const char *text, const char *of_set)
{
    all_send(n, text);
    assert_int_equal(rank_send(n, 0, of_set), 0);
    assert_int_equal(rank_send(n, 2, of_set), 0);
}

PLAN_TEST(a_step_with_a_tensor_of_a_set_becomes_no_plan)
{
    static const uint8_t ranks[] = {0, 0, 0, 0, 2, 0, 0, 0};
    struct tensor_request add = set_of(ranks, 2);
    char text[40], of_set[40];
    int i;

    all_add(n, RANKS, &add);
    assert_answers(n, "set = 1; ");
    step_with_a_set(n, "1 a", "1 s");
    assert_answers(n, "a@0; s@1; ");
    for (i = 2; i < 20; i++) {
        (void)snprintf(text, sizeof(text), "%d #0", i);
        (void)snprintf(of_set, sizeof(of_set), "%d #1", i);
        step_with_a_set(n, text, of_set);
        assert_answers(n, "#0; #1; ");
    }
    for (; i < 24; i++) { /* without it */
        (void)snprintf(text, sizeof(text), "%d #0", i);
        all_send(n, text);
        assert_answers(n, i < 23 ? "#0; " : "plan 1 of #0; ");
    }
}

/* Its rank submits again what was dropped, and must not have joined before. */
PLAN_TEST(a_join_that_crosses_a_plan_is_dropped_too)
{
    two_equal_steps(n);
    all_send(n, "4 #0");
    assert_answers(n, "plan 1 of #0 #1; ");
    assert_int_equal(rank_send(n, 2, "4 #1 join"), 0);
    assert_int_equal(rank_send(n, 2, "5 leave1"), 0);
    assert_answers(n, "leave 1; ");
    all_send(n, "6 #0 #1 join");
    assert_answers(n, "#0; #1; joined, 2 last; ");
}

PLAN_TEST(no_plan_begins_inside_a_group)
{
    all_send(n, "0 a h");
    all_send(n, "0 g");
    assert_answers(n, "a@0; h@1; g@2; ");
    /* The first one that comes as a bit of all is inside the group. */
    all_send(n, "1 h #2");
    assert_answers(n, "h@1; #2; ");
    all_send(n, "2 #0");
    assert_answers(n, "#0; ");
    for (int i = 3; i < 9; i += 2) {
        char text[40];

        (void)snprintf(text, sizeof(text), "%d #1 #2", i);
        all_send(n, text);
        assert_answers(n, "#1; #2; ");
        (void)snprintf(text, sizeof(text), "%d #0", i + 1);
        all_send(n, text);
        assert_answers(n, i < 7 ? "#0; " : "plan 1 of #0 #1 #2; ");
    }
}

/* More than one message holds: that all have joined comes last. */
PLAN_TEST(what_was_submitted_before_a_join_is_answered_before)
{
    enum { TENSORS = 900 };
    struct tensor_request q;
    size_t n_run = 0, n_messages = 0;
    bool have_joined = false;

    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t i = 0; i < TENSORS; i++) {
            q = request_named("");
            memset(q.name, 'n', 400);
            (void)snprintf(q.name + 400, 32, "%u", i);
            rank_add(n, r, &q);
        }
        q = request_named("join");
        rank_add(n, r, &q);
    }
    for (; negotiate_has_news(n); n_messages++) {
        CLEANUP(strbuf_release) struct strbuf b;
        uint64_t counts[RANKS];
        struct message_reader in;
        struct down d;

        strbuf_init(&b, MESSAGE_MAX_BYTES);
        assert_int_equal(negotiate_write(n, &b), 0);
        assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
        while (message_next_down(&in, counts, RANKS, &d, NULL) > 0) {
            assert_false(have_joined);
            have_joined = d.kind == DOWN_JOINED;
            n_run += d.kind == DOWN_RUN;
        }
    }
    assert_true(have_joined);
    assert_int_equal(n_run, TENSORS);
    assert_true(n_messages > 1);
}

PLAN_TEST(a_bit_of_nothing_breaks_the_world)
{
    assert_int_equal(rank_send(n, 1, "0 #0"), -EPROTO);
    assert_int_equal(rank_send(n, 1, "1 a"),
                     -EPROTO); /* has seen more than there was */
    all_send(n, "0 a");
    assert_answers(n, "a@0; ");
    assert_int_equal(rank_send(n, 1, "1 #0"), 0);
    assert_int_equal(rank_send(n, 1, "0 b"), -EPROTO); /* has seen less than before */
}

UNIT_MAIN(NULL, NULL)

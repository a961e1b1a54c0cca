/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks wait only for each other. A row is what ranks have submitted, in order:
 * "0:a" is tensor a of rank 0, "0:2b" is b of process set 2 = {0, 1}, "1>0:t" a
 * transfer, submitted by its sender, and "0<1:t" by its receiver; "0<?:t" asks who
 * sends. */
#include "runtime/core/deadlock.h"
#include "runtime/core/stall.h"
#include "tests/unit/core_negotiate.h"

enum { N_RANKS = 4 };

static const uint8_t RANKS_0_AND_1[] = {0, 0, 0, 0, 1, 0, 0, 0};

static void word_add(struct negotiate *n, const char *w, uint64_t now_ns)
{
    struct tensor_request q;
    uint32_t rank = (uint32_t)(w[0] - '0');

    if (w[1] == ':' && w[2] == '2') {
        q = request_make(COLL_ALLREDUCE, w + 3);
        q.process_set = 1;
    } else if (w[1] == ':') {
        q = request_make(w[2] == 'j' ? COLL_JOIN : COLL_ALLREDUCE, w + 2);
    } else if (w[2] == '?') {
        q = request_make(COLL_PROBE, "");
        assert_true(pair_probe_name(w + 4, rank, q.name));
    } else {
        uint32_t peer = (uint32_t)(w[2] - '0'), src = w[1] == '>' ? rank : peer;

        q = request_make(COLL_SENDRECV, "");
        assert_true(pair_name(w + 4, src, w[1] == '>' ? peer : rank, q.name));
        q.process_set = pair_of(rank, peer);
        q.root = src;
    }
    assert_int_equal(negotiate_add(n, rank, &q, now_ns, NULL), 0);
}

/* Words at the times 1, 2, 3, ... */
static void words_add(struct negotiate *n, const char *words)
{
    char word[32];
    uint64_t now_ns = 1;

    for (int used; sscanf(words, "%31s%n", word, &used) == 1; words += used)
        word_add(n, word, now_ns++);
}

static struct negotiate *table_new(void)
{
    const struct negotiate_config cfg = {.n_ranks = N_RANKS};
    struct tensor_request set = set_of(RANKS_0_AND_1, 2);
    struct negotiate *n;

    world_size = N_RANKS;
    assert_int_equal(negotiate_new(&cfg, &n), 0);
    for (uint32_t rank = 0; rank < N_RANKS; rank++)
        assert_int_equal(negotiate_add(n, rank, &set, 0, NULL), 0);
    assert_answers(n, "set = 1; ");
    return n;
}

UNIT_TEST(ranks_that_wait_only_for_each_other_are_found)
{
    static const struct {
        const char *words, *found; /* rank > for_rank, twice; "": none */
        uint32_t n_ranks;
        uint64_t since_ns;
    } rows[] = {
        {"", "", 0, 0},
        /* one rank is late: nothing is pending there */
        {"0:a 1:a 2:a", "", 0, 0},
        {"0:a 0:b 1:b 2:a 2:b", "", 0, 0},
        /* all wait, but 1 only for a late rank, which may come */
        {"0:a 1:a 2:a 1:b", "", 0, 0},
        /* 0 and 1 wait for each other, whatever 2 and 3 do */
        {"0:a 1:b", "0 > 1, 1 > 0", 2, 2},
        {"0:a 2:a 1:b 3:b", "0 > 1, 1 > 0", 4, 4},
        {"0:a 2:a 3:a 1:b", "0 > 1, 1 > 0", 4, 4},
        /* rank 1 has taken a step less and is at the barrier */
        {"0:g 1:g 2:g 3:g 0:g 2:g 3:g 1:barrier", "0 > 1, 1 > 0", 4, 8},
        /* a longer circle */
        {"0:2a 1>2:t 2>0:t", "0 > 1, 1 > 2", 3, 3},
        /* rank 0's other tensor waits for rank 3 alone, which may submit it */
        {"0:2a 0>3:t 1>0:t", "", 0, 0},
        {"0:2a 1>0:t", "0 > 1, 1 > 0", 2, 2},
        /* both send first; both have the wrong tag */
        {"0>1:t 1>0:t", "0 > 1, 1 > 0", 2, 2},
        {"0>1:t 1<0:u", "0 > 1, 1 > 0", 2, 2},
        {"0>1:t 2<1:t", "", 0, 0},
        /* time of the last change: another tensor of rank 1 is ready at 5 */
        {"0:a 1:b 1:2c 3:d 0:2c", "0 > 1, 1 > 0", 3, 5},
        /* the change of a set without these ranks does not count */
        {"0>1:t 1<0:u 2>3:v 3<2:v", "0 > 1, 1 > 0", 2, 2},
        /* 0 waits for any rank: it is stuck when all of them wait */
        {"0<?:t 1:a 2:a", "", 0, 0},
        {"0<?:t 1:a 2:a 3:a", "0 > 1, 1 > 0", 4, 4},
        {"0<?:t 1<?:t 2<?:t 3<?:t", "0 > 1, 1 > 0", 4, 4},
        {"0<?:t 1>0:t", "", 0, 0},
        /* rank 1 has joined: it is missing nowhere */
        {"1:join 0:a 2:a", "", 0, 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct negotiate *n = table_new();
        struct deadlock d;
        char got[64] = "";

        words_add(n, rows[i].words);
        assert_int_equal(deadlock_find(n, &d), 0);
        if (d.n_ranks > 0)
            (void)snprintf(got, sizeof(got), "%u > %u, %u > %u", d.of[0].rank,
                           d.of[0].for_rank, d.of[1].rank, d.of[1].for_rank);
        if (strcmp(got, rows[i].found) != 0 || d.n_ranks != rows[i].n_ranks
            || d.since_ns != rows[i].since_ns)
            fail_msg("%s: found \"%s\", %u ranks since %llu", rows[i].words, got,
                     d.n_ranks, (unsigned long long)d.since_ns);
        negotiate_free(n);
    }
}

static void assert_sentence(const char *words, const char *sentence)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct negotiate *n = table_new();
    struct deadlock d;

    strbuf_init(&out, 4096);
    words_add(n, words);
    assert_int_equal(deadlock_find(n, &d), 0);
    deadlock_put(&d, &out);
    assert_string_equal(strbuf_str(&out), sentence);
    negotiate_free(n);
}

UNIT_TEST(the_sentence_names_ranks_tensors_and_the_usual_causes)
{
    assert_sentence("0:g 1:h",
                    "2 ranks wait only for each other: rank 0 waits for rank 1 in "
                    "tensor \"g\" (ALLREDUCE), rank 1 waits for rank 0 in tensor \"h\" "
                    "(ALLREDUCE); usual causes are different numbers of steps or a "
                    "branch that only some ranks take: give all ranks equal steps, or "
                    "call hvd.join() after the last one");
    assert_sentence("0>1:t 1>0:t",
                    "2 ranks wait only for each other: rank 0 waits for rank 1 in "
                    "tensor \"t (0 -> 1)\" (SENDRECV), rank 1 waits for rank 0 in "
                    "tensor \"t (1 -> 0)\" (SENDRECV); a send waits for its receive: "
                    "receive first on one of them, use isend() and irecv(), or check "
                    "the tags");
}

#define S UINT64_C(1000000000)

static void assert_stall(const char *words,
                         uint64_t resumed_ns,
                         uint64_t now_ns,
                         enum stall_act act,
                         const char *end)
{
    struct stall s = {
        .warn_ns = 60 * S, .deadlock_ns = 600 * S, .resumed_ns = resumed_ns};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct negotiate *n = table_new();
    uint64_t next_ns;

    strbuf_init(&out, 4096);
    words_add(n, words);
    assert_int_equal(stall_step(&s, n, now_ns, &out, &next_ns), act);
    assert_non_null(strstr(strbuf_str(&out), "wait only for each other"));
    assert_int_equal(strstr(strbuf_str(&out), "this ends the world") != NULL,
                     *end != 0);
    if (*end)
        assert_non_null(strstr(strbuf_str(&out), end));
    if (act == STALL_WARN)
        assert_true(next_ns > now_ns);
    negotiate_free(n);
}

UNIT_TEST(a_deadlock_with_a_transfer_never_ends_the_world)
{
    assert_stall("0:g 1:h", 0, 10000 * S, STALL_DEADLOCK, "");
    assert_stall("0<1:t 1<0:u", 0, 10000 * S, STALL_WARN, "");
    assert_stall("0:g 1:h 0<1:t", 0, 10000 * S, STALL_WARN, "");
    assert_stall("0<?:t 1:a 2:a 3:a", 0, 10000 * S, STALL_WARN, "");
}

UNIT_TEST(time_in_which_the_process_was_stopped_does_not_count)
{
    assert_stall("0:g 1:h", 9900 * S, 10000 * S, STALL_WARN, "in 500 s");
    assert_stall("0:g 1:h", 9900 * S, 10500 * S, STALL_DEADLOCK, "");
}

UNIT_MAIN(NULL, NULL)

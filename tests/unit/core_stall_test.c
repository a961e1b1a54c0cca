/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a stall: which tensor it names, who is missing, and where these ranks
 * wait. A row is what ranks have submitted at the times 1, 2, 3 ...: "0:a" is tensor a
 * of rank 0, "1>0:t" a send from rank 1 to rank 0. */
#include "runtime/core/stall.h"
#include "tests/unit/core_negotiate.h"

enum { N_RANKS = 3, WARN_NS = 60 };

static void words_add(struct negotiate *n, const char *words)
{
    uint64_t now_ns = 1;
    char w[32];

    for (int used; sscanf(words, "%31s%n", w, &used) == 1; words += used) {
        uint32_t rank = (uint32_t)(w[0] - '0');
        struct tensor_request q = request_make(COLL_ALLREDUCE, w + 2);

        if (w[1] == '>') {
            q = request_make(COLL_SENDRECV, "");
            assert_true(pair_name(w + 4, rank, (uint32_t)(w[2] - '0'), q.name));
            q.process_set = pair_of(rank, (uint32_t)(w[2] - '0'));
            q.root = rank;
        }
        assert_int_equal(negotiate_add(n, rank, &q, now_ns++, NULL), 0);
    }
}

static struct negotiate *table_new(const char *words)
{
    const struct negotiate_config cfg = {.n_ranks = N_RANKS};
    struct negotiate *n;

    world_size = N_RANKS;
    assert_int_equal(negotiate_new(&cfg, &n), 0);
    words_add(n, words);
    return n;
}

/* "a missing 1, 2 in b; age 59" */
static void
record_put(const struct stall_record *r, uint64_t age_ns, struct strbuf *out)
{
    strbuf_printf(out, "%.12s missing", r->tensor);
    for (uint32_t i = 0; i < r->n_listed; i++)
        strbuf_printf(out, "%s %u%s%s", i ? "," : "", r->missing[i].rank,
                      r->missing[i].tensor[0] ? " in " : "", r->missing[i].tensor);
    strbuf_printf(out, "; age %llu%s", (unsigned long long)age_ns,
                  r->deadlock[0] ? "; deadlock" : "");
}

UNIT_TEST(the_record_names_the_tensor_and_where_the_missing_ranks_wait)
{
    static const struct {
        const char *words;
        uint64_t now_ns;
        const char *want; /* "": no record */
    } rows[] = {
        {"", 100, ""},
        {"0:a 2:a", 60, ""},
        {"0:a 2:a", 61, "a missing 1; age 60"},
        {"0:a", 70, "a missing 1, 2; age 69"},
        /* all ranks have submitted it: it is not pending */
        {"0:a 1:a 2:a 0:b", 70, "b missing 1, 2; age 66"},
        /* out of step */
        {"0:a 2:a 1:b", 70, "a missing 1 in b; age 69; deadlock"},
        /* the majority is not the cause, even if it came later */
        {"1:b 0:a 2:a", 70, "a missing 1 in b; age 68; deadlock"},
        /* or is not as old, but half as old */
        {"1:b 0:a 2:a", 61, "a missing 1 in b; age 59; deadlock"},
        {"1:b 0:a 2:a", 60, ""},
        /* rank 1 waits first in b, then in c */
        {"0:a 2:a 1:b 1:c", 80, "a missing 1 in b; age 79; deadlock"},
        /* a transfer that waits longest is not named before a tensor */
        {"1>2:t 0:a 1:a", 90, "a missing 2; age 88"},
        {"1>2:t", 90, "t (1 -> 2) missing 2; age 89"},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct stall s = {.warn_ns = WARN_NS};
        CLEANUP(strbuf_release) struct strbuf got = {0};
        struct negotiate *n = table_new(rows[i].words);
        struct stall_record r;
        uint64_t age_ns;
        bool any = stall_describe(&s, n, rows[i].now_ns, &r, &age_ns);

        strbuf_init(&got, 1024);
        if (any)
            record_put(&r, age_ns, &got);
        if (strncmp(strbuf_str(&got), rows[i].want, strlen(rows[i].want)) != 0
            || any != (rows[i].want[0] != '\0'))
            fail_msg("%s: %s, not %s", rows[i].words, strbuf_str(&got), rows[i].want);
        assert_int_equal(stall_lasts(&s, n, rows[i].now_ns), any);
        negotiate_free(n);
    }
}

UNIT_TEST(a_stall_is_over_when_no_tensor_is_old)
{
    const struct stall s = {.warn_ns = WARN_NS}, off = {0};
    struct negotiate *n = table_new("0:a 2:a 0:b");

    assert_false(stall_lasts(&s, n, 60));
    assert_true(stall_lasts(&s, n, 61));
    assert_false(stall_lasts(&off, n, 1000));
    words_add(n, "1:a");
    assert_false(stall_lasts(&s, n, 62)); /* b is from 3 */
    assert_true(stall_lasts(&s, n, 63));
    negotiate_free(n);
}

UNIT_TEST(the_oldest_tensor_is_noticed_after_a_quarter_of_the_stall_time)
{
    static const struct {
        const char *words;
        uint64_t now_ns, waits_ns, next_ns;
    } rows[] = {
        {"0:a", 15, 0, 16},             /* too young */
        {"0:a", 16, 1, 31},             /* noticed, and looked at again */
        {"0:a", 55, 1, 61},             /* the stall is due earlier */
        {"0:a 2:a 1:a 0:b", 18, 0, 19}, /* a does not wait any more */
        {"0:a 2:a 1:a", 90, 0, UINT64_MAX},
    };
    struct stall off = {0};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CLEANUP(strbuf_release) struct strbuf out = {0};
        struct stall s = {.warn_ns = WARN_NS, .waits_ns = 77};
        struct negotiate *n = table_new(rows[i].words);
        uint64_t next_ns;

        strbuf_init(&out, 1024);
        assert_int_equal(stall_step(&s, n, rows[i].now_ns, &out, &next_ns), STALL_NONE);
        assert_int_equal(s.waits_ns, rows[i].waits_ns);
        assert_int_equal(next_ns, rows[i].next_ns);
        assert_int_equal(stall_step(&off, n, rows[i].now_ns, &out, &next_ns),
                         STALL_NONE);
        assert_int_equal(off.waits_ns, 0);
        negotiate_free(n);
    }
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds of a part of the ranks (hvd_config.ranks): several at once, one after another,
 * with ranks that stay outside, and lists that cannot be. */
#include "tests/unit/hvd_world.h"

static int init_of(const int *ranks, int n)
{
    struct hvd_config c = {.size_bytes = sizeof(c),
                           .start_timeout_ms = 20000,
                           .ranks = ranks,
                           .n_ranks = n};

    return hvd_init(&c);
}

/* A sum of 2^(rank in the job) shows which ranks took part. */
static void check_members(int rank, unsigned members)
{
    float v[3] = {(float)(1u << rank), 1, 0};
    hvd_handle h;

    CHECK_OK(sum_async("members", v, 3, &h));
    CHECK_OK(hvd_wait(h, 20000));
    CHECK_OK(hvd_release(h));
    CHECK(v[0] == (float)members, "sum %g, not %u", (double)v[0], members);
    CHECK((int)v[1] == hvd_size(), "size %d", hvd_size());
}

static void check_place(int rank, int size)
{
    CHECK(hvd_rank() == rank && hvd_size() == size, "rank %d of %d, not %d of %d",
          hvd_rank(), hvd_size(), rank, size);
    CHECK(hvd_local_rank() == rank && hvd_local_size() == size, "local %d of %d",
          hvd_local_rank(), hvd_local_size());
    CHECK(hvd_cross_rank() == 0 && hvd_cross_size() == 1, "cross %d of %d",
          hvd_cross_rank(), hvd_cross_size());
    CHECK(hvd_is_homogeneous() == 1, "homogeneous");
}

/* Rank 1 never calls hvd_init; rank 3 is alone. */
WORLD_TEST(ranks_may_stay_outside_or_be_alone, 4)
{
    static const int pair[] = {2, 0}, alone[] = {3};
    int ranks[4];
    char text[2000];
    int id;

    if (rank == 1)
        return;
    if (rank == 3) {
        CHECK_OK(init_of(alone, 1));
        check_place(0, 1);
        check_members(3, 8);
        return;
    }
    CHECK_OK(init_of(pair, 2));
    check_place(rank == 0, 2);
    check_members(rank, 5);
    CHECK_OK(hvd_process_set_add((const int[]){1}, 1, &id)); /* ranks of this world */
    CHECK(hvd_process_set_ranks(id, ranks, 4) == 1 && ranks[0] == 1, "ranks");
    CHECK(hvd_process_set_rank(id) == (rank == 0 ? 0 : -1), "rank in the set");
    CHECK(hvd_process_set_add((const int[]){2}, 1, &id) == HVD_INVALID_ARGUMENT,
          "rank 2 of 2");
    (void)hvd_describe(text, sizeof(text));
    CHECK(strstr(text, rank ? "\"job_rank\":2,\"job_size\":4" : "\"job_rank\":0"), "%s",
          text);
    CHECK_OK(barrier_now("end"));
}

static void assert_refused(const int *ranks, int n, const char *sentence)
{
    CHECK_FAILS(init_of(ranks, n), HVD_INVALID_ARGUMENT, sentence);
    CHECK(!hvd_is_initialized(), "initialized");
}

WORLD_TEST(impossible_lists_are_refused_at_once, 2)
{
    static const int all[] = {0, 1}, other[] = {1, 0};
    const int mine[] = {rank}, others[] = {1 - rank};

    assert_refused((const int[]){0, 1, 1}, 3, "comm=[0, 1, 1]: rank 1 is listed twice");
    assert_refused(
        (const int[]){0, 1, 2}, 3,
        "comm=[0-2]: 2 is not a rank of this job, which has 2 ranks, 0 to 1");
    assert_refused((const int[]){-1, 0}, 2, "comm=[-1, 0]: -1 is not a rank");
    assert_refused(others, 1,
                   rank ? "comm=[0] does not include this process, rank 1 of 2"
                        : "comm=[1] does not include this process, rank 0 of 2");
    assert_refused(NULL, 2, "hvd_config.n_ranks: 2, must be at least 0, with ranks");
    assert_refused(mine, -1, "hvd_config.n_ranks: -1");
    CHECK_OK(init_of(all, 2)); /* the world of all */
    CHECK_OK(init_of(all, 2));
    CHECK_OK(hvd_init(NULL));
    CHECK_FAILS(init_of(other, 2), HVD_INVALID_ARGUMENT,
                "called before, for all 2 ranks, and now with");
    check_members(rank, 3);
}

/* Both get the error at once, not after 20 s; ranks 2 and 3 are not affected. */
WORLD_TEST(lists_that_differ_are_both_shown, 4)
{
    static const int two[] = {0, 1}, three[] = {1, 0}, rest[] = {2, 3};
    uint64_t begin_ns = clock_now_ns();

    if (rank >= 2) {
        CHECK_OK(init_of(rest, 2));
        check_members(rank, 12);
        return;
    }
    assert_refused(rank ? three : two, 2, "hvd.init(comm=...) differs: rank ");
    CHECK(strstr(hvd_last_error(), "rank 0 passes [0, 1]")
              && strstr(hvd_last_error(), "rank 1 passes [1, 0]"),
          "%s", hvd_last_error());
    CHECK(clock_now_ns() - begin_ns < 10 * NS_PER_S, "told late");
    CHECK_OK(init_of(two, 2)); /* it was a mistake, not the end */
    check_members(rank, 3);
}

WORLD_TEST(a_list_against_none_is_a_mismatch, 2)
{
    static const int list[] = {1, 0};

    assert_refused(list, rank == 0 ? 2 : 0,
                   rank == 0 ? "rank 0 passes [1, 0]"
                             : "rank 1 passes no list, all 2 ranks");
}

WORLD_TEST(who_is_missing_has_its_rank_in_the_job, 3)
{
    static const int pair[] = {0, 2};
    struct hvd_config c = {
        .size_bytes = sizeof(c), .start_timeout_ms = 3000, .ranks = pair, .n_ranks = 2};

    if (rank != 0)
        return;
    CHECK_FAILS(
        hvd_init(&c), HVD_TIMEOUT,
        "for rank 2 of [0, 2] (the start timeout that the program has set is 3 s");
}

UNIT_MAIN(NULL, NULL)

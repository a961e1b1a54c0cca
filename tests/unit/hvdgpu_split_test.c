/* SPDX-License-Identifier: Apache-2.0 */
/* Process sets whose communicators are split off the world's, by all ranks at the same
 * place in the order, while batches of both are in flight. The fake NCCL ends the test
 * if ranks do not make the same calls, or wait for each other forever. */
#include "tests/unit/hvdgpu_world.h"

enum { N = 300, ROUNDS = 12 };

struct sum {
    float *v;
    int members;
    hvd_handle h;
};

/* Of ones: the sum is the number of members. */
static void sum_begin(struct sum *s, int rank, const char *name, int set, int members)
{
    s->v = floats_on_gpu(rank, N);
    s->members = members;
    for (int i = 0; i < N; i++)
        s->v[i] = 1;
    CHECK_OK(sum_on_gpu(rank, name, s->v, N, set, &s->h));
}

static void sum_end(struct sum *s)
{
    CHECK_OK(wait_release(s->h));
    for (int i = 0; i < N; i++)
        CHECK(s->v[i] == (float)s->members, "%g, not %d", (double)s->v[i], s->members);
}

/* Batches of the world and of a set, each rank in an order of its own. */
static void
sums_begin(int rank, int size, int set, int members, struct sum ret[2 * ROUNDS])
{
    char name[32];

    for (int i = 0; i < 2 * ROUNDS; i++) {
        const int k = rank % 2 ? 2 * ROUNDS - 1 - i : i;

        (void)snprintf(name, sizeof(name), "%d.%d", set, k);
        if (k % 2 == 0)
            sum_begin(&ret[k], rank, name, 0, size);
        else if (members)
            sum_begin(&ret[k], rank, name, set, members);
        else
            ret[k].v = NULL;
    }
}

static void all_end(struct sum v[2 * ROUNDS])
{
    for (int i = 0; i < 2 * ROUNDS; i++)
        if (v[i].v)
            sum_end(&v[i]);
}

static void sets_body(int rank, int size)
{
    static const int early[] = {0, 1}, even[] = {0, 2}, rest[] = {1, 2, 3};
    struct sum one, world[2 * ROUNDS], a[2 * ROUNDS], b[2 * ROUNDS];
    int ids[3];

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(hvd_process_set_add(early, 2, &ids[0])); /* nothing to split it off */
    if (rank < 2) {
        sum_begin(&one, rank, "early", ids[0], 2);
        sum_end(&one);
    }
    sum_begin(&one, rank, "first", 0, size);
    sum_end(&one);
    sums_begin(rank, size, 0, size, world);
    CHECK_OK(hvd_process_set_add(even, 2, &ids[1]));
    sums_begin(rank, size, ids[1], rank % 2 == 0 ? 2 : 0, a);
    CHECK_OK(hvd_process_set_add(rest, 3, &ids[2]));
    sums_begin(rank, size, ids[2], rank > 0 ? 3 : 0, b);
    all_end(world);
    all_end(b);
    all_end(a);
    for (int i = 2; i >= 0; i--)
        CHECK_OK(hvd_process_set_remove(ids[i]));
    sum_begin(&one, rank, "last", 0, size);
    sum_end(&one);
    CHECK_OK(hvd_shutdown());
    report_begun(rank);
}

/* What each rank did in this order. */
static void check_calls(bool splits)
{
    for (int r = 0; r < 4; r++) {
        char all[512];
        size_t n = 0;

        if (r < 2)
            n += (size_t)snprintf(all, sizeof(all), "init %d/2\n", r);
        n += (size_t)snprintf(all + n, sizeof(all) - n, "init %d/4\n", r);
        if (splits) {
            (void)snprintf(all + n, sizeof(all) - n,
                           "split %d of %d/4\nsplit %d of %d/4\n", r % 2 ? -1 : 0, r,
                           r ? 0 : -1, r);
        } else {
            if (r % 2 == 0)
                n += (size_t)snprintf(all + n, sizeof(all) - n, "init %d/2\n", r / 2);
            if (r > 0)
                (void)snprintf(all + n, sizeof(all) - n, "init %d/3\n", r - 1);
        }
        assert_string_equal(shared->r[r].text, all);
    }
}

static void case_run(const char *version, bool splits)
{
    if (!has_kernels())
        return;
    use_nccl(version);
    (void)setenv("HVD_FAKE_DELAY_US", "300", 1);
    (void)setenv("HVD_FAKE_NCCL_DELAY_US", "3000", 1);
    world_run(4, sets_body);
    (void)unsetenv("HVD_FAKE_DELAY_US");
    (void)unsetenv("HVD_FAKE_NCCL_DELAY_US");
    check_calls(splits);
}

UNIT_TEST(sets_are_split_off_by_all_ranks)
{
    case_run("22705", true);
    case_run("22505",
             true); /* what is in progress is taken up in another way in each */
    case_run("21805", true);
}

/* Ranks outside the set split too, concurrently with their work. */
static void meet_body(int rank, int size)
{
    static const int pair[] = {1, 2};
    struct sum one, v[2 * ROUNDS];
    int id = 0;

    CHECK_OK(hvd_init(NULL));
    sum_begin(&one, rank, "first", 0, size);
    sum_end(&one);
    sums_begin(rank, size, 0, 0, v);
    if (rank == 1 || rank == 2) {
        CHECK_OK(hvd_process_set_meet(pair, 2, &id));
        sum_begin(&one, rank, "pair", id, 2);
        sum_end(&one);
    }
    all_end(v);
    CHECK_OK(barrier_now("all"));
    CHECK_OK(hvd_shutdown());
    report_begun(rank);
}

UNIT_TEST(sets_that_members_meet_for_are_split_off_too)
{
    if (!has_kernels())
        return;
    use_nccl("22809");
    world_run(4, meet_body);
    for (int r = 0; r < 4; r++) {
        char all[64];

        (void)snprintf(all, sizeof(all), "init %d/4\nsplit %d of %d/4\n", r,
                       r == 1 || r == 2 ? 0 : -1, r);
        assert_string_equal(shared->r[r].text, all);
    }
}

UNIT_TEST(without_split_members_open_them_lazily)
{
    case_run("21706", false);
    case_run("21003", false); /* blocks */
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_submit_held: a group is submitted whole or not at all, whatever goes wrong with
 * one of it; what was not submitted leaves no trace. */
#include "tests/unit/hvd_world.h"

/* Each part is an allocation, and so is their list: in as many rounds it is this thread
 * that is hit. */
enum { PARTS = 3, ROUNDS = PARTS + 1 };

static const char *const names[PARTS] = {"held/0", "held/1", "held/2"};
static float data[PARTS], out[PARTS];
static _Atomic int n_done;

static void count_end(void *arg, int status, const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    atomic_fetch_add(&n_done, 1);
}

static struct hvd_tensor part_of(int i)
{
    static const int64_t one = 1;
    struct hvd_tensor t = tensor_1d(names[i], HVD_FLOAT32, &data[i], &out[i], &one);

    t.group = "held";
    t.group_size = PARTS;
    t.is_held = 1;
    t.done = count_end;
    return t;
}

/* How many could be made. */
static int make_parts(hvd_handle *h)
{
    for (int i = 0; i < PARTS; i++) {
        struct hvd_tensor t = part_of(i);

        data[i] = (float)(i + 1);
        if (hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h[i]) < 0)
            return i;
    }
    return PARTS;
}

static void handles_release(const hvd_handle *h, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_OK(hvd_release(h[i]));
}

static void end_group(const hvd_handle *h, int size)
{
    for (int i = 0; i < PARTS; i++) {
        CHECK_OK(hvd_wait(h[i], 20000));
        CHECK(out[i] == (float)((i + 1) * size), "part %d is %g", i, (double)out[i]);
    }
    handles_release(h, PARTS);
    CHECK(atomic_load(&n_done) == PARTS, "%d callbacks", atomic_load(&n_done));
    atomic_store(&n_done, 0);
}

static void whole_group(int size)
{
    hvd_handle h[PARTS];

    CHECK(make_parts(h) == PARTS, "%s", hvd_last_error());
    CHECK_OK(hvd_submit_held(h, PARTS));
    end_group(h, size);
}

/* Memory runs out on rank 0 at each allocation in turn. */
INIT_TEST(memory_that_runs_out_leaves_nothing_of_a_group, 2)
{
    int hits = 0;

    for (int round = 0; round < ROUNDS; round++) {
        hvd_handle h[PARTS];
        int n, rc = HVD_NO_MEMORY;

        if (rank != 0) /* its group would need memory of rank 0's coordinator, too */
            futex_wait_until(&shared->r[0].stage, (uint32_t)round + 1,
                             clock_now_ns() + CHILD_LIMIT_S * NS_PER_S);
        mem_fail_thread_after(rank == 0 ? round : -1);
        n = make_parts(h);
        if (n == PARTS)
            rc = hvd_submit_held(h, PARTS);
        hits += rank == 0 && mem_fail_fired();
        mem_fail_thread_after(-1);
        if (rank == 0)
            stage_set(0, (uint32_t)round + 1);
        if (rc == HVD_OK) {
            end_group(h, size);
        } else {
            CHECK(rc == HVD_NO_MEMORY && strstr(hvd_last_error(), "memory"),
                  "round %d: %s", round, hvd_last_error());
            CHECK(atomic_load(&n_done) == 0, "a callback ran");
            handles_release(h, n);
            whole_group(size);
        }
        CHECK_OK(barrier_now("round"));
    }
    CHECK(rank != 0 || hits == ROUNDS, "%d allocations failed", hits);
}

/* The second part's name is taken when the group is submitted. */
INIT_TEST(a_name_that_is_taken_leaves_the_group_held, 2)
{
    struct hvd_tensor t = part_of(1);
    float other = 0;
    hvd_handle h[PARTS], busy;

    t.group = NULL;
    t.is_held = 0;
    t.output = &other;
    t.done = NULL;
    if (rank == 0) {
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &busy));
        CHECK(make_parts(h) == PARTS, "%s", hvd_last_error());
        CHECK_FAILS(hvd_submit_held(h, PARTS), HVD_INVALID_ARGUMENT, "same name");
        CHECK(strstr(hvd_last_error(), "held/1"), "%s", hvd_last_error());
    }
    CHECK_OK(barrier_now("met"));
    if (rank != 0)
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &busy));
    CHECK_OK(hvd_wait(busy, 20000));
    CHECK_OK(hvd_release(busy));
    if (rank != 0)
        CHECK(make_parts(h) == PARTS, "%s", hvd_last_error());
    CHECK_OK(hvd_submit_held(h, PARTS)); /* on rank 0 the same ones, still held */
    end_group(h, size);
}

WORLD_TEST(misuse_is_refused_with_a_sentence, 2)
{
    hvd_handle h[PARTS];
    hvd_handle wrong[2] = {0};

    CHECK_OK(hvd_init(NULL));
    CHECK(make_parts(h) == PARTS, "%s", hvd_last_error());
    CHECK(hvd_poll(h[0]) == HVD_IN_PROGRESS, "%s", hvd_last_error());
    CHECK_FAILS(hvd_wait(h[0], 0), HVD_INVALID_ARGUMENT, "hvd_submit_held");
    CHECK_FAILS(hvd_submit_held(h, 0), HVD_INVALID_ARGUMENT, "at least 1");
    CHECK_FAILS(hvd_submit_held(NULL, 1), HVD_INVALID_ARGUMENT, "at least 1");
    wrong[0] = h[0];
    CHECK_FAILS(hvd_submit_held(wrong, 2), HVD_INVALID_ARGUMENT, "unknown");
    wrong[1] = h[0];
    CHECK_FAILS(hvd_submit_held(wrong, 2), HVD_INVALID_ARGUMENT, "not held");
    CHECK_OK(hvd_submit_held(h, PARTS)); /* all are held as before */
    CHECK_FAILS(hvd_submit_held(h, PARTS), HVD_INVALID_ARGUMENT, "not held");
    end_group(h, size);
    CHECK(make_parts(h) == PARTS, "%s", hvd_last_error());
    CHECK_OK(hvd_shutdown());
    CHECK_FAILS(hvd_submit_held(h, PARTS), HVD_NOT_INITIALIZED, "");
    CHECK_OK(hvd_init(NULL));
    CHECK_FAILS(hvd_submit_held(h, PARTS), HVD_PRECONDITION, "before the shutdown");
    handles_release(h, PARTS);
    whole_group(size);
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)

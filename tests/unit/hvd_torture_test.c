/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out on one rank at each allocation in turn of each operation: either the
 * submit says so and nothing has happened, or all ranks fail with a sentence that says
 * so; nobody hangs, nothing leaks (ASan), and the next world works. */
#include "tests/unit/hvd_world.h"

enum { ROUNDS = 70, ROWS = 8 };

/* Only there under ASan; a rank ends by _exit, so it has to ask. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void check_leaks(void)
{
    CHECK(!__lsan_do_recoverable_leak_check || __lsan_do_recoverable_leak_check() == 0,
          "something has leaked");
}

static struct {
    float data[ROWS], out[ROWS];
} memory;

static struct hvd_tensor tensor_of(void)
{
    static const int64_t rows = ROWS;

    return tensor_1d("x", HVD_FLOAT32, memory.data, memory.out, &rows);
}

static const char *const kinds[] = {
    "allreduce",     "adasum", "group",     "allgather", "gather",   "alltoall",
    "reducescatter", "reduce", "broadcast", "barrier",   "sendrecv", "join",
};

static int start_kind(const char *kind, hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    if (strcmp(kind, "allreduce") == 0)
        return hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, h);
    if (strcmp(kind, "adasum") == 0)
        return hvd_allreduce_async(&t, HVD_ADASUM, 1, 1, 0, h);
    if (strcmp(kind, "group") == 0) {
        t.group = "alone";
        t.group_size = 1;
        return hvd_allreduce_async(&t, HVD_MAX, 1, 1, 0, h);
    }
    if (strcmp(kind, "allgather") == 0)
        return hvd_allgather_async(&t, NULL, NULL, 0, h);
    if (strcmp(kind, "gather") == 0)
        return hvd_gather_async(&t, 1, NULL, NULL, 0, h);
    if (strcmp(kind, "alltoall") == 0)
        return hvd_alltoall_async(&t, NULL, 0, NULL, NULL, 0, h);
    if (strcmp(kind, "reducescatter") == 0)
        return hvd_reducescatter_async(&t, HVD_SUM, 1, 1, NULL, NULL, 0, h);
    if (strcmp(kind, "reduce") == 0)
        return hvd_reduce_async(&t, HVD_SUM, 1, 1, 0, 0, h);
    if (strcmp(kind, "broadcast") == 0)
        return hvd_broadcast_async(&t, 0, 0, h);
    if (strcmp(kind, "barrier") == 0)
        return hvd_barrier_async(&t, 0, h);
    if (strcmp(kind, "sendrecv") == 0)
        return hvd_rank() == 0 ? hvd_send_async(&t, 1, h) : hvd_recv_async(&t, 0, h);
    return hvd_join_async(&t, h);
}

/* The end of an operation: OK, or the world is broken for want of memory. */
static void check_end(int r, const char *what, int round)
{
    CHECK(r == HVD_OK || (r == HVD_ABORTED && strstr(hvd_last_error(), "memory")),
          "%s, allocation %d: %d %s", what, round, r, hvd_last_error());
}

static int submit_and_wait(const char *kind)
{
    hvd_handle h;
    int rc = start_kind(kind, &h);

    if (rc < 0)
        return rc;
    rc = hvd_wait(h, 20000);
    CHECK(rc != HVD_TIMEOUT, "%s", hvd_last_error());
    if (rc == HVD_OK)
        return hvd_release(h);
    (void)hvd_poll(h); /* its sentence stays the last one; the handle goes with us */
    return rc;
}

/* All ranks are through with the last one, in this world or in the next. */
static void sync_ranks(void)
{
    int rc = barrier_now("sync");

    if (rc == HVD_OK)
        return;
    CHECK(rc == HVD_ABORTED, "%d %s", rc, hvd_last_error());
    CHECK_OK(hvd_shutdown());
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(barrier_now("sync"));
}

/* Whether an allocation failed here. */
static bool one_round(const char *kind, int round, bool is_victim)
{
    bool was_hit;
    int r;

    mem_fail_after(is_victim ? round : -1);
    r = submit_and_wait(kind);
    was_hit = is_victim && mem_fail_fired();
    mem_fail_after(-1);
    if (was_hit && r == HVD_NO_MEMORY) {
        CHECK(strstr(hvd_last_error(), "memory"), "%s", hvd_last_error());
        r = submit_and_wait(kind); /* nothing has happened: once more */
    }
    check_end(r, kind, round);
    return was_hit;
}

static int victim;

RANK_BODY(torture_body)
{
    CHECK_OK(hvd_init(NULL));
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        int hits = 0;
        bool is_last_hit = false;

        for (int i = 0; i < ROUNDS; i++) {
            is_last_hit = one_round(kinds[k], i, rank == victim);
            hits += is_last_hit;
            sync_ranks();
        }
        CHECK(rank != victim || (hits > 0 && !is_last_hit),
              "%s: %d allocations failed, the last one %s", kinds[k], hits,
              is_last_hit ? "too" : "not");
    }
    CHECK_OK(hvd_shutdown());
    check_leaks();
}

/* --- process sets --- */

RANK_BODY(sets_body)
{
    const int ranks[] = {1};

    CHECK_OK(hvd_init(NULL));
    for (int i = 0; i < ROUNDS; i++) {
        int id = -1, rc;

        mem_fail_after(rank == victim ? i : -1);
        rc = hvd_process_set_add(ranks, 1, &id);
        mem_fail_after(-1);
        if (rank == victim && rc == HVD_NO_MEMORY)
            rc = hvd_process_set_add(ranks, 1, &id);
        check_end(rc, "adding a set", i);
        if (rc == HVD_OK)
            check_end(hvd_process_set_remove(id), "removing it", i);
        sync_ranks();
        CHECK(hvd_process_set_ids(NULL, 0) == 1, "allocation %d: a set is left", i);
    }
    CHECK_OK(hvd_shutdown());
    check_leaks();
}

UNIT_TEST(memory_may_run_out_on_either_rank)
{
    for (victim = 0; victim < 2; victim++) {
        world_run(2, torture_body);
        world_run(2, sets_body);
    }
}

UNIT_MAIN(NULL, NULL)

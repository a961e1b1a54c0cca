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

typedef int (*start_fn)(hvd_handle *h);

static struct hvd_tensor tensor_of(void)
{
    static const int64_t rows = ROWS;

    return tensor_1d("x", HVD_FLOAT32, memory.data, memory.out, &rows);
}

static int start_allreduce(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, h);
}

static int start_adasum(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_allreduce_async(&t, HVD_ADASUM, 1, 1, 0, h);
}

static int start_group(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    t.group = "alone";
    t.group_size = 1;
    return hvd_allreduce_async(&t, HVD_MAX, 1, 1, 0, h);
}

static int start_allgather(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_allgather_async(&t, NULL, NULL, 0, h);
}

static int start_gather(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_gather_async(&t, 1, NULL, NULL, 0, h);
}

static int start_alltoall(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_alltoall_async(&t, NULL, 0, NULL, NULL, 0, h);
}

static int start_reducescatter(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_reducescatter_async(&t, HVD_SUM, 1, 1, NULL, NULL, 0, h);
}

static int start_reduce(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_reduce_async(&t, HVD_SUM, 1, 1, 0, 0, h);
}

static int start_broadcast(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_broadcast_async(&t, 0, 0, h);
}

static int start_barrier(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_barrier_async(&t, 0, h);
}

static int start_join(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_join_async(&t, h);
}

static int start_sendrecv(hvd_handle *h)
{
    struct hvd_tensor t = tensor_of();

    return hvd_rank() == 0 ? hvd_send_async(&t, 1, h) : hvd_recv_async(&t, 0, h);
}

static const struct {
    const char *name;
    start_fn start;
} kinds[] = {
    {"allreduce", start_allreduce},
    {"adasum", start_adasum},
    {"group", start_group},
    {"allgather", start_allgather},
    {"gather", start_gather},
    {"alltoall", start_alltoall},
    {"reducescatter", start_reducescatter},
    {"reduce", start_reduce},
    {"broadcast", start_broadcast},
    {"barrier", start_barrier},
    {"sendrecv", start_sendrecv},
    {"join", start_join},
};

/* The end of an operation: OK, or the world is broken for want of memory. */
static void check_end(int r, const char *what, int round)
{
    CHECK(r == HVD_OK || (r == HVD_ABORTED && strstr(hvd_last_error(), "memory")),
          "%s, allocation %d: %d %s", what, round, r, hvd_last_error());
}

static int submit_and_wait(start_fn start)
{
    hvd_handle h;
    int rc = start(&h);

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
static bool one_round(start_fn start, const char *what, int round, bool is_victim)
{
    bool was_hit;
    int r;

    mem_fail_after(is_victim ? round : -1);
    r = submit_and_wait(start);
    was_hit = is_victim && mem_fail_fired();
    mem_fail_after(-1);
    if (was_hit && r == HVD_NO_MEMORY) {
        CHECK(strstr(hvd_last_error(), "memory"), "%s", hvd_last_error());
        r = submit_and_wait(start); /* nothing has happened: once more */
    }
    check_end(r, what, round);
    return was_hit;
}

static void torture_body(int rank, int victim)
{
    CHECK_OK(hvd_init(NULL));
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        int hits = 0;
        bool is_last_hit = false;

        for (int i = 0; i < ROUNDS; i++) {
            is_last_hit = one_round(kinds[k].start, kinds[k].name, i, rank == victim);
            hits += is_last_hit;
            sync_ranks();
        }
        CHECK(rank != victim || (hits > 0 && !is_last_hit),
              "%s: %d allocations failed, the last one %s", kinds[k].name, hits,
              is_last_hit ? "too" : "not");
    }
    CHECK_OK(hvd_shutdown());
    check_leaks();
}

static void victim_0(int rank, int size)
{
    (void)size;
    torture_body(rank, 0);
}

static void victim_1(int rank, int size)
{
    (void)size;
    torture_body(rank, 1);
}

WORLD_TEST(memory_may_run_out_on_rank_0, 2, victim_0)

WORLD_TEST(memory_may_run_out_on_another_rank, 2, victim_1)

/* --- process sets --- */

static void sets_body(int rank, int victim)
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

static void sets_0(int rank, int size)
{
    (void)size;
    sets_body(rank, 0);
}

static void sets_1(int rank, int size)
{
    (void)size;
    sets_body(rank, 1);
}

static void memory_may_run_out_for_a_set(void **state)
{
    (void)state;
    world_run(2, sets_0);
    world_run(2, sets_1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_may_run_out_on_rank_0),
        cmocka_unit_test(memory_may_run_out_on_another_rank),
        cmocka_unit_test(memory_may_run_out_for_a_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

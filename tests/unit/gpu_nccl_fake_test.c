/* SPDX-License-Identifier: Apache-2.0 */
/* The fake of NCCL itself ends the test with a message where NCCL would hang or crash,
 * or forbids a call. Its results are compared with NCCL's by the same script
 * (tests/gpu/conform_nccl.c), and checked by gpu_matrix_test; aborts and injected
 * errors are in gpu_abort_test and gpu_comm_test. Each row runs in a child process. */
#include "runtime/base/mem.h"
#include "tests/unit/nccl_members.h"

/* One sum of all members, at its end or in progress. */
static int sum_start(struct member *m)
{
    return nccl.all_reduce(m->x, m->x, 1, NCCL_I32, NCCL_SUM, m->c, m->s);
}

static int sum_launch(struct member *m)
{
    return comm_wait(m->c, sum_start(m));
}

/* --- what would hang --- */

static void member_differs(struct member *m)
{
    WANT(m, member_start(m) == NCCL_OK);
    (void)comm_wait(m->c, nccl.all_reduce(m->x, m->x, m->rank == 1 ? 4 : 8, NCCL_F32,
                                          NCCL_SUM, m->c, m->s));
    stream_sync(m->s);
}

static void member_differs_in_kind(struct member *m)
{
    WANT(m, member_start(m) == NCCL_OK);
    (void)comm_wait(m->c, m->rank
                              ? nccl.broadcast(m->x, m->x, 8, NCCL_F32, 0, m->c, m->s)
                              : nccl.send(m->x, 8, NCCL_F32, 1, m->c, m->s));
    stream_sync(m->s);
}

/* NCCL must not find memory registered on some ranks alone. */
static void registered_on_one(struct member *m)
{
    void *handle;

    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0)
        WANT(m, comm_wait(m->c, nccl.register_(m->c, m->x, 8 * sizeof(*m->x), &handle))
                    == NCCL_OK);
    (void)sum_launch(m);
    stream_sync(m->s);
}

/* Rank 0 alone launches a sum. */
static void member_is_missing(struct member *m)
{
    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0)
        (void)sum_launch(m);
    stream_sync(m->s);
    (void)pthread_barrier_wait(m->meet);
}

/* --- what is forbidden --- */

static void call_while_in_progress(struct member *m)
{
    if (m->rank == 0) { /* the other does not come */
        (void)member_init(m);
        (void)sum_start(m);
    }
    (void)pthread_barrier_wait(m->meet);
}

static void query_after_abort(struct member *m)
{
    int rc;

    WANT(m, member_start(m) == NCCL_OK);
    WANT(m, nccl.abort(m->c) == NCCL_OK);
    (void)nccl.async_error(m->c, &rc);
}

/* Rank 0 has a kernel that waits for the others; then it makes a call. */
static bool member_has_kernel(struct member *m)
{
    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank != 0) {
        (void)pthread_barrier_wait(m->meet);
        return false;
    }
    (void)sum_launch(m);
    return true;
}

static void destroy_early(struct member *m)
{
    if (member_has_kernel(m))
        (void)nccl.destroy(m->c);
}

static void split_early(struct member *m)
{
    nccl_comm child;

    if (member_has_kernel(m))
        (void)nccl.split(m->c, 0, 0, &child, NULL);
}

static void shrink_early(struct member *m)
{
    int32_t others[1] = {1};
    nccl_comm child = NULL;

    if (member_has_kernel(m))
        (void)nccl.shrink(m->c, others, 1, &child, NULL, 0);
}

static void *blocked_call(void *arg)
{
    struct member *m = arg;

    (void)nccl.finalize(m->c);
    return NULL;
}

/* A blocking communicator's finalize waits for the kernel. */
static void call_from_two_threads(struct member *m)
{
    pthread_t t;

    m->blocks = true;
    WANT(m, member_start(m) == NCCL_OK);
    if (m->rank == 0) {
        (void)sum_start(m);
        WANT(m, pthread_create(&t, NULL, blocked_call, m) == 0);
        for (int i = 0; i < 200; i++) { /* until the thread is inside */
            (void)usleep(100000);
            (void)sum_start(m);
        }
    }
    (void)pthread_barrier_wait(m->meet);
}

static void split_in_old_version(struct member *m)
{
    nccl_comm child;

    WANT(m, member_start(m) == NCCL_OK);
    (void)nccl.split(m->c, 0, 0, &child, NULL);
}

/* --- what is in progress, and whose it is --- */

static void *thread_queries(void *arg)
{
    struct member *m = arg;
    int rc;

    (void)nccl.async_error(m->c, &rc);
    return NULL;
}

static void *thread_aborts(void *arg)
{
    (void)nccl.abort(((struct member *)arg)->c);
    return NULL;
}

static void *thread_inits(void *arg)
{
    (void)member_init(arg);
    return NULL;
}

static void on_thread(struct member *m, void *(*what)(void *arg))
{
    pthread_t t;

    WANT(m, pthread_create(&t, NULL, what, m) == 0);
    WANT(m, pthread_join(t, NULL) == 0);
}

static void queried_elsewhere(struct member *m)
{
    (void)member_init(m);
    on_thread(m, thread_queries);
}

static void aborted_elsewhere(struct member *m)
{
    (void)member_init(m);
    on_thread(m, thread_aborts);
}

static void started_by_a_thread_that_ended(struct member *m)
{
    on_thread(m, thread_inits);
    (void)nccl.abort(m->c);
}

static void revoked_in_progress(struct member *m)
{
    (void)member_init(m);
    (void)nccl.revoke(m->c, 0);
}

/* The child is used while the parent's group has only been seen to be over. */
static void not_taken_up(struct member *m)
{
    nccl_comm child = NULL;

    WANT(m, member_start(m) == NCCL_OK);
    int rc = nccl.split(m->c, 0, m->rank, &child, NULL);
    WANT(m, comm_wait_birth(m->c, rc) == NCCL_OK);
    WANT(m, sum_launch(m) == NCCL_OK);
    stream_sync(m->s);
    (void)nccl.all_reduce(m->x, m->x, 1, NCCL_I32, NCCL_SUM, child, m->s);
}

UNIT_TEST(wrong_calls_end_the_test)
{
    static const struct {
        void (*body)(struct member *m);
        const char *words, *version, *faults, *hang_s;
        int n;
    } rows[] = {
        {member_differs, "which does AllReduce of", .n = 2},
        {member_differs_in_kind, "differ, they would hang", .n = 2},
        {registered_on_one, ", registered", .n = 2},
        {member_is_missing, "waits for member 1 (AllReduce of 1 i32", .hang_s = "3",
         .n = 2},
        {call_while_in_progress, "ncclAllReduce while the call before is in progress",
         .n = 2},
        {query_after_abort, "ncclCommGetAsyncError of a communicator that was", .n = 1},
        {destroy_early, "ncclCommDestroy with outstanding operations", .n = 2},
        {split_early, "ncclCommSplit with outstanding operations", .n = 2},
        {shrink_early, "ncclCommShrink with outstanding operations", "22809", .n = 2},
        {call_from_two_threads, "ncclAllReduce while another thread is inside", .n = 2},
        {split_in_old_version, "ncclCommSplit is not in NCCL 21706", "21706", .n = 1},
        {query_after_abort, "ncclCommInitRankConfig is not in NCCL 21003", "21003",
         .n = 1},
        /* ncclCommGetAsyncError completes it since 2.26 */
        {queried_elsewhere, "while another thread has begun something", "22605",
         "init_hang=0", .n = 2},
        /* it is in memory of its thread until 2.26 */
        {started_by_a_thread_that_ended, "after the end of the thread", "22605",
         "init_hang=0", .n = 2},
        /* only its thread aborts it until 2.18 */
        {aborted_elsewhere, "ncclCommAbort of what another thread has", "21805",
         "init_hang=0", .n = 2},
        {revoked_in_progress, "ncclCommRevoke of a group in progress", "22809",
         "init_hang=0", .n = 2},
        {not_taken_up, "of another communicator that was not taken up", "22505",
         .n = 2},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *version = rows[i].version, *hang_s = rows[i].hang_s;

        (void)setenv("HVD_FAKE_NCCL", version ? version : "22705", 1);
        (void)setenv("HVD_FAKE_HANG_S", hang_s ? hang_s : "30", 1);
        nccl.faults(rows[i].faults ? rows[i].faults : "");
        run_dies(rows[i].n, rows[i].body, rows[i].words);
    }
}

int main(void)
{
    if (load_nccl())
        return 1;
    return unit_run(NULL, NULL);
}

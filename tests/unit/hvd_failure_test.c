/* SPDX-License-Identifier: Apache-2.0 */
/* What people see when something goes wrong: which sentence, on which rank, how soon.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>

#include "tests/unit/hvd_tree.h"
#include "tests/unit/hvd_world.h"
#include "tests/unit/timed.h"

/* --- a rank dies --- */

enum when { WHEN_IDLE, WHEN_OTHERS_WAIT, WHEN_BUSY };
static enum when when;
static int victim;

RANK_BODY(mortal_body)
{
    static float big[200000];
    float v = 1;
    int r = HVD_OK;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_now("first", &v, 1));
    if (rank == victim && when != WHEN_BUSY) {
        stage_set(rank, 1);
        for (;;)
            (void)pause();
    }
    stage_set(rank, 1);
    if (when == WHEN_IDLE)
        go_wait(1); /* the parent has killed the victim */
    while (r == HVD_OK)
        r = when == WHEN_BUSY ? sum_now("big", big, ARRAY_LEN(big))
                              : sum_now("x", &v, 1);
    end_report(r);
    stage_set(rank, 100);
    CHECK(sum_now("later", &v, 1) == HVD_ABORTED, "later call");
    CHECK(strcmp(hvd_last_error(), shared->r[rank].text) == 0, "later call: %s",
          hvd_last_error());
    CHECK_FAILS(hvd_init(NULL), HVD_ABORTED, "call shutdown() before init()");
    CHECK_OK(hvd_shutdown());
}

/* Did all ranks receive it within a second? */
static bool is_reported_soon(int who, enum when at)
{
    struct proc_world w;
    uint64_t t0;

    victim = who;
    when = at;
    t0 = world_kill(&w, n_ranks, mortal_body, who, (1u << n_ranks) - 1, 1);
    return world_end_killed(&w, who, t0) < NS_PER_S;
}

static void kill_one(int who, enum when at)
{
    ASSERT_IN_TIME(is_reported_soon(who, at));
}

TREE_TEST(a_killed_rank_is_named_when_idle)
{
    for (int r = 0; r < n_ranks; r++)
        kill_one(r, WHEN_IDLE);
}

TREE_TEST(a_killed_rank_is_named_when_others_wait_for_it)
{
    for (int r = 0; r < n_ranks; r++)
        kill_one(r, WHEN_OTHERS_WAIT);
}

TREE_TEST(a_killed_rank_is_named_inside_operations)
{
    for (int i = 0; i < 2; i++)
        for (int r = 0; r < n_ranks; r++)
            kill_one(r, WHEN_BUSY);
}

/* A forked worker of the dead rank holds copies of its sockets; the death must be seen
 * all the same. */
RANK_BODY(forker_body)
{
    float v = 1;
    int r = HVD_OK;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_now("first", &v, 1));
    if (rank == victim) {
        if (fork() == 0) {
            (void)alarm(5);
            stage_set(rank, 1);
            for (;;)
                (void)pause();
        }
        for (;;)
            (void)pause();
    }
    while (r == HVD_OK)
        r = sum_now("x", &v, 1);
    end_report(r);
    (void)hvd_shutdown();
}

static bool is_forker_reported_soon(void)
{
    struct proc_world w;
    uint64_t t0;

    t0 = world_kill(&w, 2, forker_body, victim, 1u << victim, 1);
    world_end(&w, victim);
    assert_int_equal(shared->r[!victim].status, HVD_ABORTED);
    return after_ns(t0, shared->r[!victim].failed_ns) < NS_PER_S;
}

UNIT_TEST(a_surviving_child_does_not_hide_the_death)
{
    for (victim = 0; victim < 2; victim++)
        ASSERT_IN_TIME(is_forker_reported_soon());
}

/* --- silence --- */

TREE_TEST(a_stopped_rank_is_named_after_the_peer_timeout)
{
    (void)setenv("HVD_PEER_TIMEOUT", "4", 1); /* others may pause on a busy machine */
    for (int who = 0; who < 3; who += n_ranks == 3 ? 2 : 1) {
        struct proc_world w;
        char want[128];
        uint64_t t0, t;

        victim = who;
        when = WHEN_OTHERS_WAIT;
        world_start(&w, n_ranks, mortal_body);
        for (int r = 0; r < n_ranks; r++)
            stage_wait(r, 1);
        (void)snprintf(want, sizeof(want),
                       "rank %d (host testhost, pid %d) was lost: silent for 4 s "
                       "(HVD_PEER_TIMEOUT)",
                       who, (int)w.pid[who]);
        t0 = clock_now_ns();
        assert_int_equal(kill(w.pid[who], SIGSTOP), 0);
        for (int r = 0; r < n_ranks; r++) {
            if (r == who)
                continue;
            stage_wait(r, 100);
            assert_string_equal(shared->r[r].text, want);
            t = after_ns(t0, shared->r[r].failed_ns);
            assert_true(t > 2 * NS_PER_S && t < 20 * NS_PER_S);
        }
        assert_int_equal(kill(w.pid[who], SIGKILL), 0);
        world_end(&w, who);
    }
    (void)unsetenv("HVD_PEER_TIMEOUT");
}

/* A rank that computes for longer than the timeout, its background thread alive, is
 * waited for. */
INIT_BODY(late_body)
{
    uint64_t until;
    float v = 1;

    CHECK_OK(sum_now("first", &v, 1));
    until = clock_now_ns() + 6 * NS_PER_S;
    v = 1;
    while (rank == 1 && clock_now_ns() < until)
        (void)sched_yield();
    CHECK_OK(sum_now("x", &v, 1));
    CHECK(v == (float)size, "%g", (double)v);
}

UNIT_TEST(a_late_rank_is_waited_for)
{
    (void)setenv("HVD_PEER_TIMEOUT", "3", 1);
    world_run(2, late_body);
    (void)unsetenv("HVD_PEER_TIMEOUT");
}

/* --- a rank leaves --- */

static bool leave_by_exit;

INIT_BODY(leaver_body)
{
    float v = 1;
    hvd_handle h;

    CHECK_OK(sum_now("first", &v, 1));
    if (rank == victim) {
        go_wait(1); /* the other ranks have submitted */
        if (leave_by_exit)
            exit(0);
        return;
    }
    CHECK_OK(sum_async("x", &v, 1, &h));
    stage_set(rank, 1);
    end_report(wait_release(h));
    CHECK_FAILS(sum_now("later", &v, 1), HVD_PRECONDITION,
                "Horovod has been shut down");
}

TREE_TEST(the_rank_that_leaves_is_named)
{
    for (int i = 0; i < 2 * n_ranks; i++) {
        struct proc_world w;
        char want[160];

        victim = i / 2;
        leave_by_exit = i % 2;
        world_start(&w, n_ranks, leaver_body);
        for (int r = 0; r < n_ranks; r++)
            if (r != victim)
                stage_wait(r, 1);
        (void)snprintf(want, sizeof(want),
                       "Horovod has been shut down: rank %d (host testhost, pid %d) %s",
                       victim, (int)w.pid[victim],
                       leave_by_exit ? "exited" : "called shutdown()");
        go_set(1);
        world_end(&w, -1);
        for (int r = 0; r < n_ranks; r++) {
            if (r == victim)
                continue;
            assert_int_equal(shared->r[r].status, HVD_PRECONDITION);
            assert_string_equal(shared->r[r].text, want);
        }
    }
}

/* --- a program fails --- */

static const struct failing {
    const char *text; /* of hvd_set_exit_cause */
    int code;
    int exits_with; /* -1: hvd_shutdown */
    const char *how;
} failing[] = {
    {"ValueError: bad batch (train.py:40)", 0, 1,
     "ended: ValueError: bad batch (train.py:40)"},
    {"ValueError: bad batch (train.py:40)", 0, -1,
     "ended: ValueError: bad batch (train.py:40)"},
    {NULL, 0, 3, "exited with code 3"},
    {NULL, 7, -1, "exited with code 7"},
    {"no data", 1, -1, "exited with code 1: no data"},
    {"a\tb\033", 0, 0, "ended: a b"},
};
static const struct failing *fails;

INIT_BODY(failing_body)
{
    float v = 1;
    hvd_handle h;

    CHECK_OK(sum_now("first", &v, 1));
    CHECK(hvd_ended_by_other() == 0, "before");
    if (rank == victim) {
        go_wait(1); /* the other ranks have submitted */
        CHECK_OK(hvd_set_exit_cause(fails->text, fails->code));
        CHECK_FAILS(hvd_set_exit_cause("x", 256), HVD_INVALID_ARGUMENT, "0 to 255");
        stage_set(rank, 2);
        if (fails->exits_with >= 0)
            exit(fails->exits_with);
        return;
    }
    CHECK_OK(sum_async("x", &v, 1, &h));
    stage_set(rank, 1);
    end_report(wait_release(h));
    CHECK_FAILS(sum_now("later", &v, 1), HVD_ABORTED, fails->how);
    CHECK(hvd_ended_by_other() == 1, "after");
    CHECK_OK(hvd_shutdown());
    CHECK(hvd_ended_by_other() == 1, "after shutdown");
}

static void fail_one(const struct failing *f)
{
    struct proc_world w;
    char want[160];
    int status;

    fails = f;
    world_start(&w, n_ranks, failing_body);
    for (int r = 0; r < n_ranks; r++)
        if (r != victim)
            stage_wait(r, 1);
    (void)snprintf(want, sizeof(want), "rank %d (host testhost, pid %d) %s", victim,
                   (int)w.pid[victim], f->how);
    go_set(1);
    assert_int_equal(waitpid(w.pid[victim], &status, 0), w.pid[victim]);
    assert_int_equal(status, f->exits_with > 0 ? f->exits_with << 8 : 0);
    world_end(&w, victim);
    for (int r = 0; r < n_ranks; r++) {
        if (r == victim)
            continue;
        assert_int_equal(shared->r[r].status, HVD_ABORTED);
        assert_string_equal(shared->r[r].text, want);
    }
}

TREE_TEST(a_program_that_fails_is_named_with_its_cause)
{
    for (victim = 0; victim < n_ranks; victim += n_ranks == 3 ? 1 : n_ranks - 1)
        for (size_t i = 0; i < ARRAY_LEN(failing); i++)
            fail_one(&failing[i]);
}

/* What was answered before the goodbye is carried out on all ranks. */
INIT_BODY(last_step_body)
{
    float v;
    int i;

    for (i = 0; i < 200; i++) {
        v = 1;
        if (rank == victim && i == 150) {
            CHECK_OK(hvd_set_exit_cause("done with it", 0));
            return;
        }
        if (sum_now("x", &v, 1) != HVD_OK)
            break;
        CHECK(v == (float)size, "%g", (double)v);
    }
    CHECK(i == 150, "%d", i);
    CHECK(strstr(KEPT_TEXT, " ended: done with it"), "%s", KEPT_TEXT);
}

TREE_TEST(all_ranks_complete_the_last_step_before_a_failure)
{
    for (victim = 0; victim < n_ranks; victim++)
        world_run(n_ranks, last_step_body);
}

/* A world that has ended by itself has no culprit elsewhere. */
INIT_TEST(an_orderly_end_is_not_by_another_rank, 2)
{
    float v = 1;

    CHECK_OK(sum_now("first", &v, 1));
    CHECK_OK(hvd_set_exit_cause("taken back", 3));
    CHECK_OK(hvd_set_exit_cause(NULL, 0));
    if (rank == 0)
        return;
    while (sum_now("x", &v, 1) == HVD_OK)
        ;
    CHECK(strstr(KEPT_TEXT, "called shutdown()"), "%s", KEPT_TEXT);
    CHECK(hvd_ended_by_other() == 0, "%s", hvd_last_error());
}

WORLD_TEST(shutdown_ends_own_pending_operations, 2)
{
    float v = 1;
    hvd_handle h;

    CHECK_OK(hvd_init(NULL));
    if (rank == 0) {
        CHECK_OK(sum_async("x", &v, 1, &h));
        CHECK_OK(hvd_shutdown());
        CHECK_FAILS(hvd_poll(h), HVD_PRECONDITION, "Horovod has been shut down");
        CHECK_OK(hvd_release(h));
        stage_set(0, 1);
    }
    futex_wait_until(&shared->r[0].stage, 1, clock_now_ns() + 10 * NS_PER_S);
    CHECK_OK(hvd_shutdown());
}

/* --- fork --- */

WORLD_TEST(a_forked_child_finds_the_runtime_absent, 2)
{
    float v = 1;
    int status = 0;
    pid_t pid;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_now("first", &v, 1));
    pid = fork();
    if (pid == 0) {
        int bad = hvd_is_initialized() != 0 || hvd_rank() != HVD_NOT_INITIALIZED
                  || !strstr(hvd_last_error(), "forked after hvd.init()")
                  || sum_now("x", &v, 1) != HVD_NOT_INITIALIZED
                  || hvd_init(NULL) != HVD_NOT_INITIALIZED
                  || hvd_shutdown() != HVD_NOT_INITIALIZED;

        exit(bad); /* through the destructor, which must leave the parent's world alone
                    */
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child: 0x%x", status);
    v = (float)rank;
    CHECK_OK(sum_now("second", &v, 1));
    CHECK(v == (float)(size * (size - 1) / 2), "%g", (double)v);
    CHECK_OK(hvd_shutdown());
}

static int count_sockets(void)
{
    char path[32];
    struct stat st;
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        /* by path: TSan sees a race if another thread's descriptor is used */
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        n += stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
    }
    return n;
}

static void *init_in_thread(void *arg)
{
    *(int *)arg = hvd_init(NULL);
    return NULL;
}

WORLD_TEST(a_child_that_is_forked_during_init_is_refused_at_once, 2)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    int rc = -1, status = 0, n = count_sockets();
    pthread_t thread;
    pid_t pid;

    if (rank == 1) {
        futex_wait_until(&shared->r[0].stage, 1, deadline_ns);
        CHECK_OK(hvd_init(NULL));
        CHECK_OK(hvd_shutdown());
        return;
    }
    CHECK(pthread_create(&thread, NULL, init_in_thread, &rc) == 0, "thread");
    while (count_sockets() == n && clock_now_ns() < deadline_ns)
        (void)nanosleep(&pause, NULL); /* until it connects */
    pid = fork();
    if (pid == 0) {
        (void)alarm(30);
        /* not exit: what the thread that is not here has allocated looks leaked */
        _exit(hvd_init(NULL) != HVD_NOT_INITIALIZED
              || !strstr(hvd_last_error(), "forked after hvd.init()"));
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0, "child: 0x%x", status);
    stage_set(0, 1);
    CHECK(pthread_join(thread, NULL) == 0 && rc == HVD_OK, "init: %d", rc);
    CHECK_OK(hvd_shutdown());
}

/* --- mistakes --- */

/* More of them: tests/python/ranks/capi_members.py. */
INIT_TEST(bad_arguments_are_refused_with_a_sentence, 1)
{
    float v = 1;
    int64_t n = 1, bad = -1;
    const struct hvd_tensor good = tensor_1d("x", HVD_FLOAT32, &v, &v, &n);
    struct hvd_tensor t[] = {good, good, good, good};
    hvd_handle h;

    t[0].name = "";
    t[1].shape = &bad;
    t[2].data = NULL;
    t[3].device = 0;
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        CHECK(hvd_allreduce_async(&t[i], HVD_SUM, 1, 1, 0, &h) == HVD_INVALID_ARGUMENT
                  && (i != 1
                      || strstr(hvd_last_error(),
                                "tensor \"x\": shape: dimension 0 is -1")),
              "%zu: %s", i, hvd_last_error());
    CHECK(hvd_allreduce_async(NULL, HVD_SUM, 1, 1, 0, &h) == HVD_INVALID_ARGUMENT,
          "NULL");
    CHECK(hvd_allreduce_async(&good, HVD_SUM, 1, 1, 0, NULL) == HVD_INVALID_ARGUMENT,
          "handle");
    CHECK(hvd_wait(0, 0) == HVD_INVALID_ARGUMENT, "handle 0");
}

WORLD_TEST(a_rank_that_never_comes_is_named, 3)
{
    struct hvd_config c = {.size_bytes = sizeof(c)};

    if (rank == 1)
        return;
    c.start_timeout_ms =
        rank == 0 ? 5000 : 20000; /* rank 0 gives up, and rank 2 receives it */
    CHECK_FAILS(hvd_init(&c), HVD_TIMEOUT, "1 of 3");
    CHECK(hvd_is_initialized() == 0, "initialized");
}

UNIT_MAIN(NULL, NULL)

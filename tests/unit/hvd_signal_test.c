/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that die by a signal: the sentence of all other ranks, and that the death stays
 * what it would have been. */
#include "tests/unit/hvd_tree.h"
#include "tests/unit/hvd_world.h"

#include <signal.h>
#include <sys/resource.h>

static int victim, number;
static enum how {
    BY_STRANGER, /* in hvd_wait */
    BY_PARENT,   /* who stops jobs */
    BY_ITSELF,
    BY_FAULT,
    IN_CALLBACK, /* a fault in the seat */
} how;

static volatile int *volatile nowhere;

static void die_by_stranger(void)
{
    pid_t pid = getpid();

    if (fork() != 0)
        return;
    if (fork() == 0) /* no ancestor */
        (void)kill(pid, number);
    _exit(0);
}

static void callback_faults(void *arg, int status, const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    *nowhere = 0;
}

static void rank_die(void)
{
    const struct rlimit no_core = {0, 0};
    int64_t n = 1;
    float v = 1;
    struct hvd_tensor t = tensor_1d("y", HVD_FLOAT32, &v, &v, &n);
    hvd_handle h;

    (void)setrlimit(RLIMIT_CORE, &no_core);
    switch (how) {
    case BY_STRANGER:
        die_by_stranger();
        break;
    case BY_PARENT:
        break;
    case BY_ITSELF:
        (void)raise(number);
        _exit(98); /* the default action would not have returned */
    case BY_FAULT:
        *nowhere = 0;
        _exit(98);
    case IN_CALLBACK:
        t.done = callback_faults;
        CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
        (void)hvd_wait(h, -1);
        _exit(98);
    }
    stage_set(own_rank(), 1);
    (void)sum_now("alone", &v, 1); /* no other rank submits it */
    for (;;)
        (void)pause();
}

RANK_BODY(signal_body)
{
    float v = 1;
    int r = HVD_OK;

    (void)signal(SIGSEGV, SIG_DFL); /* cmocka has handlers of its own */
    (void)signal(SIGABRT, SIG_DFL);
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_now("first", &v, 1));
    if (rank == victim)
        rank_die();
    while (r == HVD_OK)
        r = sum_now(how == IN_CALLBACK ? "y" : "x", &v, 1);
    end_report(r);
    CHECK_OK(hvd_shutdown());
}

static void die_once(int who, enum how by, int sig, const char *words)
{
    struct proc_world w;
    char want[160];
    int status;

    victim = who;
    how = by;
    (void)signal(sig, SIG_DFL); /* a job in the background may ignore SIGINT */
    number = sig;
    world_start(&w, n_ranks, signal_body);
    if (by == BY_PARENT) {
        stage_wait(who, 1);
        assert_int_equal(kill(w.pid[who], sig), 0);
    }
    assert_int_equal(waitpid(w.pid[who], &status, 0), w.pid[who]);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), sig);
    world_end(&w, who);
    (void)snprintf(want, sizeof(want), "rank %d (host testhost, pid %d) %s", who,
                   (int)w.pid[who], words);
    for (int r = 0; r < n_ranks; r++) {
        if (r == who)
            continue;
        assert_int_equal(shared->r[r].status, HVD_ABORTED);
        assert_string_equal(shared->r[r].text, want);
    }
}

#ifndef __SANITIZE_THREAD__ /* faults belong to the sanitizers */
#ifndef __SANITIZE_ADDRESS__
TREE_TEST(a_fault_is_named)
{
    for (int r = 0; r < n_ranks; r += 2)
        die_once(r, BY_FAULT, SIGSEGV, "ended by SIGSEGV");
    die_once(1, BY_ITSELF, SIGABRT, "ended by SIGABRT");
}

/* The goodbye needs the seat, and the death does not wait for it. */
UNIT_TEST(a_fault_inside_a_callback_is_a_loss)
{
    n_ranks = 3;
    for (int r = 0; r < n_ranks; r++)
        die_once(r, IN_CALLBACK, SIGSEGV, "was lost: connection closed");
}
#endif
#endif

TREE_TEST(a_signal_of_a_stranger_is_named)
{
    for (int r = 0; r < n_ranks; r++)
        die_once(r, BY_STRANGER, SIGTERM, "ended by SIGTERM");
    die_once(1, BY_STRANGER, SIGINT, "ended by SIGINT");
    die_once(1, BY_ITSELF, SIGTERM, "ended by SIGTERM");
}

/* As launchers stop jobs: no peer reports a lost connection. */
TREE_TEST(a_rank_that_its_launcher_stops_is_named)
{
    for (int r = 0; r < n_ranks; r++)
        die_once(r, BY_PARENT, SIGTERM, "was stopped by its launcher: SIGTERM");
    die_once(1, BY_PARENT, SIGINT, "was stopped by its launcher: SIGINT");
}

/* Ranks that are stopped after the victim. */
RANK_BODY(stopped_body)
{
    float v = 1;

    CHECK_OK(hvd_init(NULL));
    CHECK_OK(sum_now("first", &v, 1));
    if (rank == victim)
        rank_die();
    while (sum_now("x", &v, 1) == HVD_OK)
        ;
    stage_set(rank, 1);
    for (;;)
        (void)pause();
}

static void stop_after(enum how by, int sig, int want_status)
{
    struct proc_world w;
    int status;

    victim = 1;
    how = by;
    number = sig;
    world_start(&w, 3, stopped_body);
    if (by == BY_PARENT) {
        stage_wait(1, 1);
        assert_int_equal(kill(w.pid[1], sig), 0);
    }
    for (int r = 0; r < 3; r += 2) {
        stage_wait(r, 1);
        assert_int_equal(kill(w.pid[r], SIGTERM), 0);
        assert_int_equal(waitpid(w.pid[r], &status, 0), w.pid[r]);
        assert_int_equal(status, want_status);
    }
    assert_int_equal(waitpid(w.pid[1], &status, 0), w.pid[1]);
    rdv_server_stop(w.server);
    (void)unlink(w.token_file);
}

/* As if it had ended by itself. */
UNIT_TEST(a_stopped_consequence_exits_with_its_code)
{
    stop_after(BY_ITSELF, SIGKILL, HVD_EXIT_OTHER_RANK << 8);
}

/* The launcher stops all of them, one after the other. */
UNIT_TEST(stopped_ranks_all_die_by_the_signal)
{
    stop_after(BY_PARENT, SIGTERM, SIGTERM);
}

/* --- programs with handlers --- */

static volatile sig_atomic_t n_handled;

static void program_handles(int sig)
{
    (void)sig;
    n_handled++;
}

WORLD_TEST(handlers_of_the_program_stay, 2)
{
    const struct sigaction mine = {.sa_handler = program_handles};
    struct sigaction now;
    float v = 1;

    CHECK(sigaction(SIGTERM, &mine, NULL) == 0, "before init");
    CHECK_OK(hvd_init(NULL));
    CHECK(sigaction(SIGINT, &mine, NULL) == 0, "after init");
    CHECK(raise(SIGTERM) == 0 && raise(SIGINT) == 0 && n_handled == 2, "%d",
          (int)n_handled);
    CHECK_OK(sum_now("x", &v, 1));
    CHECK(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == program_handles,
          "replaced");
    CHECK_OK(hvd_shutdown());
}

#ifndef __SANITIZE_THREAD__ /* it may defer a signal of a forked child for ever */
WORLD_TEST(a_forked_child_dies_as_without_us, 2)
{
    int status = 0;
    float v = 1;
    pid_t pid;

    CHECK_OK(hvd_init(NULL));
    pid = fork();
    if (pid == 0) {
        for (uint64_t end = clock_now_ns() + 20 * NS_PER_S; clock_now_ns() < end;)
            (void)usleep(1000);
        _exit(98);
    }
    CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &status, 0) == pid
              && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM,
          "child: 0x%x", status);
    CHECK_OK(sum_now("x", &v, 1));
    CHECK_OK(hvd_shutdown());
}
#endif

WORLD_TEST(a_world_of_one_rank_handles_no_signal, 1)
{
    struct sigaction now;

    CHECK_OK(hvd_init(NULL));
    CHECK(sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL, "handled");
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* program.c: what a program that srun starts gets from it, and how it ends. */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "spank_plugin/program.h"

#define LONG_NS (60 * NS_PER_S)

static char sh[] = "/bin/sh", c[] = "-c";

/* Until it has closed its output. */
static void read_all(struct program *p, struct strbuf *out)
{
    uint64_t deadline_ns = clock_now_ns() + LONG_NS;

    while (program_read(p, out) && clock_now_ns() < deadline_ns)
        (void)fd_wait(p->out_fd, POLLIN, deadline_ns);
}

static int await_end(struct program *p)
{
    uint64_t deadline_ns = clock_now_ns() + LONG_NS;
    int status = -1;

    while (!program_has_ended(p, &status) && clock_now_ns() < deadline_ns)
        (void)poll(NULL, 0, 1);
    return status;
}

UNIT_TEST(variables_of_a_step_do_not_reach_a_program)
{
    static char v[][40] = {"SLURM_CONF=/etc/x", "SLURM_JOB_ID=1",   "PATH=/bin",
                           "SQUEUE_USERS=me",   "SLURM_HVD_STEP=x", "HOME=/h"};
    char *env[ARRAY_LEN(v) + 1] = {v[0], v[1], v[2], v[3], v[4], v[5], NULL};
    AUTOFREE char **ret = program_environment(env);

    assert_non_null(ret);
    assert_string_equal(ret[0], "SLURM_CONF=/etc/x");
    assert_string_equal(ret[1], "PATH=/bin");
    assert_string_equal(ret[2], "HOME=/h");
    assert_null(ret[3]);
}

/* Not srun's descriptors, and not its process group. */
UNIT_TEST(a_program_has_only_its_output)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    char script[] = "echo $A; ls /proc/self/fd | wc -l";
    char a[] = "A=b", path[] = "PATH=/bin:/usr/bin";
    char *argv[] = {sh, c, script, NULL}, *env[] = {a, path, NULL};
    struct program p = PROGRAM_INIT;
    int fd = dup(1);

    strbuf_init(&out, 4096);
    assert_int_equal(program_start(&p, argv, env, NULL), 0);
    assert_int_equal(getpgid(p.pid) == getpgrp(), 0);
    read_all(&p, &out);
    assert_string_equal(strbuf_str(&out), "b\n4\n");
    assert_int_equal(await_end(&p), 0);
    fd_close(&fd);
    program_stop(&p, 0);
}

/* A thread of srun blocks all. Not by a shell, which would unblock them. */
UNIT_TEST(a_program_blocks_no_signal)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    char grep[] = "/bin/grep", word[] = "SigBlk", file[] = "/proc/self/status";
    char *argv[] = {grep, word, file, NULL}, *env[] = {NULL};
    struct program p = PROGRAM_INIT;
    sigset_t all, old;

    strbuf_init(&out, 4096);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &old);
    assert_int_equal(program_start(&p, argv, env, NULL), 0);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    read_all(&p, &out);
    assert_string_equal(strbuf_str(&out), "SigBlk:\t0000000000000000\n");
    assert_int_equal(await_end(&p), 0);
    program_stop(&p, 0);
}

UNIT_TEST(a_program_that_ignores_sigterm_is_killed)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    char script[] = "trap '' TERM; echo up; while :; do sleep 1000; done";
    char path[] = "PATH=/bin:/usr/bin";
    char *argv[] = {sh, c, script, NULL}, *env[] = {path, NULL};
    struct program p = PROGRAM_INIT;
    pid_t pid;

    strbuf_init(&out, 4096);
    assert_int_equal(program_start(&p, argv, env, NULL), 0);
    pid = p.pid;
    while (out.n == 0 && fd_wait(p.out_fd, POLLIN, clock_now_ns() + LONG_NS) > 0)
        (void)program_read(&p, &out);
    program_stop(&p, 200);
    assert_int_equal(p.out_fd, -1);
    (void)await_end(&p);
    assert_int_equal(kill(pid, 0), -1);
}

UNIT_TEST(a_program_that_is_not_there_ends_with_an_error)
{
    char missing[] = "/no/such/program";
    char *argv[] = {missing, NULL}, *env[] = {NULL};
    struct program p = PROGRAM_INIT;

    assert_int_equal(program_start(&p, argv, env, NULL), 0);
    assert_int_not_equal(await_end(&p), 0);
    program_stop(&p, 0);
}

UNIT_TEST(a_program_runs_until_it_closes_its_output)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    char script[] = "echo a; sleep 0.1; echo b; exec >/dev/null; sleep 1000";
    char path[] = "PATH=/bin:/usr/bin";
    char *argv[] = {sh, c, script, NULL}, *env[] = {path, NULL};

    strbuf_init(&out, 4096);
    assert_int_equal(program_run(argv, env, 100000, &out, NULL), 0);
    assert_string_equal(strbuf_str(&out), "a\nb\n");
}

UNIT_TEST(a_program_runs_no_longer_than_its_time)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    char script[] = "echo a; sleep 1000", path[] = "PATH=/bin:/usr/bin";
    char *argv[] = {sh, c, script, NULL}, *env[] = {path, NULL};
    uint64_t begin_ns = clock_now_ns();

    strbuf_init(&out, 4096);
    assert_int_equal(program_run(argv, env, 50, &out, NULL), 0);
    assert_true(clock_now_ns() - begin_ns < LONG_NS);
}

UNIT_MAIN(NULL, NULL)

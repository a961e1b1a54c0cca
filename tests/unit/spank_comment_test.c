/* SPDX-License-Identifier: Apache-2.0 */
/* comment.c: the thread that writes the line in the job's comment, with scripts in place of
 * squeue, scontrol and hvd-status. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "spank_plugin/comment.h"
#include "tests/unit/spank_end_node.h"

static char dir[] = "/tmp/spank-comment-XXXXXX";

static void write_file(const char *name, const char *text)
{
    char path[128];
    struct err err = ERR_INIT;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (fd_write_file(path, text, strlen(text), 0755, &err))
        fail_msg("%s", err.text);
}

static char *read_text(const char *name)
{
    char path[128], *text = NULL;
    size_t n;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return fd_read_file(path, 65536, &text, &n, NULL) == 0 ? text : mem_strdup("");
}

#define ASKED "-h --states=all -j 12 -o %A|%i|%T|%r|%k\n"

static void expect_text(const char *name, const char *want)
{
    AUTOFREE char *text = read_text(name);

    assert_string_equal(text, want);
}

/* Once it is as long as that. */
static void await_text(const char *name, const char *want)
{
    uint64_t deadline_ns = clock_now_ns() + LONG_NS;

    for (;;) {
        AUTOFREE char *text = read_text(name);

        if (strlen(text) >= strlen(want) || clock_now_ns() >= deadline_ns)
            break;
        (void)poll(NULL, 0, 1);
    }
    expect_text(name, want);
}

/* The process whose number the file has, if it has come so far; on a slow machine
 * program_stop may leave it to its parent, which is this process. */
static void await_end_of(const char *name)
{
    uint64_t deadline_ns = clock_now_ns() + LONG_NS;
    AUTOFREE char *text = read_text(name);
    pid_t pid = (pid_t)atoi(text);

    while (pid > 0 && kill(pid, 0) == 0 && waitpid(pid, NULL, WNOHANG) != pid) {
        assert_true(clock_now_ns() < deadline_ns);
        (void)poll(NULL, 0, 1);
    }
}

static void remove_file(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    (void)unlink(path);
}

static const char *const files[] = {"squeue",  "scontrol", "bin/hvd-status", "row",
                                    "written", "asked",    "watched",        "pid"};

static int make_dir(void **state)
{
    char bin[64];

    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(bin, sizeof(bin), "%s/bin", dir);
    return mkdir(bin, 0700);
}

static int drop_dir(void **state)
{
    char bin[64];

    (void)state;
    (void)snprintf(bin, sizeof(bin), "%s/bin", dir);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        remove_file(files[i]);
    return rmdir(bin) || rmdir(dir);
}

/* A script of sh in which $D is the directory. */
static void write_script(const char *name, const char *lines)
{
    char text[1024];

    (void)snprintf(text, sizeof(text), "#!/bin/sh\nD=%s\n%s\n", dir, lines);
    write_file(name, text);
}

/* All three note their arguments: squeue in the file asked, and it prints the file row;
 * scontrol in the file written; hvd-status in the file watched. */
static struct comment *begin_at(enum comment_mode mode,
                                const char *comment,
                                uint64_t start_ns,
                                const char *runtime_dir,
                                uint16_t *ret_port)
{
    struct comment_config c = {.mode = mode,
                               .token = &token,
                               .job_id = "slurm.12.3",
                               .job = 12,
                               .step = 3,
                               .n_tasks = 2,
                               .start_ns = start_ns,
                               .dir = runtime_dir,
                               .slurm_dir = dir};
    struct comment *ret = NULL;
    struct err err = ERR_INIT;
    char text[512];
    int fd = -1;

    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(files[i], "squeue") != 0 && strcmp(files[i], "bin/hvd-status") != 0)
            remove_file(files[i]);
    (void)snprintf(text, sizeof(text), "12|12|RUNNING|None|%s\n", comment);
    write_file("row", text);
    write_script("scontrol", "echo \"$@\" >>$D/written");
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, ret_port, &err), 0);
    assert_int_equal(comment_start(&fd, &c, &ret, &err), 0);
    assert_int_equal(fd, -1);
    return ret;
}

static struct comment *
begin(enum comment_mode mode, const char *comment, uint16_t *ret_port)
{
    write_script("squeue", "echo \"$@\" >>$D/asked; exec cat $D/row");
    write_script("bin/hvd-status", "echo \"$@\" >>$D/watched");
    return begin_at(mode, comment, clock_now_ns(), dir, ret_port);
}

UNIT_TEST(a_node_waits_until_its_failure_is_written)
{
    static const struct {
        const char *comment, *want;
    } rows[] = {{"(null)", "update JobId=12 Comment=hvd 12.3: Failed: rank 1 on node1 "
                           "exited with code 7\n"},
                {"mine", "update JobId=12 Comment=mine | hvd 12.3: Failed: rank 1 on "
                         "node1 exited with code 7\n"},
                {"several\nlines", ""}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint16_t port;
        struct comment *c = begin(COMMENT_FAILURE, rows[i].comment, &port);
        struct node n[2];

        node_start(&n[0], port, 1, 7);
        assert_int_equal(node_join(&n[0]), 0);
        expect_text("written", rows[i].want);
        node_start(&n[1], port, 0, 9); /* Slurm kills the other tasks */
        assert_int_equal(node_join(&n[1]), -ECONNREFUSED);
        comment_end(c);
        expect_text("written", rows[i].want);
        expect_text("asked", ASKED); /* once, whatever it was */
    }
}

/* srun was started for job 12, which is the second component of job 11. */
UNIT_TEST(the_comment_of_a_heterogeneous_job_is_at_its_first_component)
{
    uint16_t port;
    struct comment *c;
    struct node n;

    write_script("squeue", "case $* in\n"
                           "*'-j 12 '*) echo '12|11+1|RUNNING|None|other' ;;\n"
                           "*) echo '12|11+1|RUNNING|None|other'\n"
                           "   echo '11|11+0|RUNNING|None|mine' ;;\n"
                           "esac");
    c = begin_at(COMMENT_FAILURE, "(null)", clock_now_ns(), dir, &port);
    node_start(&n, port, 1, 7);
    assert_int_equal(node_join(&n), 0);
    expect_text("written",
                "update JobId=11+0 Comment=mine | hvd 11.3: Failed: rank 1 on "
                "node1 exited with code 7\n");
    comment_end(c);
}

UNIT_TEST(a_step_that_succeeds_writes_nothing)
{
    static const enum comment_mode modes[] = {COMMENT_FAILURE, COMMENT_PROGRESS};

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        uint64_t took_ns = UINT64_MAX;

        /* at once; again on a machine that is too slow to see it */
        for (int tries = 0; tries < 5 && took_ns >= COMMENT_END_S * NS_PER_S; tries++) {
            uint16_t port;
            struct comment *c = begin(modes[i], "mine", &port);

            took_ns = clock_now_ns();
            comment_end(c);
            took_ns = clock_now_ns() - took_ns;
            expect_text("written", "");
        }
        assert_true(took_ns < COMMENT_END_S * NS_PER_S);
    }
    comment_end(NULL);
}

UNIT_TEST(the_first_sentence_of_the_gate_is_written)
{
    static const char want[] =
        "update JobId=12 Comment=hvd 12.3: Failed: node2: no token\n";
    uint16_t port;
    struct comment *c = begin(COMMENT_FAILURE, "(null)", &port);

    comment_take_sentence(c, "node2: no token");
    comment_take_sentence(c, "node3: no token");
    await_text("written", want);
    comment_end(c);
    expect_text("written", want);
    expect_text("asked", ASKED);
}

/* slurmctld does not answer. */
UNIT_TEST(neither_a_node_nor_srun_waits_for_a_scontrol_that_hangs)
{
    uint16_t port;
    struct comment *c = begin(COMMENT_FAILURE, "(null)", &port);
    struct node n;
    uint64_t began_ns = clock_now_ns();
    clock_t cpu = clock();

    write_script("scontrol", "echo $$ >$D/pid; exec sleep 1000");
    n = (struct node){.port = port,
                      .f = {.rank = 1, .host = "node1", .exit_code = 7},
                      .token = token,
                      .job_id = "slurm.12.3",
                      .wait_ns = 2 * NS_PER_S};
    assert_int_equal(pthread_create(&n.thread, NULL, node_main, &n), 0);
    assert_int_equal(node_join(&n), -ETIMEDOUT);
    comment_end(c);
    assert_true(clock_now_ns() - began_ns < LONG_NS);
    assert_true(clock() - cpu < CLOCKS_PER_SEC); /* the thread sleeps */
    await_end_of("pid");
}

/* squeue fails, prints nothing, and prints another job. */
UNIT_TEST(a_node_is_let_go_after_three_attempts)
{
    uint16_t port;
    struct comment *c;
    struct node n;
    uint64_t began_ns = clock_now_ns();

    write_script("squeue", "echo \"$@\" >>$D/asked\n"
                           "case $(wc -l <$D/asked) in\n"
                           "1) cat $D/row; exit 1 ;;\n"
                           "2) exit 0 ;;\n"
                           "*) echo '13|13|RUNNING|None|x' ;;\n"
                           "esac");
    c = begin_at(COMMENT_FAILURE, "(null)", clock_now_ns(), dir, &port);
    node_start(&n, port, 1, 7);
    assert_int_equal(node_join(&n), 0);
    assert_true(clock_now_ns() - began_ns > 3 * NS_PER_S); /* not all at once */
    expect_text("asked", ASKED ASKED ASKED);
    comment_end(c);
    expect_text("asked", ASKED ASKED ASKED);
    expect_text("written", "");
}

/* One that failed because of another one, which is not reported. */
UNIT_TEST(a_consequence_without_a_cause_is_written)
{
    uint16_t port;
    struct comment *c = begin(COMMENT_FAILURE, "(null)", &port);
    struct node n;

    node_start(&n, port, 1, FAILURE_OTHER_RANK);
    assert_int_equal(node_join(&n), 0);
    expect_text("written", "update JobId=12 Comment=hvd 12.3: Failed: rank 1 on node1 "
                           "exited with code 6\n");
    comment_end(c);
}

static void count_by_number(void *arg, uint32_t *ret_ready, uint32_t *ret_joined)
{
    const uint32_t *n = arg;

    *ret_ready = n[0];
    *ret_joined = n[1];
}

/* A step that is old enough for a first line. The first squeue waits for the file pid, runs
 * `until` and fails: so the next attempt writes what is known then. */
static struct comment *
begin_old(const char *until, const char *status, const char *runtime_dir)
{
    char text[256];
    uint16_t port;

    (void)snprintf(text, sizeof(text),
                   "[ -s $D/asked ] && exec cat $D/row\n"
                   "until [ -s $D/pid ]; do sleep 0.01; done\n"
                   "%s\necho \"$@\" >$D/asked\nexit 1",
                   until);
    write_script("squeue", text);
    write_script("bin/hvd-status", status);
    return begin_at(COMMENT_PROGRESS, "(null)", clock_now_ns() - LONG_NS, runtime_dir,
                    &port);
}

UNIT_TEST(hvd_status_is_not_started_before_all_ranks_have_met)
{
    static const char want[] =
        "update JobId=12 Comment=hvd 12.3: Meeting: 1 of 2 tasks are ready\n";
    uint32_t n[] = {1, 0};
    struct comment *c = begin_old(":", "echo \"$@\" >>$D/watched", dir);

    comment_count_by(c, count_by_number, n);
    write_file("pid", "1");
    await_text("written", want);
    comment_count_by(c, NULL, NULL);
    comment_end(c);
    expect_text("watched", "");
}

/* It is part of the runtime or in PATH, continues or ends; its lines come in parts. */
UNIT_TEST(the_last_whole_line_of_hvd_status_is_written_while_it_runs)
{
    static const char status[] = "echo \"$@\" >>$D/watched\n"
                                 "printf 'Training: a\\nStal'\n"
                                 "sleep 0.1\n"
                                 "printf 'led: b\\nTrai'\n"
                                 "echo $$ >$D/pid\n";
    static const struct {
        const char *then, *until, *want;
        bool is_in_path;
    } rows[] = {{"exec sleep 1000", ":", "Stalled: b", false},
                {"exit 0", "while kill -0 $(cat $D/pid); do sleep 0.01; done",
                 "Training: 2 ranks", true}};
    AUTOFREE char *path = mem_strdup(getenv("PATH"));
    uint32_t n[] = {2, 2};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *head = "update JobId=12 Comment=hvd 12.3: ";
        char text[512], script[256];
        struct comment *c;

        (void)snprintf(text, sizeof(text), "/nonexistent:%s/bin:%s", dir, path);
        (void)setenv("PATH", rows[i].is_in_path ? text : path, 1);
        (void)snprintf(script, sizeof(script), "%s%s", status, rows[i].then);
        c = begin_old(rows[i].until, script, rows[i].is_in_path ? "/nonexistent" : dir);
        comment_count_by(c, count_by_number, n);
        (void)snprintf(text, sizeof(text), "%s%s\n", head, rows[i].want);
        await_text("written", text);
        expect_text("watched", "--watch --line 12.3\n");
        (void)snprintf(text, sizeof(text), "%s%s\n%sEnded: 2 ranks\n", head,
                       rows[i].want, head);
        comment_end(c);
        expect_text("written", text);
        await_end_of("pid");
    }
    (void)setenv("PATH", path, 1);
}

UNIT_MAIN(make_dir, drop_dir)

/* SPDX-License-Identifier: Apache-2.0 */
/* comment.c: the thread that writes the line in the job's comment, with scripts in place of
 * squeue and scontrol. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static void remove_file(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    (void)unlink(path);
}

static const char *const files[] = {"squeue", "scontrol", "row", "written", "pid"};

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        remove_file(files[i]);
    return rmdir(dir);
}

/* squeue prints the file row; scontrol notes its arguments in the file written. */
static struct comment *
begin(enum comment_mode mode, const char *comment, uint16_t *ret_port)
{
    struct comment_config c = {.mode = mode,
                               .token = &token,
                               .job_id = "slurm.12.3",
                               .job = 12,
                               .step = 3,
                               .n_tasks = 2,
                               .dir = dir,
                               .slurm_dir = dir};
    struct comment *ret = NULL;
    struct err err = ERR_INIT;
    char text[512];
    int fd = -1;

    remove_file("written");
    (void)snprintf(text, sizeof(text), "12|12|RUNNING|None|%s\n", comment);
    write_file("row", text);
    (void)snprintf(text, sizeof(text), "#!/bin/sh\nexec cat %s/row\n", dir);
    write_file("squeue", text);
    (void)snprintf(text, sizeof(text), "#!/bin/sh\necho \"$@\" >>%s/written\n", dir);
    write_file("scontrol", text);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, ret_port, &err), 0);
    assert_int_equal(comment_start(&fd, &c, &ret, &err), 0);
    assert_int_equal(fd, -1);
    return ret;
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
    }
}

UNIT_TEST(a_step_that_succeeds_writes_nothing)
{
    static const enum comment_mode modes[] = {COMMENT_FAILURE, COMMENT_PROGRESS};

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        uint16_t port;

        comment_end(begin(modes[i], "mine", &port));
        expect_text("written", "");
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
}

/* slurmctld does not answer. */
UNIT_TEST(neither_a_node_nor_srun_waits_for_a_scontrol_that_hangs)
{
    uint16_t port;
    struct comment *c = begin(COMMENT_FAILURE, "(null)", &port);
    struct node n;
    char text[256];
    uint64_t began_ns = clock_now_ns();

    (void)snprintf(text, sizeof(text), "#!/bin/sh\necho $$ >%s/pid\nexec sleep 1000\n",
                   dir);
    write_file("scontrol", text);
    n = (struct node){.port = port,
                      .f = {.rank = 1, .host = "node1", .exit_code = 7},
                      .token = token,
                      .wait_ns = 2 * NS_PER_S};
    assert_int_equal(pthread_create(&n.thread, NULL, node_main, &n), 0);
    assert_int_equal(node_join(&n), -ETIMEDOUT);
    comment_end(c);
    assert_true(clock_now_ns() - began_ns < LONG_NS);
    AUTOFREE char *pid = read_text("pid");
    if (*pid) /* a slow machine may not have come so far */
        assert_int_equal(kill((pid_t)atoi(pid), 0), -1);
}

UNIT_MAIN(make_dir, drop_dir)

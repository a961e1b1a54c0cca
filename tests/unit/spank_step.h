/* SPDX-License-Identifier: Apache-2.0 */
/* A step on a node, with its gate, as tests/fakes/spank_fake.c plays it. */
#ifndef TESTS_UNIT_SPANK_STEP_H
#define TESTS_UNIT_SPANK_STEP_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "runtime/base/fd.h"
#include "spank_plugin/gate.h"
#include "spank_plugin/ticket.h"
#include "tests/fakes/spank_fake.h"
#include "tests/unit/unit.h"

static char run_dir[64], run_dir_arg[80];
static char *args[1] = {run_dir_arg};

static inline int make_run_dir(void **state)
{
    (void)state;
    (void)snprintf(run_dir, sizeof(run_dir), "/tmp/spank-test-XXXXXX");
    if (!mkdtemp(run_dir))
        return -1;
    (void)snprintf(run_dir_arg, sizeof(run_dir_arg), "run_dir=%s", run_dir);
    return 0;
}
static inline int drop_run_dir(void **state)
{
    (void)state;
    fake_reset(S_CTX_ERROR);
    return rmdir(
        run_dir); /* fails, and so does the group, when a step left something */
}

static inline int plugin_init(int context)
{
    fake_reset(context);
    fake.job_id = 42;
    fake.step_id = 0;
    fake.n_tasks = 2;
    (void)unsetenv(TICKET_ENV);
    (void)unsetenv(KEYS_ENV);
    return slurm_spank_init(&fake, 1, args);
}

/* Calls back in a child: the exit code with which the plugin ends the process, 0 if it
 * does not. */
static inline int child_run_callback(int (*fn)(spank_t, int, char **), char **argv)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)fn(&fake, 1, argv);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* After plugin_init on a node: with that value of --hvd the step is an ordinary one. */
static inline void expect_ordinary_step(const char *option)
{
    assert_int_equal(fake_option(option, 1), 0);
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_user_init(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
    assert_null(fake.env[0]);
    assert_int_equal(fake_message_count(), 0);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

static const char *node_keys = ""; /* what srun sends */

static inline void start_node(const char *cred)
{
    assert_int_equal(plugin_init(S_CTX_REMOTE), 0);
    fake.node_id = 1;
    fake_env("SLURM_STEP_NODELIST", "node[1-2]");
    fake_env("SLURM_STEP_TASKS_PER_NODE", "1(x2)");
    fake_env("SLURM_JOB_ID", "42");
    fake_env("SLURM_STEP_ID", "0");
    if (cred)
        fake_env(TICKET_ENV, cred);
    fake_env(KEYS_ENV, node_keys);
    assert_int_equal(fake_option("(null)", 1), 0);
    assert_int_equal(fake_option("(null)", 1), 0); /* twice, as Slurm up to 23.11 */
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_user_init(&fake, 1, args), 0);
    fake_env("SLURM_STEP_NUM_TASKS", "2");
    fake_env("SLURM_PROCID", "1");
    fake_env("SLURM_NODEID", "1");
    fake_env("SLURM_LOCALID", "0");
    fake_env("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1");
}

/* The gate of the two tasks: srun's end is served here, task 0 comes from a thread. */
static struct {
    struct ticket ticket;
    struct gate *gate;
    pthread_t task_0;
    bool is_open; /* to task 0 */
    int rc;
    char said[1024];
} srun_gate;

static inline void note_sentence(void *arg, const char *sentence)
{
    (void)arg;
    size_t n = strlen(srun_gate.said);
    (void)snprintf(srun_gate.said + n, sizeof(srun_gate.said) - n, "%s\n", sentence);
}

static inline void *task_0_main(void *arg)
{
    struct contract c;
    struct err err = ERR_INIT;
    contract_init(&c);
    c.place.size = 2;
    (void)snprintf(c.job_id, sizeof(c.job_id), "slurm.42.0");
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "127.0.0.1");
    srun_gate.rc =
        gate_pass(&srun_gate.ticket, &c, NULL, 60000, &srun_gate.is_open, &err);
    return arg;
}

static inline char *sealed_ticket(void)
{
    static char cred[TICKET_MAX_BYTES + 64];
    struct ticket *t = &srun_gate.ticket;
    char text[TICKET_MAX_BYTES];
    t->port = 4711;
    t->generation = 7;
    if (!t->gate_port)
        t->gate_port = 4712;
    memset(t->token.key, 0xab, sizeof(t->token.key));
    ticket_render(t, text);
    (void)snprintf(cred, sizeof(cred), "FAKE:%u:%s", (unsigned)geteuid(), text);
    return cred;
}

/* From here to gate_stop a task of start_node(sealed_ticket()) reaches the gate. */
static inline void gate_start(void)
{
    struct err err = ERR_INIT;
    int fd = -1;
    memset(&srun_gate, 0, sizeof(srun_gate));
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &srun_gate.ticket.gate_port, &err),
                     0);
    (void)sealed_ticket();
    assert_int_equal(gate_open(&fd, &srun_gate.ticket, "slurm.42.0", 2, note_sentence,
                               NULL, &srun_gate.gate, &err),
                     0);
    assert_int_equal(fd, -1);
    assert_int_equal(pthread_create(&srun_gate.task_0, NULL, task_0_main, NULL), 0);
}

static inline void gate_stop(void)
{
    assert_int_equal(pthread_join(srun_gate.task_0, NULL), 0);
    assert_int_equal(srun_gate.rc, 0);
    gate_close(srun_gate.gate);
    srun_gate.ticket.gate_port = 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks of spank_hvd.so in the order in which Slurm calls them, against
 * tests/fakes/spank_fake.c. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"
#include <slurm/slurm.h>
#include <slurm/spank.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/rendezvous/rendezvous.h"
#include "spank_plugin/ends.h"
#include "spank_plugin/gate.h"
#include "spank_plugin/guard.h"
#include "spank_plugin/ticket.h"
#include "tests/unit/spank_step.h"

extern slurm_conf_t slurm_conf; /* the fake's */

/* srun up to the launch, with the ticket in *ret. */
static void start_srun(const char *arg, struct ticket *ret)
{
    struct err err = ERR_INIT;
    (void)setenv("SLURM_JOB_ID", "42", 1);
    (void)setenv("SLURM_STEP_ID", "0", 1);
    (void)unsetenv("SLURM_HET_SIZE");
    (void)unsetenv("SLURM_NTASKS");
    assert_int_equal(plugin_init(S_CTX_LOCAL), 0);
    assert_int_equal(fake_option(arg, 0), 0);
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
    const char *cred = getenv(TICKET_ENV);
    assert_non_null(cred);
    const char *text = strstr(cred, "hvd-step");
    assert_int_equal(ticket_parse(text, strlen(text), ret, &err), 0);
}

/* A member of the world meets srun's server within so many milliseconds. */
static int
world_join(const struct ticket *t, uint32_t size, uint32_t ms, struct err *err)
{
    const struct auth_id id = {
        .token = &t->token, .job_id = "slurm.42.0", .generation = t->generation};
    struct rdv_client *c = NULL;
    uint64_t deadline = clock_now_ns() + ms * NS_PER_MS;
    int rc = rdv_client_connect("127.0.0.1", t->port, &id, 0, size, deadline, &c, err);
    rdv_client_close(c);
    return rc;
}

UNIT_TEST(srun_serves_a_rendezvous_under_the_tickets_token)
{
    struct ticket t;
    struct err err = ERR_INIT;
    start_srun(NULL, &t);
    assert_int_equal(slurm_spank_local_user_init(&fake, 1, args), 0);
    AUTOFREE char *first = fake.argv[0]; /* Slurm's until srun ends */
    assert_int_equal(slurm_spank_local_user_init(&fake, 1, args),
                     0); /* once a component */
    assert_int_equal(world_join(&t, 2, 20000, &err), 0);
    t.token.key[0] ^= 1;
    assert_int_equal(world_join(&t, 2, 20000, &err), -EACCES);
    t.token.key[0] ^= 1;
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_true(world_join(&t, 2, 500, &err) < 0);
    assert_int_equal(fake_message_count(), 0);
}

UNIT_TEST(size_of_a_heterogeneous_step_is_that_of_all_components)
{
    struct ticket t;
    struct err err = ERR_INIT;
    start_srun(NULL, &t);
    (void)setenv("SLURM_HET_SIZE", "2", 1);
    (void)setenv("SLURM_NTASKS", "5", 1);
    assert_int_equal(slurm_spank_local_user_init(&fake, 1, args), 0);
    assert_int_equal(world_join(&t, 5, 20000, &err), 0);
    assert_true(world_join(&t, 2, 500, &err) < 0);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    (void)unsetenv("SLURM_HET_SIZE");
}

UNIT_TEST(a_failed_task_ends_the_step)
{
    struct ticket t;
    start_srun("", &t);
    assert_int_equal(fake_kill_on_bad_exit(), 1);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

UNIT_TEST(srun_keeps_to_srun_port_range)
{
    static uint16_t range[2];
    struct ticket t;
    start_srun(NULL, &t); /* two free ports of the kernel's choice */
    range[0] = t.port < t.gate_port ? t.port : t.gate_port;
    range[1] = t.port < t.gate_port ? t.gate_port : t.port;
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(plugin_init(S_CTX_LOCAL), 0);
    slurm_conf.srun_port_range = range;
    assert_int_equal(fake_option(NULL, 0), 0);
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
    assert_non_null(strstr(getenv(TICKET_ENV), "port="));
    assert_in_range(atoi(strstr(getenv(TICKET_ENV), "port=") + 5), range[0], range[1]);
    assert_in_range(atoi(strstr(getenv(TICKET_ENV), "gate=") + 5), range[0], range[1]);
    assert_in_range(atoi(strstr(getenv(TICKET_ENV), "ends=") + 5), range[0], range[1]);

    int fd = -1; /* an error when the range is used up */
    uint16_t port;
    struct err err = ERR_INIT;
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    range[1] = range[0];
    assert_int_equal(tcp_listen("::", range[0], &fd, &port, &err), 0);
    assert_int_equal(plugin_init(S_CTX_LOCAL), 0);
    slurm_conf.srun_port_range = range;
    assert_int_equal(fake_option(NULL, 0), 0);
    assert_int_not_equal(child_run_callback(slurm_spank_init_post_opt, args), 0);
    assert_non_null(strstr(fake_messages(), "SrunPortRange"));
    fd_close(&fd);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* What a callback finds where its variables will be, as after Slurm's own functions. */
__attribute__((noinline)) static void stack_use(void)
{
    volatile unsigned char used[8192];
    for (size_t i = 0; i < sizeof(used); i++)
        used[i] = 0x5a;
}

UNIT_TEST(without_the_option_nothing_happens)
{
    const int contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE};
    for (size_t i = 0; i < ARRAY_LEN(contexts); i++) {
        assert_int_equal(plugin_init(contexts[i]), 0);
        assert_true(fake_option_is_registered());
        stack_use();
        assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
        stack_use();
        assert_int_equal(slurm_spank_local_user_init(&fake, 1, args), 0);
        assert_int_equal(slurm_spank_user_init(&fake, 1, args), 0);
        assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
        assert_null(fake.env[0]);
        assert_null(getenv(TICKET_ENV));
        assert_int_equal(fake_kill_on_bad_exit(), 0);
        assert_int_equal(fake_message_count(), 0);
    }
}

UNIT_TEST(slurmd_and_prolog_get_no_option)
{
    assert_int_equal(plugin_init(S_CTX_SLURMD), 0);
    assert_false(fake_option_is_registered());
    assert_int_equal(plugin_init(S_CTX_JOB_SCRIPT), 0);
    assert_false(fake_option_is_registered());
}

UNIT_TEST(an_invalid_option_is_reported_at_once)
{
    assert_int_equal(plugin_init(S_CTX_ALLOCATOR), 0);
    assert_int_equal(fake_option("nope", 0), -1);
    assert_non_null(strstr(fake_messages(), "hvd: --hvd: \"nope\" is not a key"));
}

UNIT_TEST(a_mistake_in_plugstack_conf_is_reported_with_the_option)
{
    char bad[] = "rundir=/x";
    char *argv[] = {bad};
    fake_reset(S_CTX_LOCAL);
    assert_int_equal(slurm_spank_init(&fake, 1, argv), 0);
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, argv), 0);
    assert_int_equal(fake_message_count(), 0);
    assert_int_equal(fake_option(NULL, 0), 0);
    assert_int_not_equal(child_run_callback(slurm_spank_init_post_opt, argv), 0);
    assert_non_null(strstr(fake_messages(), "rundir=/x"));
}

UNIT_TEST(a_requeued_job_is_the_next_generation)
{
    static const char *const counts[] = {NULL, "", "0", "2", "4294967295"};
    static const uint32_t want[] = {0, 0, 0, 2, UINT32_MAX};
    struct ticket t;
    struct err err = ERR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        if (counts[i])
            (void)setenv("SLURM_RESTART_COUNT", counts[i], 1);
        start_srun(NULL, &t);
        assert_int_equal(t.generation, want[i]);
        assert_int_equal(slurm_spank_local_user_init(&fake, 1, args), 0);
        assert_int_equal(world_join(&t, 2, 20000, &err), 0);
        t.generation ^= 1;
        assert_true(world_join(&t, 2, 20000, &err) < 0);
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    }
    (void)setenv("SLURM_RESTART_COUNT", "x", 1);
    assert_int_equal(plugin_init(S_CTX_LOCAL), 0);
    assert_int_equal(fake_option(NULL, 0), 0);
    assert_int_not_equal(child_run_callback(slurm_spank_init_post_opt, args), 0);
    assert_non_null(strstr(fake_messages(), "hvd: SLURM_RESTART_COUNT"));
    (void)unsetenv("SLURM_RESTART_COUNT");
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* --- the nodes --- */

/* No task runs, and srun, not the task, prints why. */
static void expect_closed_gate(const char *sentence)
{
    assert_int_equal(child_run_callback(slurm_spank_task_init, args), 1);
    gate_stop();
    assert_false(srun_gate.is_open);
    assert_non_null(strstr(srun_gate.said, sentence));
    assert_int_equal(fake_message_count(), 0);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

static void expect_closed(const char *sentence)
{
    gate_start();
    start_node(sealed_ticket());
    expect_closed_gate(sentence);
}

UNIT_TEST(a_task_gets_the_contract_and_no_ticket)
{
    struct stat st;
    char *text = NULL;
    size_t n;
    struct err err = ERR_INIT;
    char mounts[128];
    gate_start();
    start_node(sealed_ticket());
    (void)snprintf(mounts, sizeof(mounts), "/opt/ringmaster:%s", run_dir);
    assert_string_equal(fake_getenv(MOUNTS_ENV), mounts); /* for enroot's hook */
    fake.argv[0] = guard_put("python");
    fake_env("HOROVOD_RANK", "9"); /* of an outer launcher */
    fake_env("OMPI_COMM_WORLD_RANK", "9");
    fake_env("PMI_RANK", "1"); /* Slurm's own, beside us */
    fake_env("MINE", "1");
    assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
    gate_stop();
    assert_true(srun_gate.is_open);
    assert_string_equal(srun_gate.said, "");
    assert_string_equal(fake.argv[0], "python");
    assert_string_equal(fake_getenv("HOROVOD_RANK"), "1");
    assert_string_equal(fake_getenv("HOROVOD_SIZE"), "2");
    assert_string_equal(fake_getenv("HVD_GENERATION"), "7");
    assert_string_equal(fake_getenv("MINE"), "1");
    assert_string_equal(fake_getenv("PMI_RANK"), "1");
    assert_string_equal(fake_getenv("SLURM_PROCID"), "1");
    assert_null(fake_getenv("OMPI_COMM_WORLD_RANK"));
    assert_null(fake_getenv(TICKET_ENV));
    assert_null(fake_getenv(KEYS_ENV));
    assert_null(fake_getenv(MOUNTS_ENV));
    const char *token = fake_getenv("HVD_TOKEN_FILE");
    assert_int_equal(stat(token, &st), 0);
    assert_int_equal(st.st_mode & 07777, geteuid() ? 0640 : 0600); /* ACL mask */
    for (char **e = fake.env; *e; e++)
        assert_null(strstr(*e, "abababab"));
    assert_int_equal(fd_read_file(fake_getenv("HVD_HOSTFILE"), 1000, &text, &n, &err),
                     0);
    assert_string_equal(text, "node1 slots=1\nnode2 slots=1\n");
    mem_free(text);
    char kept[256];
    (void)snprintf(kept, sizeof(kept), "%s", token);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(access(kept, F_OK), -1);
}

/* pyxis has started a container without enroot's hook. */
UNIT_TEST(a_task_in_a_container_without_the_token_keeps_the_gate_closed)
{
    char token[128];
    gate_start();
    start_node(sealed_ticket());
    (void)snprintf(token, sizeof(token), "%s/42.0.1.%ld/token", run_dir,
                   (long)getpid());
    assert_int_equal(unlink(token), 0);
    expect_closed_gate("/token in the task; a container must show this folder");
}

/* --- the end of a task --- */

static void *exit_main(void *arg)
{
    (void)slurm_spank_task_exit(&fake, 1, args);
    return arg;
}

UNIT_TEST(a_failed_task_is_reported_to_srun_with_its_rank_and_node)
{
    static const struct {
        int status; /* as from wait */
        int exit_code, signal;
    } rows[] = {{3 << 8, 3, 0}, {SIGKILL, 0, SIGKILL}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        AUTOFREE struct ends *e = mem_zalloc(sizeof(*e));
        struct err err = ERR_INIT;
        pthread_t thread;
        int fd = -1;
        gate_start();
        assert_non_null(e);
        assert_int_equal(
            tcp_listen("127.0.0.1", 0, &fd, &srun_gate.ticket.ends_port, &err), 0);
        (void)sealed_ticket();
        assert_int_equal(ends_open(e, &fd, &srun_gate.ticket.token, "slurm.42.0", &err),
                         0);
        start_node(sealed_ticket());
        fake.argv[0] = guard_put("python");
        assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
        gate_stop();
        fake.exit_status = 0;
        assert_int_equal(slurm_spank_task_exit(&fake, 1, args), 0); /* nothing to say */
        fake.exit_status = rows[i].status;
        assert_int_equal(pthread_create(&thread, NULL, exit_main, NULL), 0);
        uint64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
        while (!e->has_first && clock_now_ns() < deadline_ns) {
            (void)fd_wait(ends_fd(e), POLLIN, deadline_ns);
            ends_serve(e);
        }
        assert_true(e->has_first);
        assert_int_equal(e->first.rank, 1);
        assert_string_equal(e->first.host, "node2");
        assert_int_equal(e->first.exit_code, rows[i].exit_code);
        assert_int_equal(e->first.signal, rows[i].signal);
        ends_close(e);
        assert_int_equal(pthread_join(thread, NULL), 0);
        srun_gate.ticket.ends_port = 0;
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    }
}

/* --- the folder for pages --- */

static void task_run(const char *stats_dir)
{
    gate_start();
    start_node(sealed_ticket());
    fake.argv[0] = guard_put("python");
    fake_env("HVD_STATS_DIR", stats_dir);
    assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
    gate_stop();
}

static void pages_folder(char ret[128])
{
    (void)snprintf(ret, 128, "/dev/shm/hvd_step.42.0.1.%ld", (long)getpid());
}

static void expect_task_file(const char *dir, const char *stats_dir)
{
    char path[160], want[320];
    char *text = NULL;
    size_t n;
    struct err err = ERR_INIT;
    (void)snprintf(path, sizeof(path), "%s/task.1", dir);
    (void)snprintf(want, sizeof(want), "%ld 2 %s\n", (long)getpid(), stats_dir);
    assert_int_equal(fd_read_file(path, 1000, &text, &n, &err), 0);
    assert_string_equal(text, want);
    mem_free(text);
}

UNIT_TEST(a_task_keeps_its_page_where_hvd_status_finds_it)
{
    char dir[128], file[160];
    struct stat st;
    pages_folder(dir);
    task_run(NULL);
    assert_string_equal(fake_getenv("HVD_STATS_DIR"), dir);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    expect_task_file(dir, dir);
    (void)snprintf(file, sizeof(file), "%s/rank.1", dir);
    assert_int_equal(fd_write_file(file, "page", 4, 0644, NULL), 0);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(access(dir, F_OK), -1);
}

UNIT_TEST(the_users_own_folder_for_pages_stays_and_that_of_an_outer_step_does_not)
{
    char dir[128];
    pages_folder(dir);
    task_run("/my/pages");
    assert_string_equal(fake_getenv("HVD_STATS_DIR"), "/my/pages");
    expect_task_file(dir, "/my/pages");
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(access(dir, F_OK), -1);
    task_run("/dev/shm/hvd_step.41.3.0.77");
    assert_string_equal(fake_getenv("HVD_STATS_DIR"), dir);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

UNIT_TEST(a_folder_for_pages_that_is_no_folder_is_not_used_and_not_removed)
{
    char dir[128];
    pages_folder(dir);
    assert_int_equal(symlink(run_dir, dir), 0);
    task_run(NULL);
    assert_null(fake_getenv("HVD_STATS_DIR"));
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(unlink(dir), 0);
}

/* Its own tasks print it: they cannot reach the gate. */
UNIT_TEST(a_node_without_the_token_reports_itself)
{
    char forged[] = "MUNGE:AwQFAAC:", other[200];
    char *const creds[] = {NULL, forged, other};
    const char *const want[] = {"srun sent no job token", "Invalid credential",
                                "was created by user 12345"};
    (void)snprintf(other, sizeof(other), "FAKE:12345:%s",
                   strchr(sealed_ticket() + 5, ':') + 1);
    for (size_t i = 0; i < ARRAY_LEN(creds); i++) {
        start_node(creds[i]);
        /* Slurm suppresses messages of earlier callbacks */
        assert_int_equal(fake_message_count(), 0);
        fake_env("SLURMD_NODENAME", "node2");
        assert_int_equal(child_run_callback(slurm_spank_task_init, args), 1);
        assert_non_null(strstr(fake_messages(), "hvd: node2: "));
        assert_non_null(strstr(fake_messages(), want[i]));
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    }
}

UNIT_TEST(batch_extern_and_interactive_steps_are_unaffected)
{
    const uint32_t steps[] = {SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT,
                              SLURM_INTERACTIVE_STEP};
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        assert_int_equal(plugin_init(S_CTX_REMOTE), 0);
        fake.step_id = steps[i];
        expect_ordinary_step("(null)");
    }
}

UNIT_TEST(a_directory_left_by_a_crash_is_reused)
{
    char dir[128], file[160];
    (void)snprintf(dir, sizeof(dir), "%s/42.0.1.%ld", run_dir, (long)getpid());
    (void)snprintf(file, sizeof(file), "%s/token", dir);
    assert_int_equal(mkdir(dir, 0755), 0);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    (void)close(fd);
    struct stat st;
    start_node(sealed_ticket());
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, geteuid() ? 0750 : 0700); /* ACL mask */
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_size, 65);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* Components of a heterogeneous step on one machine: slurmstepd of each has the same
 * job, step and node number. */
UNIT_TEST(another_component_on_this_machine_has_its_own_directory)
{
    char token[160];
    int status;
    pid_t pid;
    (void)snprintf(token, sizeof(token), "%s/42.0.1.%ld/token", run_dir,
                   (long)getpid());
    start_node(sealed_ticket());
    assert_int_equal(access(token, F_OK), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        start_node(sealed_ticket());
        _exit(slurm_spank_exit(&fake, 1, args) != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(access(token, F_OK), 0);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(access(token, F_OK), -1);
}

UNIT_TEST(a_link_in_place_of_the_directory_is_not_followed)
{
    char dir[128], outside[128], file[160];
    (void)snprintf(outside, sizeof(outside), "%s-outside", run_dir);
    (void)snprintf(file, sizeof(file), "%s/precious", outside);
    (void)snprintf(dir, sizeof(dir), "%s/42.0.1.%ld", run_dir, (long)getpid());
    assert_int_equal(mkdir(outside, 0700), 0);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(symlink(outside, dir), 0);
    expect_closed("cannot make");
    assert_int_equal(unlink(file), 0); /* it is still there */
    assert_int_equal(rmdir(outside), 0);
    assert_int_equal(unlink(dir), 0);
}

UNIT_TEST(a_base_that_others_may_write_to_is_refused)
{
    const mode_t modes[] = {0777, 01777, 0720};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        assert_int_equal(chmod(run_dir, modes[i]), 0);
        expect_closed("must be root's and writable for root alone (plugstack.conf: "
                      "run_dir)");
    }
    assert_int_equal(chmod(run_dir, 0700), 0);
    if (geteuid() != 0)
        return;
    assert_int_equal(chown(run_dir, 12345, 0), 0);
    expect_closed("has owner 12345");
    assert_int_equal(chown(run_dir, 0, 0), 0);
}

UNIT_TEST(srun_guards_the_command)
{
    struct ticket t;
    struct err err = ERR_INIT;
    start_srun(NULL, &t);
    assert_int_equal(slurm_spank_local_user_init(&fake, 1, args), 0);
    assert_ptr_equal(strstr(fake.argv[0], GUARD_MARK), fake.argv[0]);
    assert_int_equal(guard_take(fake.argv[0], &err), 0);
    assert_string_equal(fake.argv[0], "python");
    assert_int_equal(guard_take(fake.argv[0], &err), 0); /* none: stays */
    assert_string_equal(fake.argv[0], "python");
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

UNIT_TEST(a_command_of_another_version_is_refused)
{
    gate_start();
    start_node(sealed_ticket());
    fake.argv[0] = mem_strdup(GUARD_MARK "(hvd-step/99) ...: python");
    assert_int_equal(child_run_callback(slurm_spank_task_init, args), 1);
    gate_stop();
    assert_non_null(strstr(srun_gate.said, "another version of spank_hvd.so"));
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* Slurm ignores what an optional plugin returns. */
UNIT_TEST(an_option_that_a_node_does_not_know_keeps_the_gate_closed)
{
    gate_start();
    start_node(sealed_ticket());
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_init(&fake, 1, args), 0);
    fake_env(KEYS_ENV, "later=1");
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_user_init(&fake, 1, args), 0);
    assert_int_equal(child_run_callback(slurm_spank_task_init, args), 1);
    gate_stop();
    assert_non_null(strstr(srun_gate.said, "\"later\" is not a key"));
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* Keep first: later tests have called init. */
UNIT_TEST(exit_without_init_closes_nothing_of_the_process)
{
    int saved = fcntl(0, F_DUPFD_CLOEXEC, 3);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(null >= 0);
    assert_int_equal(dup2(null, 0), 0);
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_true(fcntl(0, F_GETFD) >= 0);
    if (saved >= 0)
        assert_int_equal(dup2(saved, 0), 0);
    (void)close(saved);
    if (null != 0)
        (void)close(null);
}

UNIT_MAIN(make_run_dir, drop_run_dir)

/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a step from SLURM_HVD and the options to the variables of a task, and
 * the rules of a site on the way: the callbacks of spank_hvd.so against
 * tests/fakes/spank_fake.c. */
#include <errno.h>

#include "tests/unit/spank_step.h"

#include "runtime/base/mem.h"
#include "spank_plugin/guard.h"
#include "spank_plugin/output.h"

/* One of srun, sbatch, salloc; the option as often as it is given, NULL-terminated. The
 * result of init_post_opt's process: 0, or the code with which the plugin ends it. */
static int submit(
    const char *program, int context, int argc, char **argv, const char *const *options)
{
    static char name[16];
    (void)snprintf(name, sizeof(name), "%s", program);
    program_invocation_short_name = name;
    fake_reset(context);
    fake.n_tasks = 2;
    (void)unsetenv(TICKET_ENV);
    (void)unsetenv(KEYS_ENV);
    if (slurm_spank_init(&fake, argc, argv))
        return -1;
    for (; *options; options++)
        if (fake_option(**options ? *options : NULL, 0))
            return -1;
    return 0;
}

static void is_env(const char *name, const char *want)
{
    const char *got = getenv(name);
    if (!want)
        assert_null(got);
    else if (!got || strcmp(got, want) != 0)
        fail_msg("%s is %s, not %s", name, got ? got : "not set", want);
}

UNIT_TEST(srun_sends_the_settings_of_all_values)
{
    static const struct {
        const char *variable, *options[3], *want; /* NULL: an ordinary step */
    } rows[] = {
        {NULL, {NULL}, NULL},
        {NULL, {""}, ""},
        {"", {NULL}, ""},
        {"off", {NULL}, NULL},
        {"off", {""}, ""},
        {"report", {NULL}, "HVD_REPORT=\"1\""},
        {"report", {"off"}, NULL},
        {"report", {"report=no"}, "HVD_REPORT=\"0\""},
        {"report",
         {"fusion=1"},
         "HVD_REPORT=\"1\",HOROVOD_FUSION_THRESHOLD=\"1048576\""},
        /* the job's, then the step's */
        {NULL,
         {"fusion=1", "report"},
         "HOROVOD_FUSION_THRESHOLD=\"1048576\",HVD_REPORT=\"1\""},
        {NULL, {"report", "off"}, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].variable)
            (void)setenv("SLURM_HVD", rows[i].variable, 1);
        (void)setenv("SBATCH_HVD", "nancheck", 1); /* not srun's */
        assert_int_equal(submit("srun", S_CTX_LOCAL, 1, args, rows[i].options), 0);
        (void)setenv(TICKET_ENV, "of an outer step", 1);
        (void)setenv(KEYS_ENV, "nancheck", 1);
        assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
        is_env(KEYS_ENV, rows[i].want);
        assert_int_equal(getenv(TICKET_ENV) != NULL, rows[i].want != NULL);
        assert_int_equal(fake_message_count(), 0);
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
        (void)unsetenv("SLURM_HVD");
        (void)unsetenv("SBATCH_HVD");
    }
}

static int init_with_options(spank_t sp, int argc, char **argv)
{
    const char *const none[] = {NULL};
    (void)sp;
    return submit("srun", S_CTX_LOCAL, argc, argv, none);
}

UNIT_TEST(a_mistake_in_slurm_hvd_ends_srun)
{
    fake_reset(S_CTX_LOCAL);
    (void)setenv("SLURM_HVD", "colour=red", 1);
    assert_int_equal(child_run_callback(init_with_options, args), 1);
    assert_non_null(strstr(fake_messages(), "SLURM_HVD: \"colour\" is not a key"));
    (void)unsetenv("SLURM_HVD");
}

UNIT_TEST(sbatch_and_salloc_forward_the_settings_of_all_values)
{
    static const char forwarded[] = "SLURM_SPANK__SLURM_SPANK_OPTION_hvd_hvd";
    const char *const names[][2] = {{"sbatch", "SBATCH_HVD"}, {"salloc", "SALLOC_HVD"}};
    const char *const none[] = {NULL}, *const one[] = {"report", NULL},
                      *const off[] = {"off", NULL};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)setenv(names[i][1], "fusion=1", 1);
        assert_int_equal(submit(names[i][0], S_CTX_ALLOCATOR, 1, args, none), 0);
        assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
        assert_string_equal(fake_getenv(forwarded),
                            "HOROVOD_FUSION_THRESHOLD=\"1048576\"");
        assert_int_equal(submit(names[i][0], S_CTX_ALLOCATOR, 1, args, one), 0);
        assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
        assert_string_equal(fake_getenv(forwarded),
                            "HOROVOD_FUSION_THRESHOLD=\"1048576\",HVD_REPORT=\"1\"");
        assert_int_equal(submit(names[i][0], S_CTX_ALLOCATOR, 1, args, off), 0);
        assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
        assert_null(fake_getenv(forwarded)); /* Slurm itself forwards "off" */
        (void)unsetenv(names[i][1]);
        assert_int_equal(fake_message_count(), 0);
    }
}

UNIT_TEST(sbatch_says_that_munge_is_down)
{
    const char *const bare[] = {"", NULL};
    assert_int_equal(submit("sbatch", S_CTX_ALLOCATOR, 1, args, bare), 0);
    fake_seal_fail();
    assert_int_equal(child_run_callback(slurm_spank_init_post_opt, args), 1);
    assert_non_null(strstr(fake_messages(), "hvd: munge cannot encrypt"));
    assert_int_equal(fake_message_count(), 1);
}

UNIT_TEST(rules_of_the_site_end_srun_and_sbatch)
{
    char rule[] = "max=fusion=1";
    char *argv[] = {run_dir_arg, rule};
    const char *const more[] = {"fusion=2", NULL}, *const bare[] = {"", NULL};
    for (int i = 0; i < 4; i++) {
        bool is_variable = i % 2;
        if (is_variable)
            (void)setenv("HOROVOD_FUSION_THRESHOLD", "2M", 1);
        assert_int_equal(submit(i < 2 ? "srun" : "sbatch",
                                i < 2 ? S_CTX_LOCAL : S_CTX_ALLOCATOR, 2, argv,
                                is_variable ? bare : more),
                         0);
        assert_int_equal(child_run_callback(slurm_spank_init_post_opt, argv), 1);
        (void)unsetenv("HOROVOD_FUSION_THRESHOLD");
        assert_non_null(
            strstr(fake_messages(), is_variable ? "hvd: the environment: HOROVOD_FUSION"
                                                : "hvd: --hvd: HOROVOD_FUSION"));
        assert_non_null(strstr(fake_messages(), "at most 1048576"));
    }
}

UNIT_TEST(help_ends_srun_with_0)
{
    fake_reset(S_CTX_LOCAL);
    (void)setenv("SLURM_HVD", "help", 1);
    (void)fflush(stdout);
    int saved = dup(1), fds[2];
    char text[8192] = "";
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(dup2(fds[1], 1), 1);
    int code = child_run_callback(init_with_options, args);
    (void)unsetenv("SLURM_HVD");
    assert_int_equal(dup2(saved, 1), 1);
    (void)close(saved);
    (void)close(fds[1]);
    ssize_t n = read(fds[0], text, sizeof(text) - 1);
    (void)close(fds[0]);
    assert_int_equal(code, 0);
    assert_true(n > 0);
    assert_non_null(strstr(text, "  fusion=MIB "));
    assert_non_null(strstr(text, "no rules"));
}

static void is_task_env(const char *name, const char *want)
{
    const char *got = fake_getenv(name);
    if (!got || strcmp(got, want) != 0)
        fail_msg("%s is %s, not %s", name, got ? got : "not set", want);
}

UNIT_TEST(a_task_gets_the_variables_of_the_keys)
{
    gate_start();
    node_keys = "HOROVOD_START_TIMEOUT=\"120\",HVD_NANCHECK=\"1\",iface=\"lo\","
                "HOROVOD_CONTROLLER=\"gloo\"";
    start_node(sealed_ticket());
    node_keys = "";
    fake_env("HVD_NANCHECK", "0"); /* the key has priority */
    fake_env("HOROVOD_CYCLE_TIME", "7");
    assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
    gate_stop();
    is_task_env("HOROVOD_START_TIMEOUT", "120");
    is_task_env("HVD_NANCHECK", "1");
    is_task_env("NCCL_SOCKET_IFNAME", "lo");
    is_task_env("HOROVOD_CONTROLLER", "gloo");
    is_task_env("HOROVOD_CYCLE_TIME", "7");
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* srun has not checked, or --export has brought what srun did not see. */
UNIT_TEST(a_node_applies_its_own_rules)
{
    char deny[] = "deny=dry-run", force[] = "force=log-level=info";
    char *rules[] = {run_dir_arg, deny, force};
    static const struct {
        const char *keys, *variable, *sentence;
    } rows[] = {
        {"HVD_DRY_RUN=\"1\"", NULL, "node2: --hvd: HVD_DRY_RUN=1: this site does not"},
        {"", "HVD_DRY_RUN",
         "node2: the environment: HVD_DRY_RUN=1: this site does not"},
        {"HOROVOD_LOG_LEVEL=\"DEBUG\"", NULL, "this site requires INFO"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        gate_start();
        start_node(sealed_ticket());
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
        assert_int_equal(slurm_spank_init(&fake, 3, rules), 0);
        fake_env(KEYS_ENV, rows[i].keys);
        fake_env("SLURMD_NODENAME", "node2");
        if (rows[i].variable)
            fake_env(rows[i].variable, "1");
        assert_int_equal(slurm_spank_init_post_opt(&fake, 3, rules), 0);
        assert_int_equal(slurm_spank_user_init(&fake, 3, rules), 0);
        assert_int_equal(child_run_callback(slurm_spank_task_init, rules), 1);
        gate_stop();
        if (!strstr(srun_gate.said, rows[i].sentence))
            fail_msg("%s", srun_gate.said);
        assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    }
}

UNIT_TEST(a_forced_setting_reaches_a_task)
{
    char force[] = "force=log-level=info";
    char *rules[] = {run_dir_arg, force};
    gate_start();
    start_node(sealed_ticket());
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_init(&fake, 2, rules), 0);
    assert_int_equal(slurm_spank_init_post_opt(&fake, 2, rules), 0);
    assert_int_equal(slurm_spank_user_init(&fake, 2, rules), 0);
    assert_int_equal(slurm_spank_task_init(&fake, 2, rules), 0);
    gate_stop();
    is_task_env("HOROVOD_LOG_LEVEL", "INFO");
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

UNIT_TEST(a_step_that_is_off_is_ordinary_on_a_node)
{
    assert_int_equal(plugin_init(S_CTX_REMOTE), 0);
    expect_ordinary_step("off");
}

/* Without an option: Slurm passes none for SLURM_HVD. */
UNIT_TEST(a_step_of_slurm_hvd_is_on_on_a_node)
{
    assert_int_equal(plugin_init(S_CTX_REMOTE), 0);
    fake_env(KEYS_ENV, "");
    assert_int_equal(slurm_spank_init_post_opt(&fake, 1, args), 0);
    assert_int_equal(slurm_spank_user_init(&fake, 1, args), 0);
    assert_int_equal(child_run_callback(slurm_spank_task_init, args), 1);
    assert_non_null(strstr(fake_messages(), "srun sent no job token"));
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

UNIT_TEST(a_missing_runtime_is_named_when_a_task_fails)
{
    static const struct {
        int status; /* as from wait */
        bool is_named;
    } rows[] = {{0, false}, {9, false}, {3 << 8, false}, {1 << 8, true}};
    if (access("/opt/ringmaster/python", F_OK) == 0)
        skip();
    gate_start();
    start_node(sealed_ticket());
    fake.argv[0] = guard_put("python");
    fake.exit_status = 1 << 8;
    assert_int_equal(slurm_spank_task_exit(&fake, 1, args), 0);
    assert_int_equal(fake_message_count(), 0); /* no program has run */
    assert_int_equal(slurm_spank_task_init(&fake, 1, args), 0);
    gate_stop();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int twice = 0; twice < 2; twice++) {
            fake.exit_status = rows[i].status;
            assert_int_equal(slurm_spank_task_exit(&fake, 1, args), 0);
            assert_int_equal(fake_message_count(), rows[i].is_named);
        }
    assert_non_null(strstr(fake_messages(), "no runtime in /opt/ringmaster/python"));
    assert_int_equal(slurm_spank_exit(&fake, 1, args), 0);
}

/* In a child: it replaces standard output and error. */
UNIT_TEST(output_goes_to_files_of_the_rank)
{
    char dir[80], path[120], *text = NULL;
    size_t n;
    int files[2];
    struct err err = ERR_INIT;
    (void)snprintf(dir, sizeof(dir), "%s-output", run_dir);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (output_open(dir, 3, 11, files, &err) || output_use(files, &err))
            _exit(1);
        _exit(write(1, "out\n", 4) != 4 || write(2, "bad\n", 4) != 4);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    const char *const names[][2] = {{"stdout", "out\n"}, {"stderr", "bad\n"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/rank.03/%s", dir, names[i][0]);
        assert_int_equal(fd_read_file(path, 100, &text, &n, &err), 0);
        assert_string_equal(text, names[i][1]);
        mem_free(text);
        assert_int_equal(output_open(path, 0, 1, files, &err), -ENOTDIR);
        assert_non_null(strstr(err.text, path));
        assert_int_equal(unlink(path), 0);
    }
    (void)snprintf(path, sizeof(path), "%s/rank.03", dir);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

UNIT_MAIN(make_run_dir, drop_run_dir)

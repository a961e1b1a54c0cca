/* SPDX-License-Identifier: Apache-2.0 */
/* step_srun.c: a command of Slurm that runs beside srun. Both are scripts here. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/launch/step_srun.h"

static void script_write(const char *dir, const char *name, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(fd_write_file(path, text, strlen(text), 0755, NULL), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

static void scripts_remove(const char *dir)
{
    static const char *const names[] = {"srun", "scontrol"};
    char path[128];

    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

UNIT_TEST(a_command_beside_srun_loses_neither_a_signal_nor_the_end_of_srun)
{
    char dir[] = "/tmp/step-srun-XXXXXX", path[256], pid[16];
    char srun_word[] = "srun", scontrol[] = "scontrol";
    char *srun_argv[] = {srun_word, NULL}, *argv[] = {scontrol, pid, NULL};
    struct slurm_commands s = {.env = NULL};
    struct slurm_srun srun = {.fd = -1, .child = {.stderr_fd = -1}};
    struct err err = ERR_INIT;
    struct strbuf out;

    assert_non_null(mkdtemp(dir));
    script_write(dir, "srun", "#!/bin/sh\nread -r line\n");
    /* ends when srun has been reaped; then a signal to the program that runs it */
    script_write(dir, "scontrol",
                 "#!/bin/sh\nkill -KILL $1\n"
                 "while kill -0 $1 2>/dev/null; do :; done\n"
                 "kill -TERM $PPID\nkill -STOP $$\n");
    (void)snprintf(path, sizeof(path), "%s:%s", dir, getenv("PATH"));
    assert_int_equal(setenv("PATH", path, 1), 0);
    strbuf_init(&out, 1024);
    assert_int_equal(slurm_commands_init(&s, &err), 0);
    assert_int_equal(slurm_srun_start(&s, srun_argv, &srun, &err), 0);
    assert_true(srun.child.pid > 0);
    (void)snprintf(pid, sizeof(pid), "%ld", (long)srun.child.pid);
    assert_int_equal(slurm_commands_run(&s, argv, 60000, &out, &err), -EINVAL);
    assert_non_null(strstr(err.text, "stopped by SIGTERM"));
    assert_int_equal(srun.child.pid, 0);
    assert_int_equal(slurm_commands_take_signals(&s), SIGTERM);
    assert_int_equal(slurm_commands_take_signals(&s), 0);
    slurm_srun_end(&srun, &s);
    slurm_commands_release(&s);
    strbuf_release(&out);
    scripts_remove(dir);
}

/* With SQUEUE_PARTITION squeue would list the jobs of that partition alone. */
UNIT_TEST(a_command_does_not_see_the_options_of_the_users_own_squeue)
{
    char dir[] = "/tmp/step-srun-XXXXXX", path[256], squeue[] = "squeue";
    char *argv[] = {squeue, NULL};
    struct slurm_commands s = {.env = NULL};
    struct strbuf out;
    struct err err = ERR_INIT;

    assert_non_null(mkdtemp(dir));
    script_write(dir, "squeue", "#!/bin/sh\necho \"$SQUEUE_PARTITION $SLURM_CONF\"\n");
    (void)snprintf(path, sizeof(path), "%s:%s", dir, getenv("PATH"));
    assert_int_equal(setenv("PATH", path, 1), 0);
    assert_int_equal(setenv("SQUEUE_PARTITION", "other", 1), 0);
    assert_int_equal(setenv("SLURM_CONF", "/etc/x", 1), 0);
    strbuf_init(&out, 1024);
    assert_int_equal(slurm_commands_init(&s, &err), 0);
    assert_int_equal(slurm_commands_run(&s, argv, 60000, &out, &err), 0);
    assert_string_equal(strbuf_str(&out), " /etc/x\n");
    slurm_commands_release(&s);
    strbuf_release(&out);
    (void)snprintf(path, sizeof(path), "%s/squeue", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

UNIT_MAIN(NULL, NULL)

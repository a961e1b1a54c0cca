/* SPDX-License-Identifier: Apache-2.0 */
/* Entry point of hvd-agent: parses the command line. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/contract/token.h"
#include "runtime/launch/agent.h"
#include "runtime/launch/attach.h"
#include "runtime/launch/await.h"
#include "runtime/launch/examine.h"
#include "runtime/launch/report.h"
#include "runtime/launch/rsh.h"
#include "runtime/launch/serve.h"
#include "runtime/launch/slurm_check.h"
#include "runtime/launch/step_node.h"
#include "runtime/launch/step_status.h"
#include "runtime/launch/world_hosts.h"

static const char usage[] =
    "usage: hvd-agent run [--] command [arguments]\n"
    "       hvd-agent serve [--token-file FILE] [--port PORT] [--bind ADDRESS]\n"
    "       hvd-agent await --hostfile FILE [--termination-log FILE] [--] command "
    "[arguments]\n"
    "       hvd-agent hosts\n"
    "       hvd-agent rsh [ssh's options] HOST command [arguments]\n"
    "       hvd-agent report [--json] [--ranks | --stacks | --examine]\n"
    "       hvd-agent examine DIR | PID ...\n"
    "       hvd-agent token FILE\n"
    "       hvd-agent install DEST\n"
    "       hvd-agent --version | --help\n\n"
    "run      starts this worker's ranks of the command and waits for the job's end;\n"
    "         the HVD_* variables give its place in the job, see hvd-agent(1)\n"
    "serve    starts ranks for horovodrun --token-file on other hosts, without ssh,\n"
    "         and commands for rsh\n"
    "await    waits until hvd-agent serve can be reached on all hosts, then executes\n"
    "         the command\n"
    "hosts    prints the workers of this pod's job, for horovodrun\n"
    "         --host-discovery-script\n"
    "rsh      runs a command through the hvd-agent serve of another host; also called\n"
    "         hvd-rsh, for mpirun and mpiexec\n"
    "report   prints what the job of this pod does now: progress, stall, straggler;\n"
    "         --ranks each rank, --stacks the last examination of a stall, --examine "
    "a\n"
    "         new one\n"
    "examine  says what the ranks of this host do, with their stacks: all that have\n"
    "         HVD_STATS_DIR=DIR, or the processes\n"
    "token    writes a new random token for serve to a new file of mode 0600\n"
    "install  copies the runtime (the folder above this program's bin/) to DEST\n";

static int main_refuse_usage(const char *what, const char *word)
{
    fprintf(stderr, "hvd-agent: %s%s (see hvd-agent --help)\n", what, word);
    return 2;
}

/* Started by horovodrun through ssh. */
static int main_attach(const char *word)
{
    struct err err = ERR_INIT;
    struct signals signals;
    if (word)
        return main_refuse_usage("attach takes no arguments: ", word);
    if (isatty(0))
        return main_refuse_usage("attach is started by horovodrun through ssh", "");
    if (signals_init(&signals, &err) < 0) {
        fprintf(stderr, "hvd-agent: %s\n", err.text);
        return 125;
    }
    int code = attach_stdio(&signals);
    signals_release(&signals);
    return code;
}

static int main_run(char **argv)
{
    int first = argv[2] && !strcmp(argv[2], "--") ? 3 : 2;
    if (argv[2] && first == 2 && argv[2][0] == '-')
        return main_refuse_usage("unknown option of run: ", argv[2]);
    if (!argv[first])
        return main_refuse_usage(
            "run needs a command: hvd-agent run -- python train.py", "");
    return agent_run(argv + first, environ);
}

static int main_token(char **argv)
{
    struct err err = ERR_INIT;
    if (!argv[2] || argv[3] || argv[2][0] == '-')
        return main_refuse_usage("token takes one file: hvd-agent token FILE", "");
    if (token_create_file(argv[2], &err) == 0)
        return 0;
    fprintf(stderr, "hvd-agent: %s\n", err.text);
    return 1;
}

static bool program_is(const char *program, const char *name)
{
    const char *slash = strrchr(program, '/');
    return !strcmp(slash ? slash + 1 : program, name);
}

typedef int (*main_fn)(char *const *argv);
static const struct {
    const char *name;
    main_fn run; /* with the words behind the name */
} programs[] = {{RSH_NAME, agent_rsh},
                {STEP_STATUS_PROGRAM, step_status},
                {SLURM_CHECK_PROGRAM, slurm_check}},
  commands[] = {{"rsh", agent_rsh},     {"serve", agent_serve},
                {"await", agent_await}, {"report", agent_report},
                {"step", agent_step},   {"facts", agent_facts},
                {"hosts", agent_hosts}};

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    for (size_t i = 0; argc && i < ARRAY_LEN(programs); i++)
        if (program_is(argv[0], programs[i].name))
            return programs[i].run(argv + 1);
    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (!strcmp(command, commands[i].name))
            return commands[i].run(argv + 2);
    if (!strcmp(command, "--help") || !strcmp(command, "-h")
        || !strcmp(command, "help"))
        return fputs(usage, stdout) < 0;
    if (!strcmp(command, "--version"))
        return puts(HVD_VERSION_STRING) < 0;
    if (!strcmp(command, "install")) {
        if (argc != 3)
            return main_refuse_usage("install takes one folder: hvd-agent install DEST",
                                     "");
        return agent_install(argv[2]);
    }
    if (!strcmp(command, "run"))
        return main_run(argv);
    if (!strcmp(command, "examine"))
        return examine_command(argv + 2);
    if (!strcmp(command, "token"))
        return main_token(argv);
    if (!strcmp(command, "attach"))
        return main_attach(argv[2]);
    return *command
               ? main_refuse_usage("unknown command ", command)
               : main_refuse_usage("a command is missing: run, serve, await, hosts, "
                                   "rsh, report, examine, token or install",
                                   "");
}

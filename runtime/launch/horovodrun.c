/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun -np N command:
 *
 *   options -> host list -> places -+-> local_job.c: all ranks run on this host
 *                     |             '-> remote.c: several hosts
 *                     '-> elastic_job.c: ranks may be replaced, added and removed
 *
 * Exit codes: that of the first failed rank, 128 + signal, 127 and 126 for the command,
 * 2 for the command line, 125 for failures of the launcher. Called by
 * horovodrun_main.c. */
#include "runtime/launch/horovodrun.h"

#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/launch/check_build.h"
#include "runtime/launch/config_file.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/discovery.h"
#include "runtime/launch/elastic_job.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/local_job.h"
#include "runtime/launch/outcome.h"
#include "runtime/launch/remote.h"
#include "runtime/launch/scratch.h"
#include "runtime/launch/self.h"
#include "runtime/launch/status.h"
#include "runtime/launch/termination.h"

#define EXIT_OWN     LOCAL_JOB_FAILED
#define EXIT_USAGE   2
#define DISCOVERY_MS 60000 /* limit of the discovery script */

struct horovodrun {
    const char *program;
    char *const *env;
    struct launch_options o;
    struct elastic_options elastic; /* if options_are_elastic */
    struct run_hosts hosts;
    char dir[PATH_MAX];             /* of the installed runtime, "": none */
    struct scratch_folder *scratch; /* shared with the guard */
    struct signals signals;
    struct guard guard;
    int signal; /* stop signal before any rank was started */
};

static int
launch_discover(void *arg, const char *command, struct hostlist *ret, struct err *err)
{
    struct horovodrun *l = arg;
    struct capture c = {.signals = &l->signals,
                        .guard = &l->guard,
                        .env = l->env,
                        .option = "--start-timeout",
                        .timeout_ms =
                            options_ms(&l->o, OPT_START_TIMEOUT, DISCOVERY_MS)};
    int rc =
        discovery_run(&c, command, options_u32(&l->o, OPT_SLOTS_PER_HOST, 1), ret, err);
    l->signal = c.signal;
    return rc;
}

static int launch_check_interfaces(const char *names, struct err *err)
{
    for (const char *p = names;; p++) {
        char name[IF_NAMESIZE];
        size_t len = strcspn(p, ",");
        (void)snprintf(name, sizeof(name), "%.*s", (int)len, p);
        if (len >= sizeof(name) || !if_nametoindex(name))
            return err_set(err, -EINVAL,
                           "--network-interfaces: this host has no interface %.*s (see "
                           "ip link)",
                           (int)len, p);
        p += len;
        if (!*p)
            return 0;
    }
}

/* The hosts may change, and have fewer slots than ranks for a while. */
static int launch_read_elastic(struct horovodrun *l, struct err *err)
{
    int rc = options_elastic(&l->o, &l->elastic, err);
    if (rc == 0)
        rc = run_hosts_read_list(&l->o, launch_discover, l, &l->hosts.list, err);
    l->hosts.np = l->elastic.start;
    const uint64_t slots = hostlist_slots(&l->hosts.list);
    if (rc == 0 && slots < l->elastic.start && !l->o.text[OPT_HOST_DISCOVERY_SCRIPT])
        rc = err_set(err, -EINVAL, "-np %u exceeds the %llu slots of the host list",
                     l->elastic.start, (unsigned long long)slots);
    return rc;
}

static int launch_read_hosts(struct horovodrun *l, struct err *err)
{
    const struct tf_roles roles = options_tf_roles(&l->o);
    uint32_t counts[TF_ROLE_COUNT];
    if (options_are_elastic(&l->o))
        return launch_read_elastic(l, err);
    int rc = run_hosts_read(&l->o, launch_discover, l, &l->hosts, err);
    return rc < 0 ? rc : tf_roles_count(&roles, l->hosts.np, counts, err);
}

static int launch_check_usage(struct horovodrun *l, struct err *err)
{
    enum log_level level = LOG_WARN;
    int rc = launch_read_hosts(l, err);
    if (rc < 0)
        return rc;
    if (l->o.text[OPT_LOG_LEVEL])
        (void)log_level_parse(l->o.text[OPT_LOG_LEVEL], &level);
    if (l->o.text[OPT_VERBOSE] && level > LOG_INFO)
        level = LOG_INFO;
    log_set_level(level);
    if (l->o.text[OPT_NETWORK_INTERFACES] && run_hosts_any_local(&l->hosts)
        && (rc = launch_check_interfaces(l->o.text[OPT_NETWORK_INTERFACES], err)) < 0)
        return rc;
    if (!l->o.command[0])
        return err_set(err, -EINVAL,
                       "the command is missing: %s -np %u python train.py", l->program,
                       l->hosts.np);
    return 0;
}

/* Time for other hosts to become ready, as in Horovod. Ranks wait longer for each
 * other. */
static int
launch_start_timeout(const struct horovodrun *l, uint64_t *ret_ms, struct err *err)
{
    const char *text = getenv("HOROVOD_START_TIMEOUT");
    *ret_ms = options_ms(&l->o, OPT_START_TIMEOUT, 30000);
    if (l->o.text[OPT_START_TIMEOUT] || !text || !*text)
        return 0;
    return parse_duration_ms("HOROVOD_START_TIMEOUT", text, 1, 86400000, ret_ms, err);
}

/* Runs a job with an agent on each host: other hosts, or an elastic job. */
static int launch_with_agents(struct horovodrun *l, struct err *err)
{
    const char *const *text = l->o.text;
    char iface[64] = "";
    const bool is_elastic = options_are_elastic(&l->o);
    struct hostlist hosts = {.v = l->hosts.list.v,
                             .n = is_elastic ? l->hosts.list.n : l->hosts.n};
    struct remote_job job = {
        .program = l->program,
        .dir = l->scratch->dir,
        .hosts = &hosts,
        .np = l->hosts.np,
        .argv = l->o.command,
        .env = l->env,
        .guard = &l->guard,
        .output_dir = text[OPT_OUTPUT_FILENAME],
        .with_timestamp = options_is_on(&l->o, OPT_PREFIX_TIMESTAMP),
        .vars = l->o.vars,
        .n_vars = l->o.n_vars,
        .roles = options_tf_roles(&l->o),
        .binding = text[OPT_BINDING],
        .nics = text[OPT_NETWORK_INTERFACES],
        .is_verbose = options_is_on(&l->o, OPT_VERBOSE),
        .token_file = text[OPT_TOKEN_FILE],
        .agent_port = (uint16_t)options_u32(&l->o, OPT_AGENT_PORT, 0),
        .ssh_port = (uint16_t)options_u32(&l->o, OPT_SSH_PORT, 0),
        .ssh_identity = text[OPT_SSH_IDENTITY_FILE],
        .uses_srun = options_is_on(&l->o, OPT_SLURM)};
    const struct elastic_job elastic = {.job = &job,
                                        .options = &l->elastic,
                                        .discovery = text[OPT_HOST_DISCOVERY_SCRIPT],
                                        .slots_per_host =
                                            options_u32(&l->o, OPT_SLOTS_PER_HOST, 1)};
    AUTOFREE struct remote_end *end = mem_zalloc(sizeof(*end));
    if (!end)
        return err_set(err, -ENOMEM, "out of memory"), EXIT_OWN;
    if (text[OPT_NETWORK_INTERFACES]) {
        (void)snprintf(iface, sizeof(iface), "%.*s",
                       (int)strcspn(text[OPT_NETWORK_INTERFACES], ","),
                       text[OPT_NETWORK_INTERFACES]);
        job.iface = iface;
    }
    if (launch_start_timeout(l, &job.start_timeout_ms, err) < 0)
        return EXIT_USAGE;
    if ((is_elastic ? elastic_job_run(&elastic, &l->signals, end, err)
                    : remote_run(&job, &l->signals, end, err))
        < 0)
        return EXIT_OWN;
    return outcome_print(l->program, end->has_failed ? &end->first : NULL,
                         end->forwarded_signal);
}

static void horovodrun_release(struct horovodrun *l)
{
    guard_stop(&l->guard);
    if (l->scratch)
        scratch_remove(l->scratch);
    scratch_unshare(l->scratch);
    run_hosts_release(&l->hosts);
    options_release(&l->o);
    signals_release(&l->signals);
}

/* 1: done, with *ret_code. */
static int launch_check_build(struct horovodrun *l, int *ret_code, struct err *err)
{
    struct strbuf out;
    struct capture c = {.signals = &l->signals,
                        .guard = &l->guard,
                        .env = l->env,
                        .option = "--start-timeout",
                        .timeout_ms =
                            options_ms(&l->o, OPT_START_TIMEOUT, DISCOVERY_MS)};
    strbuf_init(&out, 65536);
    if (l->o.text[OPT_VERBOSE])
        strbuf_putc(&out, '\n');
    int rc = check_build_render(&c, l->dir, &out, err);
    if (rc == 0)
        (void)fputs(strbuf_str(&out), stdout);
    strbuf_release(&out);
    *ret_code = rc == 0 ? 0 : c.signal ? 128 + c.signal : EXIT_OWN;
    return rc < 0 ? rc : 1;
}

/* The order matters: the guard is forked before any thread exists and before there is
 * anything to clean up. */
static int launch_begin(struct horovodrun *l, int *ret_code, struct err *err)
{
    int rc = signals_init(&l->signals, err);
    if (rc < 0 || (rc = scratch_share(&l->scratch, err)) < 0
        || (rc = guard_start(&l->guard, l->scratch, err)) < 0
        || (rc = scratch_make(l->scratch, "", err)) < 0)
        return rc;
    if (l->o.text[OPT_CHECK_BUILD])
        return launch_check_build(l, ret_code, err);
    rc = launch_check_usage(l, err);
    if (rc < 0)
        *ret_code = l->signal ? 128 + l->signal : EXIT_USAGE;
    return rc;
}

static int launch_all(struct horovodrun *l, struct err *err)
{
    int code = EXIT_OWN;
    self_runtime(l->dir, sizeof(l->dir));
    if (launch_begin(l, &code, err) != 0)
        return code;
    termination_clear(termination_path());
    if (options_are_elastic(&l->o) || !run_hosts_all_local(&l->hosts))
        return launch_with_agents(l, err);
    struct local_job_config c = {.program = l->program,
                                 .env = l->env,
                                 .o = &l->o,
                                 .hosts = &l->hosts,
                                 .dir = l->dir,
                                 .scratch = l->scratch,
                                 .signals = &l->signals,
                                 .guard = &l->guard};
    return local_job_run(&c, err);
}

static void launch_print_help(const struct horovodrun *l)
{
    struct strbuf help;
    strbuf_init(&help, 65536);
    options_help(l->program, &help);
    puts(l->o.text[OPT_HELP] ? strbuf_str(&help) : CHECK_BUILD_VERSION);
    strbuf_release(&help);
}

int horovodrun_main(int argc, char *const *argv, char *const *env)
{
    struct err err = ERR_INIT;
    AUTOFREE struct horovodrun *l = mem_zalloc(sizeof(*l));
    const char *slash = strrchr(argc ? argv[0] : "horovodrun", '/');
    if (!l)
        return EXIT_OWN;
    l->program = slash ? slash + 1 : argc ? argv[0] : "horovodrun";
    l->env = env;
    l->signals.fd = l->guard.fd = -1;
    log_set_tag(l->program, NULL);
    int code = EXIT_USAGE;
    if (options_parse(argc, argv, config_file_read, NULL, &l->o, &err) < 0)
        goto out;
    if (l->o.text[OPT_HELP] || l->o.text[OPT_VERSION]) {
        launch_print_help(l);
        code = 0;
        goto out;
    }
    if (l->o.text[OPT_STATUS]) {
        code = status_print(options_is_on(&l->o, OPT_JSON),
                            options_is_on(&l->o, OPT_VERBOSE), &err)
                       == 0
                   ? 0
                   : 1;
        goto out;
    }
    for (size_t i = 0; i < l->o.n_warnings; i++)
        fprintf(stderr, "%s: warning: %s\n", l->program, l->o.warnings[i]);
    code = launch_all(l, &err);
    int sig = signals_pending_stop();
    if (err.code == -EINTR && sig) /* while the output files were opened */
        code = 128 + sig;
out:
    horovodrun_release(l);
    if (err.code)
        fprintf(stderr, "%s: %s\n", l->program, err.text);
    return code;
}

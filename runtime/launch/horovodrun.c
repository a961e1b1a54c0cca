/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun -np N command, on one host:
 *
 *   options -> host list -> places -> contracts
 *   rendezvous server on 127.0.0.1; token and hostfile in a scratch folder
 *   loop of local_ranks.c
 *
 * After the first failure the reports of a short window are compared (verdict.c),
 * the other ranks are stopped, and the first failure and its rank's last lines are
 * printed. Exit codes: that of the first failed rank, 128 + signal, 127 and 126 for
 * the command, 2 for the command line, 125 for failures of the launcher. Several
 * hosts are the job of remote.c. Called by horovodrun_main.c. */
#include "runtime/launch/horovodrun.h"

#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/base/sha256.h"
#include "runtime/launch/check_build.h"
#include "runtime/launch/command.h"
#include "runtime/launch/config_file.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/discovery.h"
#include "runtime/launch/gpu_info.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/placement.h"
#include "runtime/launch/remote.h"
#include "runtime/launch/scratch.h"
#include "runtime/launch/self.h"
#include "runtime/launch/termination.h"
#include "runtime/rendezvous/rendezvous.h"

#define EXIT_OWN     125
#define EXIT_USAGE   2
#define DISCOVERY_MS 60000 /* limit of the discovery script */
#define ASK_GRACE_S  30    /* after Ctrl-C or SIGTERM, to save a checkpoint */

struct horovodrun {
    const char *program;
    char *const *env;
    struct launch_options o;
    struct run_hosts hosts;
    char dir[PATH_MAX], path[PATH_MAX], job_id[JOB_ID_MAX];
    const char *address;
    struct token token;
    struct scratch_folder *scratch; /* shared with the guard */
    struct signals signals;
    struct guard guard;
    struct rdv_server *server;
    uint16_t port;
    struct contract *ranks;
    struct placement placement;
    struct local_ranks *local;
    struct launch_verdict verdict;
    int signal; /* stop signal before any rank was started */
};

static int
launch_discover(void *arg, const char *command, struct hostlist *ret, struct err *err)
{
    struct horovodrun *l = arg;
    struct capture c = {.signals = &l->signals,
                        .guard = &l->guard,
                        .env = l->env,
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

static int launch_check_usage(struct horovodrun *l, struct err *err)
{
    enum log_level level = LOG_WARN;
    int rc = run_hosts_read(&l->o, launch_discover, l, &l->hosts, err);
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

/* Prints a failure; in a launcher's pod also reports it to the operator. */
static void launch_report_failure(const char *program, const struct report *r)
{
    char sentence[480];
    termination_write(termination_path(), r);
    report_sentence(r, sentence, sizeof(sentence));
    fprintf(stderr, "%s: %s\n", program, sentence);
    if (!*r->tail)
        return;
    fprintf(stderr, "%s: the last lines of rank %d:\n", program, r->f.rank);
    for (const char *p = r->tail; *p;) {
        size_t n = strcspn(p, "\n");
        fprintf(stderr, "    %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
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

/* Runs a job with other hosts. */
static int launch_remote(struct horovodrun *l, struct err *err)
{
    const char *const *text = l->o.text;
    char iface[64] = "";
    struct hostlist hosts = {.v = l->hosts.list.v, .n = l->hosts.n};
    struct remote_job job = {
        .program = l->program,
        .hosts = &hosts,
        .np = l->hosts.np,
        .argv = l->o.command,
        .env = l->env,
        .guard = &l->guard,
        .output_dir = text[OPT_OUTPUT_FILENAME],
        .with_timestamp = options_is_on(&l->o, OPT_PREFIX_TIMESTAMP),
        .vars = l->o.vars,
        .n_vars = l->o.n_vars,
        .binding = text[OPT_BINDING],
        .nics = text[OPT_NETWORK_INTERFACES],
        .is_verbose = options_is_on(&l->o, OPT_VERBOSE),
        .token_file = text[OPT_TOKEN_FILE],
        .agent_port = (uint16_t)options_u32(&l->o, OPT_AGENT_PORT, 0),
        .ssh_port = (uint16_t)options_u32(&l->o, OPT_SSH_PORT, 0),
        .ssh_identity = text[OPT_SSH_IDENTITY_FILE]};
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
    if (remote_run(&job, &l->signals, end, err) < 0)
        return EXIT_OWN;
    if (end->has_failed) {
        launch_report_failure(l->program, &end->first);
        return failure_exit_code(&end->first.f);
    }
    if (end->forwarded_signal) {
        fprintf(stderr, "%s: stopped by %s\n", l->program,
                signal_name(end->forwarded_signal));
        return 128 + end->forwarded_signal;
    }
    return 0;
}

/* Sets the first interface; NCCL gets all of them in a variable. */
static void launch_set_iface(const struct launch_options *o, struct contract *c)
{
    const char *names = o->text[OPT_NETWORK_INTERFACES];
    if (names)
        (void)snprintf(c->iface, sizeof(c->iface), "%.*s", (int)strcspn(names, ","),
                       names);
}

static int launch_make_contracts(struct horovodrun *l, struct err *err)
{
    l->ranks = mem_calloc(l->hosts.np, sizeof(*l->ranks));
    if (!l->ranks)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", l->hosts.np);
    for (uint32_t i = 0; i < l->hosts.np; i++) {
        struct contract *c = &l->ranks[i];
        contract_init(c);
        c->launcher = LAUNCHER_RINGMASTER;
        c->place = l->hosts.places[i];
        c->rdv_port = l->port;
        c->token_source = TOKEN_FILE;
        (void)snprintf(c->hostname, sizeof(c->hostname), "%s",
                       l->hosts.v[c->place.host].name);
        (void)snprintf(c->rdv_host, sizeof(c->rdv_host), "%s", l->address);
        (void)snprintf(c->job_id, sizeof(c->job_id), "%s", l->job_id);
        (void)snprintf(c->token_file, sizeof(c->token_file), "%s",
                       l->scratch->token_file);
        (void)snprintf(c->hostfile, sizeof(c->hostfile), "%s", l->scratch->hostfile);
        launch_set_iface(&l->o, c);
    }
    return 0;
}

/* Sets a port that was free just now, for scripts that also use torch.distributed. */
static void launch_set_master(struct horovodrun *l)
{
    int fd = -1;
    uint16_t port = 0;
    if (tcp_listen(l->address, 0, &fd, &port, NULL) < 0)
        return;
    fd_close(&fd);
    for (uint32_t i = 0; i < l->hosts.np; i++) {
        (void)snprintf(l->ranks[i].master_addr, sizeof(l->ranks[i].master_addr), "%s",
                       l->address);
        l->ranks[i].master_port = port;
    }
}

static int launch_start_server(struct horovodrun *l, struct err *err)
{
    int fd = -1;
    uint8_t bytes[8];
    char hex[2 * sizeof(bytes) + 1];
    int rc = random_bytes(bytes, sizeof(bytes));
    if (rc < 0)
        return err_errno(err, -rc, "no random bytes from the system");
    hex_encode(bytes, sizeof(bytes), hex);
    (void)snprintf(l->job_id, sizeof(l->job_id), "horovodrun/%s", hex);
    if ((rc = token_random(&l->token, err)) < 0
        || (rc = tcp_listen(l->address, 0, &fd, &l->port, err)) < 0)
        return rc;
    struct auth_id id = {.token = &l->token, .job_id = l->job_id, .generation = 0};
    rc = rdv_server_start(fd, &id, l->hosts.np, &l->server, err);
    if (rc < 0)
        fd_close(&fd);
    return rc;
}

static void launch_show_placement(const struct horovodrun *l)
{
    struct strbuf table;
    if (!l->o.text[OPT_VERBOSE])
        return;
    strbuf_init(&table, 16u << 20);
    placement_table(&l->placement, l->ranks, l->hosts.np,
                    l->o.text[OPT_NETWORK_INTERFACES], &table);
    (void)fputs(strbuf_str(&table), stderr);
    strbuf_release(&table);
}

static int launch_prepare(struct horovodrun *l,
                          struct local_ranks_config *c,
                          int *ret_code,
                          struct err *err)
{
    char search[32768];
    *c = (struct local_ranks_config){.size = l->hosts.np,
                                     .n = l->hosts.np,
                                     .argv = l->o.command,
                                     .env = l->env,
                                     .path = l->path,
                                     .dir = l->dir,
                                     .output_dir = l->o.text[OPT_OUTPUT_FILENAME],
                                     .with_timestamp =
                                         options_is_on(&l->o, OPT_PREFIX_TIMESTAMP),
                                     .out_fd = 1,
                                     .err_fd = 2,
                                     .signal_grace_ns = ASK_GRACE_S * NS_PER_S,
                                     .vars = l->o.vars,
                                     .n_vars = l->o.n_vars};
    (void)local_ranks_search_path(c, search, sizeof(search));
    int rc = command_find(l->o.command[0], *search ? search : NULL, l->path, err);
    if (rc > 0) {
        *ret_code = rc;
        return -ENOENT;
    }
    if ((rc = launch_start_server(l, err)) < 0
        || (rc = scratch_write(l->scratch, &l->token, &l->hosts.list, err)) < 0
        || (rc = launch_make_contracts(l, err)) < 0
        || (rc =
                placement_make(l->o.text[OPT_BINDING], l->hosts.np, &l->placement, err))
               < 0)
        return rc;
    launch_set_master(l);
    launch_show_placement(l);
    c->ranks = l->ranks;
    c->placement = &l->placement;
    if ((rc = local_ranks_new(c, &l->signals, &l->guard, &l->local, err)) < 0)
        return rc;
    return local_ranks_start(l->local, ret_code, err);
}

/* Reports the failed rank at once to ranks that wait in the rendezvous. */
static void launch_fail_rendezvous(struct horovodrun *l)
{
    char sentence[480];
    report_sentence(verdict_pick(&l->verdict), sentence, sizeof(sentence));
    rdv_server_fail(l->server, sentence);
}

static void launch_serve(struct horovodrun *l, struct local_ranks_event *ev)
{
    bool is_decided = false;
    while (!local_ranks_has_ended(l->local)) {
        uint64_t due = is_decided ? UINT64_MAX : verdict_deadline_ns(&l->verdict);
        local_ranks_step(l->local, NULL, 0, due);
        while (local_ranks_next(l->local, ev)) {
            if (ev->kind == LOCAL_SIGNAL)
                log_info("signal forwarded", "signal=%s", signal_name(ev->signal));
            if (ev->kind == LOCAL_RANK_OK)
                log_info("rank ended", "rank=%u code=0",
                         l->ranks[ev->index].place.rank);
            if (ev->kind == LOCAL_RANK_FAILED && !is_decided && !ev->is_expected
                && verdict_add(&l->verdict, &ev->report, clock_now_ns()) == 0)
                launch_fail_rendezvous(l);
        }
        if (!is_decided && clock_now_ns() >= verdict_deadline_ns(&l->verdict)) {
            is_decided = true;
            if (local_ranks_running(l->local)) /* otherwise only output is left */
                local_ranks_stop(l->local);
        }
    }
}

static int launch_exit_code(struct horovodrun *l)
{
    const struct report *first = verdict_pick(&l->verdict);
    int sig = local_ranks_forwarded_signal(l->local);
    if (first) {
        launch_report_failure(l->program, first);
        return failure_exit_code(&first->f);
    }
    if (local_ranks_running(l->local))
        fprintf(stderr, "%s: %u ranks cannot be killed: they hang in the kernel\n",
                l->program, local_ranks_running(l->local));
    if (sig) {
        fprintf(stderr, "%s: stopped by %s\n", l->program, signal_name(sig));
        return 128 + sig;
    }
    return local_ranks_running(l->local) ? EXIT_OWN : 0;
}

static void horovodrun_release(struct horovodrun *l)
{
    local_ranks_free(l->local);
    rdv_server_stop(l->server);
    guard_stop(&l->guard);
    if (l->scratch)
        scratch_remove(l->scratch);
    scratch_unshare(l->scratch);
    verdict_release(&l->verdict);
    run_hosts_release(&l->hosts);
    options_release(&l->o);
    mem_free(l->ranks);
    placement_release(&l->placement);
    token_wipe(&l->token);
    signals_release(&l->signals);
}

/* 1: done, with *ret_code. */
static int launch_check_build(struct horovodrun *l, int *ret_code, struct err *err)
{
    struct strbuf out;
    struct capture c = {.signals = &l->signals,
                        .guard = &l->guard,
                        .env = l->env,
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
    struct local_ranks_config c;
    char warning[400];
    int code = EXIT_OWN;
    self_runtime(l->dir, sizeof(l->dir));
    if (launch_begin(l, &code, err) != 0)
        return code;
    termination_clear(termination_path());
    if (!run_hosts_all_local(&l->hosts))
        return launch_remote(l, err);
    l->address = strchr(l->hosts.v[0].name, ':') ? "::1" : "127.0.0.1";
    command_python_warning(l->o.command, warning, sizeof(warning));
    if (*warning && *l->dir)
        fprintf(stderr, "%s: warning: %s\n", l->program, warning);
    AUTOFREE struct local_ranks_event *ev = mem_zalloc(sizeof(*ev));
    if (!ev)
        return err_set(err, -ENOMEM, "out of memory"), EXIT_OWN;
    if (l->o.text[OPT_VERBOSE]) { /* before any thread exists */
        char before[64];
        (void)snprintf(before, sizeof(before), "%.60s: ", l->program);
        gpu_info_print(&l->signals, l->env, before, 2);
    }
    if (launch_prepare(l, &c, &code, err) < 0)
        return code;
    log_info("started", "np=%u command=\"%s\" runtime=\"%s\"", l->hosts.np, l->path,
             l->dir);
    launch_serve(l, ev);
    return launch_exit_code(l);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent run: one worker of a job.
 *
 *   env, token, command checked -> [worker 0: hub thread] -> dial -> HELLO -> TABLE
 *     -> hostfile, contracts -> engine -> FAILED | DONE -> STOP | FINISH -> exit code
 *
 * The hub decides; this agent reports and obeys. While it runs ranks it never stops
 * them because one of them failed: it says so, and the STOP that comes back names the
 * first failure of the whole job, which every agent writes to its termination log and
 * exits with. Without the hub (worker 0 lost) it decides by itself and names worker 0.
 * Before the TABLE a lost hub may come back (its pod was started anew) and is dialled
 * again. One thread, beside the hub's and the dialler's. Called by agent_main.c. */
#include "runtime/launch/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/agent_env.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/command.h"
#include "runtime/launch/contracts.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/dial.h"
#include "runtime/launch/engine.h"
#include "runtime/launch/hub.h"
#include "runtime/launch/metrics.h"
#include "runtime/launch/scratch.h"

#define DEFAULT_PEER_TIMEOUT_MS 30000
#define FAREWELL_NS             (3 * NS_PER_S) /* to get our own failure to the hub and back */

enum outcome { GOING, STARTED, FINISHED, FAILED, HUB_GONE };

struct agent {
    struct agent_env env;
    struct token token;
    char host[HOST_NAME_MAX_BYTES], path[PATH_MAX], tag[32], title[48];
    char *const *argv;
    uint64_t peer_timeout_ns, start_deadline_ns;
    struct signals signals;
    struct guard guard;
    struct scratch scratch;
    struct placement placement;
    struct hub *hub;
    uint32_t metrics_port; /* 0: none */
    struct metrics *metrics;
    struct channel channel;
    bool is_connected, is_done_sent, has_reported;
    bool is_own; /* first is this worker's own failure, which the hub has not told us */
    struct table table;
    struct contract *ranks;
    uint32_t n;
    struct engine *engine;
    struct engine_event ev;
    struct report first; /* the failure that this agent ends with */
};

static const char *from_env(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* A failure that is no rank's. Returns FAILED, so that callers can pass it on. */
static enum outcome fail(struct agent *a, int code, const char *why)
{
    memset(&a->first, 0, sizeof(a->first));
    a->is_own = true;
    a->first.f.rank = a->first.blames = -1;
    a->first.f.exit_code = code;
    a->first.f.at_wall_us = clock_wall_us();
    (void)snprintf(a->first.f.host, sizeof(a->first.f.host), "%s", a->host);
    (void)snprintf(a->first.f.why, sizeof(a->first.f.why), "%.230s", why);
    return FAILED;
}

static enum outcome fail_signal(struct agent *a, int sig, const char *when)
{
    char why[200];
    (void)snprintf(why, sizeof(why),
                   "worker %u received %s %s: its pod was deleted or evicted",
                   a->env.worker_index, signal_name(sig), when);
    (void)fail(a, 0, why);
    a->first.f.signal = sig;
    return FAILED;
}

static void send_report(struct agent *a, const struct report *r)
{
    struct strbuf payload;
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    report_write(r, &payload);
    if (a->is_connected && strbuf_status(&payload) == 0)
        (void)channel_send(&a->channel, MESSAGE_FAILED, strbuf_str(&payload), payload.n,
                           clock_now_ns()); /* a lost hub shows at the next poll */
    strbuf_release(&payload);
    a->has_reported = true;
}

/* --- waiting: dial, hello, table
 * --------------------------------------------------------- */

/* Waits on one descriptor beside signals. 1 readable or due, 0 try again, FAILED by
 * signal. */
static enum outcome
wait_for(struct agent *a, int fd, short events, uint64_t deadline_ns)
{
    struct pollfd p[2] = {{.fd = a->signals.fd, .events = POLLIN},
                          {.fd = fd, .events = events}};
    int sig, status;
    (void)poll(p, 2, clock_left_ms(deadline_ns));
    while ((sig = signals_next(&a->signals)) > 0) {
        if (signals_is_stop(sig))
            return fail_signal(a, sig, "before the job started");
        while (sig == SIGCHLD && signals_reap(&status) > 0)
            ; /* orphans of the container: we are PID 1 */
    }
    return GOING;
}

static void send_hello(struct agent *a)
{
    struct strbuf payload;
    struct hello h = {.worker = a->env.worker_index,
                      .workers = a->env.num_workers,
                      .slots = a->env.slots,
                      .np = a->env.np};
    (void)snprintf(h.host, sizeof(h.host), "%s", a->host);
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    hello_write(&h, &payload);
    (void)channel_send(&a->channel, MESSAGE_HELLO, strbuf_str(&payload), payload.n,
                       clock_now_ns());
    strbuf_release(&payload);
}

static enum outcome reach_hub(struct agent *a)
{
    struct err err = ERR_INIT;
    struct auth_id id = {
        .token = &a->token, .job_id = a->env.job_id, .generation = a->env.generation};
    bool is_hub = a->env.worker_index == 0;
    struct dial *dial;
    struct auth_session session;
    char why[240];
    int fd;
    struct dial_to to = {.host = is_hub ? "127.0.0.1" : a->env.checkin_addr,
                         .port = a->env.checkin_port,
                         .mine = ROLE_AGENT,
                         .theirs = ROLE_AGENT_HUB};
    if (dial_start(&to, &id, a->start_deadline_ns, &dial, &err) < 0)
        return fail(a, 125, err.text);
    struct pollfd p = {.fd = dial_fd(dial), .events = POLLIN};
    while (poll(&p, 1, 0) <= 0) /* the thread ends at start_deadline_ns at the latest */
        if (wait_for(a, p.fd, POLLIN, UINT64_MAX) == FAILED)
            return FAILED; /* the process ends, and the thread with it */
    if (dial_end(dial, &fd, &session, &err) < 0) {
        (void)snprintf(
            why, sizeof(why), "worker %u could not reach worker 0 at %.60s:%u: %.130s",
            a->env.worker_index, a->env.checkin_addr, a->env.checkin_port, err.text);
        return fail(a, 125, why);
    }
    channel_init(&a->channel, fd, &session, MESSAGE_TO_AGENT_MAX_BYTES, clock_now_ns());
    a->is_connected = true;
    return GOING;
}

/* --- frames
 * ------------------------------------------------------------------------------ */

static enum outcome take_frame(struct agent *a, const struct frame *f)
{
    struct err err = ERR_INIT;
    switch (f->type) {
    case MESSAGE_TABLE:
        table_release(&a->table);
        if (table_read(f->p, f->n, &a->table, &err) < 0)
            return fail(a, 125, err.text);
        return STARTED;
    case MESSAGE_STOP:
        if (report_read(f->p, f->n, &a->first, &err) < 0)
            return fail(a, 125, err.text);
        a->is_own = false;
        return FAILED;
    case MESSAGE_REFUSED: {
        char why[240];
        (void)snprintf(why, sizeof(why), "worker 0 refused worker %u: %.*s",
                       a->env.worker_index, (int)(f->n < 190 ? f->n : 190),
                       (const char *)f->p);
        (void)fail(a, 125, why);
        a->is_own = false; /* the job goes on without us */
        return FAILED;
    }
    case MESSAGE_FINISH:
        return FINISHED;
    case MESSAGE_PING:
        return GOING;
    }
    return fail(a, 125, "worker 0 sent a message that this version does not know");
}

static void hub_gone(struct agent *a, const char *why)
{
    char text[240];
    (void)snprintf(text, sizeof(text), "worker 0 (%.100s) was lost: %.80s",
                   a->env.checkin_addr, why);
    (void)fail(a, 125, text);
    if (a->table.hosts.n) /* it happened there, not here */
        (void)snprintf(a->first.f.host, sizeof(a->first.f.host), "%s",
                       a->table.hosts.v[0].name);
    a->is_connected = false;
    channel_release(&a->channel);
}

/* Serves the channel; the first outcome that is not GOING. */
static enum outcome serve_hub(struct agent *a)
{
    struct err err = ERR_INIT;
    struct frame f;
    enum outcome o = GOING;
    int gone = channel_serve(&a->channel, clock_now_ns()), rc;
    while (o == GOING && (rc = channel_next(&a->channel, &f, &err)) != 0) {
        if (rc < 0)
            return fail(a, 125, err.text);
        o = take_frame(a, &f);
        channel_drop(&a->channel, &f);
    }
    if (o != GOING || gone == 0)
        return o;
    hub_gone(a, gone == -EPIPE ? "its agent ended" : strerror(-gone));
    return HUB_GONE;
}

/* Heartbeat; HUB_GONE after a silence. */
static enum outcome tick_hub(struct agent *a, uint64_t *ret_next_ns)
{
    char why[64];
    int rc = channel_tick(&a->channel, MESSAGE_PING, a->peer_timeout_ns, clock_now_ns(),
                          ret_next_ns);
    if (rc == 0)
        return GOING;
    (void)snprintf(why, sizeof(why),
                   rc == -ETIMEDOUT ? "silent for %llu s" : "cannot send",
                   (unsigned long long)(a->peer_timeout_ns / NS_PER_S));
    hub_gone(a, why);
    return HUB_GONE;
}

/* The hub's answer: table, stop, refusal. */
static enum outcome wait_table(struct agent *a)
{
    for (;;) {
        uint64_t next = 0;
        enum outcome o = tick_hub(a, &next);
        if (o == GOING)
            o = wait_for(a, a->channel.fd, channel_events(&a->channel), next);
        if (o == GOING)
            o = serve_hub(a);
        if (o == HUB_GONE && clock_now_ns() >= a->start_deadline_ns)
            return FAILED;
        if (o != GOING)
            return o;
    }
}

/* Told to stop while waiting, or unable to run: the others must hear it. Waits until
 * the hub has closed or said STOP. */
static void say_farewell(struct agent *a)
{
    struct report own = a->first;
    uint64_t until = clock_now_ns() + FAREWELL_NS;
    send_report(a, &own);
    while (a->is_connected && clock_now_ns() < until) {
        struct pollfd p = {.fd = a->channel.fd, .events = channel_events(&a->channel)};
        (void)poll(&p, 1, clock_left_ms(until));
        if (serve_hub(a) != GOING)
            break;
    }
    if (a->is_own)
        a->first = own; /* not the loss of the hub that followed */
}

static enum outcome join_job(struct agent *a)
{
    for (;;) {
        enum outcome o = reach_hub(a);
        if (o != GOING)
            return o;
        send_hello(a);
        o = wait_table(a);
        if (o != HUB_GONE)
            return o;
        log_warn("connection to worker 0 lost before the start; trying again",
                 "cause=\"%s\"", a->first.f.why);
    }
}

/* --- running
 * ------------------------------------------------------------------------------ */

static int make_contracts(struct agent *a, struct err *err)
{
    struct contract c;
    contract_init(&c);
    c.launcher = LAUNCHER_RINGMASTER;
    c.rdv_port = a->table.rdv_port;
    c.master_port = a->table.master_port;
    c.generation = a->env.generation;
    c.token_source = TOKEN_FILE;
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "%s", a->table.address);
    (void)snprintf(c.master_addr, sizeof(c.master_addr), "%s", a->table.address);
    (void)snprintf(c.job_id, sizeof(c.job_id), "%s", a->env.job_id);
    (void)snprintf(c.token_file, sizeof(c.token_file), "%s", a->scratch.token_file);
    (void)snprintf(c.hostfile, sizeof(c.hostfile), "%s", a->scratch.hostfile);
    return contracts_make(&a->table.hosts, a->env.np, a->env.worker_index, &c,
                          &a->ranks, &a->n, err);
}

static enum outcome start_ranks(struct agent *a, struct engine_config *c)
{
    struct err err = ERR_INIT;
    int code = 125;
    if (scratch_write(&a->scratch, &a->token, &a->table.hosts, &err) < 0
        || make_contracts(a, &err) < 0
        || placement_make(NULL, a->n, &a->placement, &err) < 0)
        return fail(a, code, err.text);
    c->placement = &a->placement;
    c->n = a->n;
    c->ranks = a->ranks;
    c->size = a->env.np ? a->env.np : (uint32_t)hostlist_slots(&a->table.hosts);
    if (engine_new(c, &a->signals, &a->guard, &a->engine, &err) < 0
        || engine_start(a->engine, &code, &err) < 0)
        return fail(a, code, err.text);
    log_info("ranks started", "ranks=%u of=%u command=\"%s\"", a->n, c->size, a->path);
    return GOING;
}

static void take_events(struct agent *a)
{
    while (engine_next(a->engine, &a->ev)) {
        struct report *r = &a->ev.report;
        int sig = engine_asked_signal(a->engine);
        if (a->ev.kind == ENGINE_SIGNAL)
            log_info("signal forwarded to the ranks", "signal=%s",
                     signal_name(a->ev.signal));
        if (a->ev.kind != ENGINE_RANK_FAILED)
            continue;
        if (a->ev.was_asked && sig && !a->has_reported) { /* the signal is the cause */
            (void)fail_signal(a, sig, "and so did its ranks");
            a->first.first_rank = a->ranks[0].place.rank;
            a->first.n_ranks = a->n;
            send_report(a, &a->first);
        } else if (!a->ev.was_asked) {
            send_report(a, r);
        }
    }
}

/* All ranks have exited with 0 and nothing was reported. */
static void say_done(struct agent *a)
{
    if (a->is_done_sent || a->has_reported || !engine_has_ended(a->engine))
        return;
    a->is_done_sent = true;
    if (engine_running(a->engine)) { /* it could not be killed */
        (void)fail(a, 125, "ranks cannot be killed: they hang in the kernel");
        send_report(a, &a->first);
    } else {
        (void)channel_send(&a->channel, MESSAGE_DONE, NULL, 0, clock_now_ns());
    }
}

static enum outcome run_ranks(struct agent *a)
{
    enum outcome o = GOING;
    while (o == GOING) {
        uint64_t next = UINT64_MAX;
        o = tick_hub(a, &next);
        if (o != GOING)
            break;
        say_done(a);
        struct pollfd p = {.fd = a->channel.fd, .events = channel_events(&a->channel)};
        engine_step(a->engine, &p, 1, next);
        take_events(a);
        o = serve_hub(a);
    }
    if (o == HUB_GONE && a->is_done_sent && !a->has_reported)
        log_warn("worker 0 was lost after this worker's ranks had ended well",
                 "worker=%u", a->env.worker_index);
    if (o != FINISHED)
        engine_stop(a->engine);
    while (!engine_has_ended(a->engine)) {
        engine_step(a->engine, NULL, 0, UINT64_MAX);
        while (engine_next(a->engine, &a->ev))
            ; /* consequences of the stop */
    }
    return o == HUB_GONE ? FAILED : o;
}

/* --- the end
 * ------------------------------------------------------------------------------ */

static void write_termination(const struct agent *a, const char *text, size_t n)
{
    if (!*a->env.termination_log)
        return;
    /* the kubelet mounts this one file: it cannot be renamed over */
    CLEANUP(fd_close)
    int fd =
        open(a->env.termination_log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || fd_write_full(fd, text, n, clock_now_ns() + NS_PER_S) < 0)
        log_warn("cannot write the termination message", "file=%s",
                 a->env.termination_log);
}

static int end(struct agent *a, enum outcome o)
{
    char sentence[480];
    struct strbuf message;
    if (o == FINISHED)
        return 0;
    strbuf_init(&message, MESSAGE_MAX_BYTES + 1);
    report_message(&a->first, &message);
    write_termination(a, strbuf_str(&message), message.n);
    strbuf_release(&message);
    report_sentence(&a->first, sentence, sizeof(sentence));
    fprintf(stderr, "%s: %s\n", a->title, sentence);
    if (*a->first.tail)
        fprintf(stderr, "%s: the last lines of rank %d:\n%s", a->title, a->first.f.rank,
                a->first.tail);
    return failure_exit_code(&a->first.f);
}

static int read_settings(struct agent *a, struct err *err)
{
    const char *timeout = getenv("HVD_PEER_TIMEOUT"),
               *level = getenv("HOROVOD_LOG_LEVEL"), *port = getenv("HVD_METRICS_PORT");
    uint64_t ms = DEFAULT_PEER_TIMEOUT_MS;
    enum log_level min = LOG_INFO;
    if (level && log_level_parse(level, &min) == 0 && min < LOG_INFO)
        log_set_level(min);
    else
        log_set_level(LOG_INFO);
    (void)gethostname(a->host, sizeof(a->host) - 1);
    if (!*a->host)
        (void)snprintf(a->host, sizeof(a->host), "unknown");
    int rc = agent_env_parse(from_env, NULL, &a->env, err);
    (void)snprintf(a->tag, sizeof(a->tag), "worker %u", a->env.worker_index);
    (void)snprintf(a->title, sizeof(a->title), "hvd-agent[%s]", a->tag);
    if (rc < 0)
        return rc;
    if (timeout
        && (rc =
                parse_duration_ms("HVD_PEER_TIMEOUT", timeout, 100, 86400000, &ms, err))
               < 0)
        return rc;
    if (port && *port
        && (rc = parse_u32("HVD_METRICS_PORT", port, 0, 65535, &a->metrics_port, err))
               < 0)
        return rc;
    a->peer_timeout_ns = ms * NS_PER_MS;
    a->start_deadline_ns = clock_now_ns() + a->env.start_timeout_s * NS_PER_S;
    if (a->env.worker_index == 0)
        a->start_deadline_ns += NS_PER_S; /* the hub speaks first */
    return token_read_file(a->env.token_file, &a->token, err);
}

/* Anything that would keep the ranks from starting, before the others wait for us. */
static int
check_command(struct agent *a, const struct engine_config *c, struct err *err)
{
    char search[32768], warning[400];
    (void)engine_search_path(c, search, sizeof(search));
    command_python_warning(a->argv, warning, sizeof(warning));
    if (*warning)
        log_warn("the runtime may not be found", "cause=\"%s\"", warning);
    return command_find(a->argv[0], *search ? search : NULL, a->path, err);
}

/* After the fork of the guard, which needs no thread of ours. */
static void serve_metrics(struct agent *a, struct engine_config *c)
{
    struct err err = ERR_INIT;
    if (!a->metrics_port)
        return;
    if (metrics_start((uint16_t)a->metrics_port, a->scratch.dir, &a->metrics, &err) < 0)
        log_warn("cannot serve metrics, going on without", "port=%u cause=\"%s\"",
                 a->metrics_port, err.text);
    else
        c->stats_dir = a->scratch.dir;
}

static enum outcome run(struct agent *a, struct engine_config *c)
{
    struct err err = ERR_INIT;
    char text[300];
    int rc = signals_init(&a->signals, &err);
    if (rc < 0 || (rc = read_settings(a, &err)) < 0)
        return fail(a, 125, err.text);
    log_set_tag("hvd-agent", a->tag);
    int code = check_command(a, c, &err);
    if (!code && scratch_make(&a->scratch, a->env.dir, &err) < 0)
        code = 125;
    if (!code && getpid() != 1 && guard_start(&a->guard, &a->scratch, &err) < 0)
        code = 125;
    if (!code)
        serve_metrics(a, c);
    (void)snprintf(text, sizeof(text), "%.230s", err.text);
    if (a->env.worker_index == 0
        && hub_start(&a->env, &a->token, a->peer_timeout_ns, &a->hub, &err) < 0)
        return fail(a, 125, err.text);
    if (code) { /* reach the others all the same: they would wait for us */
        enum outcome reached = reach_hub(a);
        (void)fail(a, code, text);
        if (reached == GOING)
            say_farewell(a);
        return FAILED;
    }
    enum outcome o = join_job(a);
    if (o != STARTED) {
        if (o == FAILED && a->is_connected && a->is_own)
            say_farewell(a);
        return o;
    }
    o = start_ranks(a, c);
    if (o == FAILED) {
        say_farewell(a);
        return o;
    }
    return run_ranks(a);
}

static void release(struct agent *a)
{
    engine_free(a->engine);
    if (a->is_connected)
        channel_release(&a->channel);
    hub_finish(a->hub, clock_now_ns() + 20 * NS_PER_S);
    metrics_stop(a->metrics);
    guard_stop(&a->guard);
    scratch_remove(&a->scratch);
    table_release(&a->table);
    placement_release(&a->placement);
    mem_free(a->ranks);
    token_wipe(&a->token);
    signals_release(&a->signals);
}

int agent_run(char *const *argv, char *const *env)
{
    AUTOFREE struct agent *a = mem_zalloc(sizeof(*a));
    if (!a)
        return 125;
    a->argv = argv;
    a->signals.fd = -1;
    (void)snprintf(a->title, sizeof(a->title), "hvd-agent");
    log_set_tag("hvd-agent", NULL);
    struct engine_config c = {.argv = argv,
                              .env = env,
                              .path = a->path,
                              .dir = a->env.dir,
                              .out_fd = 1,
                              .err_fd = 2,
                              .ask_grace_ns = UINT64_MAX};
    enum outcome o = run(a, &c);
    int code = end(a, o);
    release(a);
    return code;
}

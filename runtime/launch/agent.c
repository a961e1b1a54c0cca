/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent run: one worker of a job.
 *
 *   environment, token, command checked -> [worker 0: hub thread] -> connect
 *        |
 *        v
 *   .-> HELLO -> TABLE -> hostfile, contracts -> local_ranks.c runs the ranks
 *   |                                                |
 *   |      FAILED | DONE -> STOP | FINISH -----------+-> exit code
 *   |                                                |
 *   '------ has a place in the new world <- WORLD: ranks are stopped
 *                                            '-> no place: exit with 0
 *
 * The hub decides; this agent reports events and does what the hub sends. It does not
 * stop its ranks because one of them failed. It reports the failure, and the hub's STOP
 * names the first failure of the whole job, which every agent writes to its termination
 * log and exits with. If the hub is lost, the agent decides by itself and names worker
 * 0 as the cause. When a new world is formed the ranks are stopped, which is no
 * failure, and started again.
 *
 * One thread, in addition to those of hub.c, dial.c and metrics.c. Called by
 * agent_main.c. */
#include "runtime/launch/agent.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/launch/agent_state.h"
#include "runtime/launch/command.h"
#include "runtime/launch/contracts.h"
#include "runtime/launch/gpu_info.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/launch/termination.h"
#include "runtime/launch/environment.h"

#define DEFAULT_PEER_TIMEOUT_MS 30000

/* --- ranks --- */

static int agent_make_contracts(struct agent *a, struct err *err)
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

/* Before the signal is forwarded: the hub receives LEAVING before other workers can
 * report failures that it causes. */
static void agent_begin_leaving(void *arg)
{
    struct agent *a = arg;
    agent_send_leaving(a);
}

static enum outcome agent_start_ranks(struct agent *a, struct local_ranks_config *c)
{
    struct err err = ERR_INIT;
    int code = 125;
    if (scratch_write(&a->scratch, &a->token, &a->table.hosts, &err) < 0
        || agent_make_contracts(a, &err) < 0
        || placement_make(NULL, a->n, &a->placement, &err) < 0)
        return agent_fail(a, code, err.text);
    c->placement = &a->placement;
    c->n = a->n;
    c->ranks = a->ranks;
    c->size = a->env.np ? a->env.np : (uint32_t)hostlist_slots(&a->table.hosts);
    c->stats_dir = stats_dir_choose(getenv("HVD_STATS_DIR"), a->scratch.stats_dir);
    metrics_set_generation(a->metrics, a->env.generation);
    if (local_ranks_new(c, &a->signals, &a->guard, &a->local, &err) < 0
        || local_ranks_start(a->local, &code, &err) < 0)
        return agent_fail(a, code, err.text);
    agent_begin_live(a, c->stats_dir);
    log_info("ranks started", "ranks=%u of=%u command=\"%s\"", a->n, c->size, a->path);
    return GOING;
}

static void agent_take_events(struct agent *a)
{
    while (local_ranks_next(a->local, &a->ev)) {
        struct report *r = &a->ev.report;
        int sig = local_ranks_forwarded_signal(a->local);
        if (a->ev.kind == LOCAL_SIGNAL)
            log_info("signal forwarded to the ranks", "signal=%s",
                     signal_name(a->ev.signal));
        if (a->ev.kind != LOCAL_RANK_FAILED)
            continue;
        if (a->ev.is_expected && sig
            && !a->has_reported) { /* the signal is the cause, not the rank */
            (void)agent_fail_signal(a, sig, "and so did its ranks");
            a->first.first_rank = a->ranks[0].place.rank;
            a->first.n_ranks = a->n;
            agent_send_report(a, &a->first);
        } else if (!a->ev.is_expected) {
            agent_send_report(a, r);
        }
    }
}

static enum outcome agent_fail_stuck(struct agent *a)
{
    return agent_fail(a, 125, "ranks cannot be killed: they hang in the kernel");
}

/* Sends DONE once all ranks have exited with 0 and no failure was reported. */
static void agent_report_done(struct agent *a)
{
    if (a->is_done_sent || a->has_reported || !local_ranks_has_ended(a->local))
        return;
    if (local_ranks_running(a->local)) {
        (void)agent_fail_stuck(a);
        agent_send_report(a, &a->first);
    } else {
        agent_send_done(a);
    }
}

/* One iteration of the loop while the hub is connected. */
static enum outcome agent_serve_once(struct agent *a, void (*take)(struct agent *))
{
    uint64_t next = UINT64_MAX;
    enum outcome o = agent_tick_hub(a, &next);
    if (o != GOING)
        return o;
    agent_watch_file(a, &next);
    live_host_tick(&a->live, a->local, &next);
    struct pollfd p = {.fd = a->channel.conn.fd, .events = channel_events(&a->channel)};
    local_ranks_step(a->local, &p, 1, next);
    take(a);
    return agent_serve_hub(a);
}

/* Drops the exits of ranks that this agent has stopped: they are no failures. */
static void agent_drop_events(struct agent *a)
{
    while (local_ranks_next(a->local, &a->ev))
        ;
}

static void agent_drop_ranks(struct agent *a)
{
    live_host_end(&a->live);
    local_ranks_free(a->local);
    a->local = NULL;
    placement_release(&a->placement);
    mem_free(a->ranks);
    a->ranks = NULL;
    a->n = 0;
    a->is_done_sent = a->has_reported = false;
    a->has_run = true;
}

static void agent_set_start_deadline(struct agent *a)
{
    a->start_deadline_ns = clock_now_ns() + a->env.start_timeout_s * NS_PER_S;
    if (a->env.worker_index == 0)
        /* so that the hub's own timeout is reported */
        a->start_deadline_ns += NS_PER_S;
}

/* Stops the ranks because a new world is formed. The hub is served meanwhile: it may
 * form yet another world or stop the job. */
static enum outcome agent_leave_world(struct agent *a)
{
    enum outcome o = REFORMED;
    local_ranks_stop(a->local);
    while (!local_ranks_has_ended(a->local)) {
        if (o == REFORMED) {
            enum outcome now = agent_serve_once(a, agent_drop_events);
            o = now == GOING ? o : now;
        } else {
            local_ranks_step(a->local, NULL, 0, UINT64_MAX);
            agent_drop_events(a);
        }
    }
    bool has_ranks_left = local_ranks_running(a->local) > 0;
    int sig = local_ranks_received_signal(a->local);
    agent_drop_ranks(a);
    agent_set_start_deadline(a);
    if (o != REFORMED)
        return o == HUB_GONE ? FAILED : o;
    if (!agent_has_place(a))
        return LEFT;
    if (has_ranks_left)
        (void)agent_fail_stuck(a);
    else if (sig)
        (void)agent_fail_signal(a, sig, "while another world was formed");
    return has_ranks_left || sig ? agent_leave_job(a) : REFORMED;
}

static enum outcome agent_run_ranks(struct agent *a)
{
    enum outcome o = GOING;
    while (o == GOING) {
        agent_report_done(a);
        o = agent_serve_once(a, agent_take_events);
    }
    if (o == REFORMED)
        return agent_leave_world(a);
    if (o == HUB_GONE && a->is_done_sent && !a->has_reported)
        log_warn("worker 0 was lost after this worker's ranks had exited with 0",
                 "worker=%u", a->env.worker_index);
    if (o != FINISHED)
        local_ranks_stop(a->local);
    while (!local_ranks_has_ended(a->local)) {
        local_ranks_step(a->local, NULL, 0, UINT64_MAX);
        agent_drop_events(a); /* caused by the stop */
    }
    return o == HUB_GONE ? FAILED : o;
}

/* --- the end --- */

static int agent_report_end(struct agent *a, enum outcome o)
{
    char sentence[480];
    if (o == LEFT)
        log_info("the job continues without this worker", "generation=%u workers=%u",
                 a->env.generation, a->env.num_workers);
    if (o == FINISHED || o == LEFT)
        return 0;
    termination_write(a->env.termination_log, &a->first);
    report_sentence(&a->first, sentence, sizeof(sentence));
    fprintf(stderr, "%s: %s\n", a->title, sentence);
    if (*a->first.tail)
        fprintf(stderr, "%s: the last lines of rank %d:\n%s", a->title, a->first.f.rank,
                a->first.tail);
    return failure_exit_code(&a->first.f);
}

static int agent_read_settings(struct agent *a, struct err *err)
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
    int rc = agent_env_parse(environment_own, NULL, &a->env, err);
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
    agent_set_start_deadline(a);
    world_file_init(&a->world_file, a->env.world_file);
    return token_read_file(a->env.token_file, &a->token, err);
}

/* Checks everything that could keep the ranks from starting, before the agent
 * connects. */
static int agent_check_command(struct agent *a,
                               const struct local_ranks_config *c,
                               struct err *err)
{
    char search[32768], warning[400];
    (void)local_ranks_search_path(c, search, sizeof(search));
    command_python_warning(a->argv, warning, sizeof(warning));
    if (*warning)
        log_warn("the runtime may not be found", "cause=\"%s\"", warning);
    return command_find(a->argv[0], *search ? search : NULL, a->path, err);
}

/* Rank 0 is a rank of worker 0, and only its callback reports. */
static void agent_serve_trainer(struct agent *a, const struct local_ranks_config *c)
{
    struct err err = ERR_INIT;
    if (a->env.worker_index == 0 && !trainer_is_elsewhere(c->env)
        && trainer_new(a->scratch.dir, &a->trainer, &err) < 0)
        log_warn("cannot receive a trainer's status, continuing without",
                 "cause=\"%s\"", err.text);
}

/* Call after the guard was forked: no thread may exist at a fork. */
static void agent_serve_metrics(struct agent *a, struct local_ranks_config *c)
{
    struct err err = ERR_INIT;
    agent_serve_trainer(a, c);
    struct metrics_config m = {
        .dir = stats_dir_choose(getenv("HVD_STATS_DIR"), a->scratch.stats_dir),
        .has_metrics = a->metrics_port > 0,
        .port = (uint16_t)a->metrics_port,
        .trainer = a->trainer};
    if ((m.has_metrics || m.trainer) && metrics_start(&m, &a->metrics, &err) < 0) {
        log_warn("cannot serve metrics, continuing without", "port=%u cause=\"%s\"",
                 a->metrics_port, err.text);
        m.has_metrics = false;
        if (m.trainer && metrics_start(&m, &a->metrics, &err) < 0)
            a->metrics = NULL;
    }
    if (a->metrics && m.trainer) {
        trainer_variables(m.trainer, metrics_trainer_port(a->metrics), a->trainer_vars);
        c->vars = a->trainer_vars;
        c->n_vars = TRAINER_VARS;
    }
}

static enum outcome agent_run_worlds(struct agent *a, struct local_ranks_config *c)
{
    struct err err = ERR_INIT;
    char text[300];
    int rc = signals_init(&a->signals, &err);
    if (rc < 0 || (rc = agent_read_settings(a, &err)) < 0)
        return agent_fail(a, 125, err.text);
    log_set_tag("hvd-agent", a->tag);
    agent_adopt_file(a);
    if (!agent_has_place(a))
        return LEFT;
    gpu_info_log(&a->signals, c->env);
    int code = agent_check_command(a, c, &err);
    if (!code && scratch_make(&a->scratch, a->env.dir, &err) < 0)
        code = 125;
    if (!code && getpid() != 1 && guard_start(&a->guard, &a->scratch, &err) < 0)
        code = 125;
    if (!code)
        agent_serve_metrics(a, c);
    (void)snprintf(text, sizeof(text), "%.230s", err.text);
    if (a->env.worker_index == 0
        && hub_start(&a->env, &a->token, a->peer_timeout_ns, &a->hub, &err) < 0)
        return agent_fail(a, 125, err.text);
    if (code) { /* connect to report it: the other workers would wait for this one */
        enum outcome reached = agent_reach_hub(a);
        (void)agent_fail(a, code, text);
        return reached == GOING ? agent_leave_job(a) : FAILED;
    }
    enum outcome o;
    do {
        o = agent_join(a);
        if (o == STARTED)
            o = agent_start_ranks(a, c);
        if (o == FAILED && a->is_connected && a->is_own)
            return agent_leave_job(a);
        if (o == GOING)
            o = agent_run_ranks(a);
    } while (o == REFORMED);
    return o;
}

static void agent_release(struct agent *a)
{
    live_host_end(&a->live);
    local_ranks_free(a->local);
    if (a->is_connected)
        channel_release(&a->channel);
    /* agents that still wait connect to the next hub */
    hub_finish(a->hub, clock_now_ns() + (a->has_gone_early ? 0 : 20 * NS_PER_S));
    metrics_stop(a->metrics);
    trainer_free(a->trainer);
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
    struct local_ranks_config c = {.argv = argv,
                                   .env = env,
                                   .path = a->path,
                                   .dir = a->env.dir,
                                   .out_fd = 1,
                                   .err_fd = 2,
                                   .signal_grace_ns = UINT64_MAX,
                                   .on_stop = agent_begin_leaving,
                                   .on_stop_arg = a};
    enum outcome o = agent_run_worlds(a, &c);
    int code = agent_report_end(a, o);
    agent_release(a);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of one host in a job that horovodrun leads.
 *
 *   JOB -> command found? scratch, guard -> [agents of further hosts]
 *       -> READY -> START -> ranks run -> OUTPUT.. FAILED.. -> DONE -> STOP|FINISH -> exit
 *
 * or, in an elastic job (crew.c),
 *
 *       -> READY -> SPAWN|KILL|MEMBER.. -> OUTPUT.. EXITED.. -> STOP|FINISH -> DONE, exit
 *
 * horovodrun decides; this agent reports events and does what horovodrun sends
 * (uplink.c). When the connection ends, for any reason, the ranks are stopped. In a tree
 * of agents it starts the agents of its share of hosts, and passes horovodrun's messages
 * on to them (remote_tree.c). One thread. Called by attach.c and serve.c. */
#include "runtime/launch/remote_agent.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/contract/port.h"
#include "runtime/launch/command.h"
#include "runtime/launch/contracts.h"
#include "runtime/launch/gpu_info.h"
#include "runtime/launch/remote_agent_state.h"
#include "runtime/launch/remote_crew.h"
#include "runtime/launch/self.h"
#include "runtime/launch/session.h"
#include "runtime/launch/stats_dir.h"
#include "runtime/wire/bytes.h"

#define FIRST_WORDS_NS (60 * NS_PER_S) /* from the connection to JOB */
#define ASK_GRACE_NS   (30 * NS_PER_S) /* as horovodrun on one host */
#define END_NS         (20 * NS_PER_S) /* for ranks and other agents to exit */

static void remote_agent_child_reaped(void *arg, pid_t pid)
{
    struct remote_agent *a = arg;
    links_child_reaped(&a->tree.links, pid);
}

/* --- the end --- */

void remote_agent_begin_end(struct remote_agent *a)
{
    if (a->local)
        local_ranks_stop(a->local);
    if (!a->is_ending)
        a->deadline_ns = clock_now_ns() + END_NS;
    a->is_ending = true;
    fd_close(&a->keep_fd);
}

static void remote_agent_lose_launcher(struct remote_agent *a)
{
    uplink_close(&a->up);
    if (remote_keep_wait(a))
        return;
    remote_agent_begin_end(a);
    links_close(&a->tree.links, true); /* their connections end, so they exit too */
}

/* --- the job --- */

static int remote_agent_make_environment(struct remote_agent *a, struct err *err)
{
    environment_inherit(&a->env, environ);
    environment_overlay(&a->env, a->e.env.v);
    int rc = errand_vars(&a->e, &a->vars, err);
    if (rc == 0 && a->env.status < 0)
        rc = err_set(err, a->env.status, "out of memory for the environment");
    return rc;
}

/* Checks everything that could keep the ranks from starting, before READY. Returns 0 or
 * the exit code of the failure. */
static int remote_agent_prepare(struct remote_agent *a, struct err *err)
{
    char text[PATH_MAX + 100], search[32768];
    command_enter(a->e.dir, text, sizeof(text));
    if (*text)
        uplink_note(&a->up, text);
    if (remote_agent_make_environment(a, err) < 0)
        return 125;
    self_runtime(a->dir, sizeof(a->dir));
    a->config =
        (struct local_ranks_config){.argv = a->e.argv.v,
                                    .env = a->env.v,
                                    .path = a->path,
                                    .dir = a->dir,
                                    .size = a->e.np,
                                    .out_fd = 1,
                                    .err_fd = 2,
                                    .signal_grace_ns = ASK_GRACE_NS,
                                    .vars = a->vars,
                                    .n_vars = a->e.vars.n,
                                    .forward = {.put = uplink_put_output,
                                                .is_full = uplink_output_is_held,
                                                .arg = &a->up},
                                    .on_reaped = remote_agent_child_reaped,
                                    .on_reaped_arg = a,
                                    .defer_stop = remote_leave_begin,
                                    .defer_stop_arg = a};
    (void)local_ranks_search_path(&a->config, search, sizeof(search));
    command_python_warning(a->e.argv.v, text, sizeof(text));
    if (*text)
        uplink_note(&a->up, text);
    int code = command_find(a->e.argv.v[0], *search ? search : NULL, a->path, err);
    if (code)
        return code;
    if ((a->host == 0 && tcp_hold(&a->master_fd, &a->master_port, err) < 0)
        || scratch_make(&a->scratch, "", err) < 0
        || guard_start(&a->guard, &a->scratch, err) < 0
        || remote_tree_start(&a->tree, &a->root, a->host + 1, a->end, err) < 0)
        return 125;
    if (a->e.is_verbose)
        a->gpu_fd = gpu_info_begin(a->signals, a->env.v);
    return 0;
}

void remote_agent_send_ready(struct remote_agent *a)
{
    struct errand_ready ready = {.master_port = a->master_port};
    if (a->crew) {
        ready.generation = crew_generation(a->crew);
        ready.n_leaders = a->n_leaders;
    }
    CLEANUP(strbuf_release) struct strbuf b = {0};
    (void)snprintf(ready.own, sizeof(ready.own), "%s", a->own);
    (void)snprintf(ready.theirs, sizeof(ready.theirs), "%s", a->theirs);
    strbuf_init(&b, 4096);
    errand_ready_write(&ready, &b);
    uplink_send(&a->up, ERRAND_READY, &b);
}

static void remote_agent_show_placement(struct remote_agent *a)
{
    CLEANUP(strbuf_release) struct strbuf table = {0};
    if (!a->e.is_verbose)
        return;
    strbuf_init(&table, UPLINK_NOTE_MAX_BYTES);
    placement_table(&a->placement, a->ranks, a->n, *a->e.nics ? a->e.nics : NULL,
                    &table);
    uplink_note(&a->up, strbuf_str(&table));
}

/* What all ranks of this host have in common, but the place. Writes the files that it
 * names. */
static int remote_agent_make_contract(struct remote_agent *a,
                                      struct contract *ret,
                                      struct err *err)
{
    struct token token;
    int rc;

    contract_init(ret);
    ret->launcher = LAUNCHER_RINGMASTER;
    ret->token_source = TOKEN_FILE;
    (void)snprintf(ret->job_id, sizeof(ret->job_id), "%s", a->e.job_id);
    (void)snprintf(ret->iface, sizeof(ret->iface), "%s", a->e.iface);
    (void)snprintf(ret->token_file, sizeof(ret->token_file), "%s",
                   a->scratch.token_file);
    (void)snprintf(ret->hostfile, sizeof(ret->hostfile), "%s", a->scratch.hostfile);
    session_job_token(&a->root, a->e.seed, &token);
    rc = scratch_write(&a->scratch, &token, &a->e.hosts, err);
    a->tf.ports = port_derive(&token, "TF_CONFIG");
    token_wipe(&token);
    a->config.stats_dir = stats_dir_choose(environment_get(&a->env, "HVD_STATS_DIR"),
                                           a->scratch.stats_dir);
    return rc;
}

static int
remote_agent_start_ranks(struct remote_agent *a, int *ret_code, struct err *err)
{
    const struct errand_start *s = &a->start;
    struct contract c;
    int rc = remote_agent_make_contract(a, &c, err);
    c.rdv_port = s->rdv_port;
    c.master_port = s->master_port;
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "%s", s->rdv_host);
    (void)snprintf(c.master_addr, sizeof(c.master_addr), "%s", s->reach.v[0].name);
    a->tf.roles = a->e.roles;
    a->tf.hosts = &s->reach;
    a->tf.np = a->e.np;
    if (rc == 0)
        rc = contracts_make(&a->e.hosts, a->e.np, a->host, &c, &a->ranks, &a->n, err);
    if (rc < 0)
        return rc;
    const char *binding = *a->e.binding ? a->e.binding : NULL;
    if ((rc = placement_make(binding, a->n, &a->placement, err)) < 0)
        return rc;
    remote_agent_show_placement(a);
    a->config.placement = &a->placement;
    a->config.tf = a->e.roles.framework == FRAMEWORK_HVD ? NULL : &a->tf;
    a->config.n = a->n;
    a->config.ranks = a->ranks;
    rc = local_ranks_new(&a->config, a->signals, &a->guard, &a->local, err);
    return rc < 0 ? rc : local_ranks_start(a->local, ret_code, err);
}

static void remote_agent_send_live(void *arg,
                                   enum live_part part,
                                   uint32_t number,
                                   const struct strbuf *b)
{
    struct remote_agent *a = arg;
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    strbuf_init(&payload, ERRAND_TO_LAUNCHER_MAX_BYTES);
    bytes_put_u32(&payload, part);
    bytes_put_u32(&payload, number);
    strbuf_add(&payload, strbuf_str(b), b->n);
    uplink_send(&a->up, ERRAND_LIVE, &payload);
}

static void remote_agent_begin_live(struct remote_agent *a)
{
    struct live_host_config c = {.dir = a->config.stats_dir,
                                 .ranks = a->crew ? crew_members(a->crew) : a->ranks,
                                 .n = a->crew ? a->e.elastic_slots : a->n,
                                 .send = remote_agent_send_live,
                                 .arg = a};
    live_host_begin(&a->live, &c);
}

static int remote_agent_open_crew(struct remote_agent *a, struct err *err)
{
    struct contract common;
    const struct remote_crew c = {.up = &a->up,
                                  .e = &a->e,
                                  .host = a->host,
                                  .common = &common,
                                  .run = &a->config,
                                  .signals = a->signals,
                                  .guard = &a->guard};
    int rc = remote_agent_make_contract(a, &common, err);
    if (rc == 0)
        rc = placement_make(*a->e.binding ? a->e.binding : NULL, a->e.elastic_slots,
                            &a->placement, err);
    a->config.placement = &a->placement;
    rc = rc < 0 ? rc : remote_crew_open(&c, &a->crew, err);
    if (rc == 0) {
        a->local = crew_ranks(a->crew);
        remote_agent_begin_live(a);
    }
    return rc;
}

static int remote_agent_take_job(struct remote_agent *a,
                                 uint32_t host,
                                 struct bytes_reader *r,
                                 struct err *err)
{
    struct err why = ERR_INIT;
    if (a->has_job && a->keep_fd >= 0 && a->crew)
        return remote_keep_take_successor(a, host, r, err);
    if (a->has_job)
        return err_set(err, -EPROTO, "a second job on one connection");
    a->host = host;
    uplink_set_host(&a->up, host);
    a->end = bytes_u32(r);
    int rc = errand_read(r->p, r->left, HVD_VERSION_STRING, &a->e, err);
    if (rc == 0 && (host >= a->e.hosts.n || a->end > a->e.hosts.n))
        rc = err_set(err, -EPROTO, "a job message is malformed (another version?)");
    if (rc < 0)
        return rc;
    a->has_job = true;
    if (a->e.keep_ms > 0) {
        rc = remote_keep_join(a, r, err);
        if (rc == 0)
            remote_agent_begin_end(a);
        if (rc != -ECONNREFUSED)
            return rc;
    }
    strbuf_init(&a->blob, ERRAND_TO_AGENT_MAX_BYTES);
    strbuf_add(&a->blob, r->p, r->left);
    a->deadline_ns = UINT64_MAX;
    uplink_begin_job(&a->up, a->e.hosts.v[host].name);
    log_set_tag("hvd-agent", a->e.hosts.v[host].name);
    int code = remote_agent_prepare(a, &why);
    if (!code && a->e.elastic_slots && remote_agent_open_crew(a, &why) < 0)
        code = 125;
    if (code) {
        uplink_fail(&a->up, code, 0, why.text);
        return 0; /* horovodrun will send STOP */
    }
    remote_agent_send_ready(a);
    return 0;
}

static int
remote_agent_take_start(struct remote_agent *a, struct bytes_reader *r, struct err *err)
{
    struct errand_start s = {0};
    struct err why = ERR_INIT;
    int code = 125, rc = errand_start_read(r->p, r->left, &s, err);
    if (rc == 0 && (!*a->scratch.dir || a->local || a->start.reach.n > 0))
        rc = err_set(err, -EPROTO, "unexpected start message");
    if (rc < 0 || a->is_ending) {
        errand_start_release(&s);
        return rc;
    }
    a->start = s;
    if (remote_agent_start_ranks(a, &code, &why) < 0) {
        local_ranks_free(a->local);
        a->local = NULL;
        uplink_fail(&a->up, code, 0, why.text);
    } else {
        remote_agent_begin_live(a);
    }
    return 0;
}

/* --- frames --- */

static int remote_agent_take_own(struct remote_agent *a,
                                 uint8_t type,
                                 struct bytes_reader *r,
                                 struct err *err)
{
    uint32_t number;
    switch ((enum errand_type)type) {
    case ERRAND_START:
        return remote_agent_take_start(a, r, err);
    case ERRAND_SIGNAL:
        number = bytes_u32(r);
        a->is_reported = true;
        if (a->local
            && (signals_is_stop((int)number) || number == SIGUSR1 || number == SIGUSR2))
            local_ranks_signal(a->local, (int)number);
        return 0;
    case ERRAND_CREDIT:
        number = bytes_u32(r);
        uplink_add_credit(&a->up, number);
        return 0;
    case ERRAND_STOP:
    case ERRAND_FINISH:
        remote_agent_begin_end(a);
        return 0;
    case ERRAND_EXAMINE:
        number = bytes_u32(r);
        if (a->local && !a->is_ending)
            live_host_examine(&a->live, number);
        return 0;
    case ERRAND_SPAWN:
    case ERRAND_KILL:
    case ERRAND_MEMBER:
        if (a->crew && !a->is_ending)
            remote_crew_take(a->crew, (enum errand_type)type, r);
        return 0;
    case ERRAND_RETIRE:
        return remote_leave_retire(a, r, err);
    case ERRAND_JOB:
    case ERRAND_PING:
    case ERRAND_READY:
    case ERRAND_OUTPUT:
    case ERRAND_FAILED:
    case ERRAND_ENDED:
    case ERRAND_DONE:
    case ERRAND_LOST:
    case ERRAND_NOTE:
    case ERRAND_LIVE:
    case ERRAND_EXITED:
    case ERRAND_HAS:
    case ERRAND_LEAVING:
        break;
    }
    return err_set(err, -EPROTO, "message %u is not for an agent", type);
}

static int
remote_agent_take_frame(struct remote_agent *a, const struct frame *f, struct err *err)
{
    struct bytes_reader r = {.p = f->p, .left = f->n};
    if (f->type == ERRAND_PING)
        return 0;
    uint32_t host = bytes_u32(&r);
    if (r.is_bad)
        return err_set(err, -EPROTO, "a message is malformed");
    if (f->type == ERRAND_JOB)
        return remote_agent_take_job(a, host, &r, err);
    if (!a->has_job)
        return err_set(err, -EPROTO, "message %u before the job", f->type);
    if (host == a->host)
        return remote_agent_take_own(a, f->type, &r, err);
    struct strbuf rest = {.p = (char *)(uintptr_t)r.p, .n = r.left};
    links_send(&a->tree.links, (enum errand_type)f->type, host, &rest);
    return 0;
}

static void remote_agent_serve_up(struct remote_agent *a)
{
    struct err err = ERR_INIT;
    struct frame f;
    uint64_t next, now_ns = clock_now_ns();
    uint64_t silence_ns =
        a->has_job ? a->e.peer_timeout_ms * NS_PER_MS : FIRST_WORDS_NS;
    int rc = 0;
    channel_serve(&a->up.channel);
    while (a->up.is_open && (rc = channel_next(&a->up.channel, now_ns, &f, &err)) > 0) {
        rc = remote_agent_take_frame(a, &f, &err);
        if (rc < 0)
            break;
    }
    if (rc < 0) {
        uplink_fail(&a->up, 125, 0, err.text);
        channel_serve(&a->up.channel); /* send the report */
    }
    if (rc < 0 || a->up.channel.lost
        || channel_tick(&a->up.channel, ERRAND_PING, silence_ns, now_ns, &next) < 0)
        remote_agent_lose_launcher(a);
}

/* --- the loop --- */

static void remote_agent_take_events(struct remote_agent *a)
{
    while (a->local && local_ranks_next(a->local, &a->ev)) {
        if (a->crew)
            crew_take_event(a->crew, &a->ev);
        if (!a->crew && a->ev.kind == LOCAL_RANK_FAILED && !a->ev.is_expected)
            uplink_report(&a->up, &a->ev.report);
        if (!a->crew && a->ev.kind == LOCAL_RANK_OK
            && tf_world_ends_with(&a->tf, &a->ranks[a->ev.index].place))
            uplink_send(&a->up, ERRAND_ENDED, NULL);
        if (a->ev.kind != LOCAL_SIGNAL || a->is_reported || a->is_ending)
            continue;
        uplink_fail_signal(&a->up, a->ev.signal);
    }
    if (!a->local || a->is_done_sent || !local_ranks_has_ended(a->local))
        return;
    a->is_done_sent = true;
    if (local_ranks_running(a->local))
        uplink_fail(&a->up, 125, 0, "ranks cannot be killed: they hang in the kernel");
    uplink_send(&a->up, ERRAND_DONE, NULL);
    if (!a->up.is_open) /* kept for a horovodrun, and ended by a signal */
        remote_agent_begin_end(a);
}

/* Waits and handles signals before ranks were started. */
static void remote_agent_wait_alone(struct remote_agent *a,
                                    struct pollfd *p,
                                    nfds_t n,
                                    uint64_t due_ns)
{
    int sig, status;
    pid_t pid;
    p[n] = (struct pollfd){.fd = a->signals->fd, .events = POLLIN};
    (void)poll(p, n + 1, clock_left_ms(due_ns));
    while ((sig = signals_next(a->signals)) > 0) {
        while (sig == SIGCHLD && (pid = signals_reap(&status)) > 0)
            links_child_reaped(&a->tree.links, pid);
        if (!signals_is_stop(sig))
            continue;
        uplink_fail_signal(&a->up, sig);
        remote_agent_begin_end(a);
    }
}

static bool remote_agent_is_over(const struct remote_agent *a)
{
    if (!a->is_ending)
        return false;
    if (clock_now_ns() >= a->deadline_ns)
        return true;
    return (!a->local || local_ranks_has_ended(a->local))
           && links_left(&a->tree.links) == 0
           && (!a->up.is_open || frame_unsent(&a->up.channel.conn) == 0);
}

static uint64_t remote_agent_next_due(const struct remote_agent *a)
{
    uint64_t now_ns = clock_now_ns(), due = links_next_ns(&a->tree.links, now_ns), ping;
    if (a->deadline_ns < due)
        due = a->deadline_ns;
    if (remote_leave_next_ns(a) < due)
        due = remote_leave_next_ns(a);
    if (!a->up.is_open)
        return due;
    ping = a->up.channel.sent_ns
           + (a->has_job ? a->e.peer_timeout_ms * NS_PER_MS / 6 : 5 * NS_PER_S);
    return ping < due ? ping : due;
}

static void
remote_agent_step_ranks(struct remote_agent *a, struct pollfd *fds, nfds_t n)
{
    uint64_t due_ns = remote_agent_next_due(a);
    if (a->up.is_open && !a->is_ending && !local_ranks_has_ended(a->local))
        live_host_tick(&a->live, a->local, &due_ns);
    local_ranks_step(a->local, fds, n, due_ns);
}

static void remote_agent_serve_once(struct remote_agent *a)
{
    struct pollfd fds[LOCAL_RANKS_CALLER_FDS];
    nfds_t n = 0;
    if (a->up.is_open) {
        channel_pollfds(&a->up.channel, fds);
        n = 2;
    }
    n += links_pollfds(&a->tree.links, fds + n);
    fds[n++] = (struct pollfd){.fd = a->gpu_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = a->crew ? crew_fd(a->crew) : -1, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = a->keep_fd, .events = POLLIN};
    if (a->local)
        remote_agent_step_ranks(a, fds, n);
    else
        remote_agent_wait_alone(a, fds, n, remote_agent_next_due(a));
    remote_keep_accept(a);
    if (a->up.is_open)
        remote_agent_serve_up(a);
    links_serve(&a->tree.links);
    if (a->crew)
        crew_serve(a->crew);
    remote_agent_take_events(a);
    remote_leave_serve(a);
    if (gpu_info_next(&a->gpu_fd, &a->gpu_line))
        uplink_note(&a->up, strbuf_str(&a->gpu_line));
    if (!a->is_ending && clock_now_ns() >= a->deadline_ns)
        remote_agent_begin_end(a);
}

static void remote_agent_release(struct remote_agent *a)
{
    live_host_end(&a->live);
    if (a->crew)
        crew_close(a->crew);
    else
        local_ranks_free(a->local);
    placement_release(&a->placement);
    remote_tree_release(&a->tree);
    guard_stop(&a->guard);
    scratch_remove(&a->scratch);
    environment_release(&a->env);
    errand_release(&a->e);
    errand_start_release(&a->start);
    strbuf_release(&a->blob);
    fd_close(&a->gpu_fd);
    fd_close(&a->master_fd);
    fd_close(&a->keep_fd);
    strbuf_release(&a->gpu_line);
    mem_free(a->vars);
    mem_free(a->ranks);
    token_wipe(&a->root);
    uplink_close(&a->up);
    mem_free(a);
}

int remote_agent_run(struct signals *signals, struct remote_peer *up)
{
    struct remote_agent *a = mem_zalloc(sizeof(*a));
    int code;
    if (!a) {
        channel_release(&up->channel);
        token_wipe(&up->root);
        return 125;
    }
    a->signals = signals;
    a->parent = getppid();
    a->leave_time_ns = up->leave_s * NS_PER_S;
    a->retire_log = up->retire_log ? up->retire_log : "";
    a->gpu_fd = a->master_fd = a->keep_fd = -1;
    strbuf_init(&a->gpu_line, UPLINK_NOTE_MAX_BYTES);
    uplink_open(&a->up, &up->channel);
    a->tree = (struct remote_tree){.e = &a->e,
                                   .job = &a->blob,
                                   .up = &a->up,
                                   .signals = signals,
                                   .guard = &a->guard};
    a->root = up->root;
    (void)snprintf(a->own, sizeof(a->own), "%s", up->own);
    (void)snprintf(a->theirs, sizeof(a->theirs), "%s", up->theirs);
    token_wipe(&up->root);
    a->deadline_ns = clock_now_ns() + FIRST_WORDS_NS;
    environment_init(&a->env);
    log_set_tag("hvd-agent", NULL);
    while (!remote_agent_is_over(a))
        remote_agent_serve_once(a);
    code = a->is_retired ? FAILURE_RETIRED : 0;
    remote_agent_release(a);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun's side of an elastic job:
 *
 *   host list, at the start and each second -> core/elastic_hosts.c -> an agent per host
 *                                                                      |  links.c
 *   READY of an agent -> its slots -----.                              |
 *   MEMBER, EXITED, a lost link --------+-> elastic_lead.c -> SPAWN, KILL, MEMBER
 *   OUTPUT -> remote_output.c -> our stdout
 *
 * The job ends as core/elastic.c decides, by a stop signal, or when the command cannot be
 * started.
 * The main thread does everything but the rendezvous and, with serve, connecting. Called
 * by horovodrun.c. */
#include "runtime/launch/elastic_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/elastic_env.h"
#include "runtime/contract/env_reader.h"
#include "runtime/launch/core/elastic_slots.h"
#include "runtime/launch/core/message.h"
#include "runtime/launch/elastic_run.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/errand_make.h"
#include "runtime/launch/session.h"

#define STOP_NS      (25 * NS_PER_S) /* as remote.c */
/* A horovodrun that takes a job over waits so long for all agents to report. */
#define ADOPT_NS     (15 * NS_PER_S)
#define SCRIPT_NS    (60 * NS_PER_S) /* of a discovery script */
/* A host list that may change has room for further hosts and slots. */
#define ROOM_HOSTS   64
#define ROOM_SLOTS   8
#define ROOM_ALL     65536 /* slots, as core/elastic.c */
/* A member of a broken world is stopped if it has not reported then: it may write a
 * checkpoint, or evaluate, before its next collective fails. */
#define LEAVE_MAX_NS (300 * NS_PER_S)
/* Processes that are late for the first world, once --min-np others are ready. */
#define FIRST_NS     (30 * NS_PER_S)

/* --- what the lead sends ---------------------------------------------------------- */

static uint32_t run_host_of(const struct elastic_run *r, uint32_t slot)
{
    return slot / r->hosts.slots;
}

static void run_send_process(struct elastic_run *r,
                             enum errand_type type,
                             struct errand_process p,
                             const struct strbuf *rest)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, MEMBER_MESSAGE_MAX_BYTES + 8);
    errand_process_write(&p, &b);
    if (rest)
        strbuf_add(&b, strbuf_str(rest), rest->n);
    links_send(&r->links, type, run_host_of(r, p.slot), &b);
}

static void
run_spawn(void *arg, uint32_t slot, uint32_t incarnation, const struct place *place)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, 64);
    errand_place_write(place, &b);
    run_send_process(arg, ERRAND_SPAWN, (struct errand_process){slot, incarnation}, &b);
}

static void run_kill(void *arg, uint32_t slot, uint32_t incarnation)
{
    run_send_process(arg, ERRAND_KILL, (struct errand_process){slot, incarnation},
                     NULL);
}

static void
run_send(void *arg, uint32_t slot, uint32_t incarnation, const struct strbuf *message)
{
    run_send_process(arg, ERRAND_MEMBER, (struct errand_process){slot, incarnation},
                     message);
}

static void run_retire(void *arg, uint32_t host, const struct report *report)
{
    struct elastic_run *r = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    report_write(report, &b);
    links_send(&r->links, ERRAND_RETIRE, host, &b);
}

static const char *run_name_of(void *arg, uint32_t host)
{
    return ((struct elastic_run *)arg)->hosts.v[host].name;
}

static const char *run_address_for(void *arg, uint32_t host)
{
    return ((struct elastic_run *)arg)->addresses[host];
}

static void run_set_rank(void *arg, uint32_t slot, uint32_t rank)
{
    struct elastic_run *r = arg;

    output_set_rank(&r->output.output, slot, rank);
}

/* --- the end ---------------------------------------------------------------------- */

void run_send_to_all(struct elastic_run *r,
                     enum errand_type type,
                     const struct strbuf *b)
{
    for (uint32_t h = 0; h < r->hosts.n; h++)
        links_send(&r->links, type, h, b);
}

static void run_enter_end(struct elastic_run *r, enum errand_type type)
{
    if (r->is_over)
        return;
    r->is_over = true;
    run_send_to_all(r, type, NULL);
    links_close(&r->links, false);
    r->end_deadline_ns = clock_now_ns() + STOP_NS;
}

void run_fail(struct elastic_run *r, const struct report *report)
{
    if (r->has_failed || r->is_over || r->forwarded_signal)
        return;
    r->has_failed = true;
    *r->failure = *report;
    run_enter_end(r, ERRAND_STOP);
}

/* After a stop signal the job ends when all ranks have. */
static bool run_all_done(const struct elastic_run *r)
{
    for (uint32_t h = 0; h < r->hosts.n; h++)
        if (r->hosts.v[h].is_ready && !r->is_done[h])
            return false;
    return true;
}

/* --- the loop --------------------------------------------------------------------- */

/* Ends this program, but not the job: another horovodrun of its name takes it over. */
static void run_leave(struct elastic_run *r)
{
    if (r->is_over)
        return;
    log_warn("the job is left to another horovodrun of its name", "job=\"%s\"",
             r->e.job_id);
    r->forwarded_signal = SIGTERM;
    r->is_over = true;
    links_close(&r->links, true);
    r->end_deadline_ns = clock_now_ns();
}

static void run_take_signals(struct elastic_run *r)
{
    int sig;

    while ((sig = signals_next(r->signals)) > 0) {
        CLEANUP(strbuf_release) struct strbuf b = {0};

        if (sig == SIGCHLD)
            continue; /* link.c and discovery_watch.c reap their own children */
        if (sig == SIGTSTP) {
            log_warn("an elastic job cannot be suspended, continuing",
                     "signal=SIGTSTP");
            continue;
        }
        if (sig == SIGTERM && r->e.keep_ms > 0) { /* its pod is moved, for one */
            run_leave(r);
            return;
        }
        if (signals_is_stop(sig) && !r->forwarded_signal) {
            r->forwarded_signal = sig;
            log_info("signal forwarded", "signal=%s", signal_name(sig));
        }
        strbuf_init(&b, 16);
        bytes_put_u32(&b, (uint32_t)sig);
        run_send_to_all(r, ERRAND_SIGNAL, &b);
    }
}

/* The first world starts smaller if processes are late. Returns when to come again. */
static uint64_t run_start_smaller(struct elastic_run *r)
{
    struct elastic *e = &r->lead.e;
    struct err err = ERR_INIT;
    const uint32_t n_ready = elastic_count(e, SLOT_READY);

    if (e->generation > 0 || e->config.start_ranks == e->config.min_ranks
        || n_ready < e->config.min_ranks) {
        r->enough_ns = 0;
        return UINT64_MAX;
    }
    if (r->enough_ns == 0)
        r->enough_ns = clock_now_ns();
    if (clock_now_ns() < r->enough_ns + FIRST_NS)
        return r->enough_ns + FIRST_NS;
    log_warn("the job starts with fewer processes, others are late",
             "ready=%u np=%u min_np=%u", n_ready, e->config.start_ranks,
             e->config.min_ranks);
    (void)elastic_resize(e, e->config.min_ranks, e->config.max_ranks, &err); /* valid */
    return UINT64_MAX;
}

/* Returns when to come again. */
static uint64_t run_decide(struct elastic_run *r)
{
    uint64_t next_ns, smaller_ns;

    if (r->is_over)
        return r->end_deadline_ns;
    if (r->forwarded_signal) {
        if (run_all_done(r))
            run_enter_end(r, ERRAND_FINISH);
        return r->is_over ? r->end_deadline_ns : UINT64_MAX;
    }
    run_connect_due(r);
    if (r->lead.e.is_adopting && elastic_hosts_are_ready(&r->hosts))
        elastic_end_take_over(&r->lead.e, clock_now_ns());
    elastic_expect_workers(&r->lead.e, elastic_hosts_missing(&r->hosts));
    smaller_ns = run_start_smaller(r);
    next_ns = earlier_ns(elastic_lead_step(&r->lead), smaller_ns);
    if (elastic_lead_has_ended(&r->lead))
        run_enter_end(r, r->lead.e.has_ended_well ? ERRAND_FINISH : ERRAND_STOP);
    return earlier_ns(next_ns, elastic_hosts_next_ns(&r->hosts));
}

static bool run_has_agents(const struct elastic_run *r)
{
    return links_left(&r->links) > 0 && clock_now_ns() < r->end_deadline_ns;
}

static void run_serve_once(struct elastic_run *r)
{
    nfds_t n = 1, n_output;
    uint64_t due_ns = run_decide(r);

    if (r->is_over && !run_has_agents(r))
        return; /* decided just now, and there is nothing to wait for */
    if (!r->is_over && !r->forwarded_signal)
        due_ns = earlier_ns(due_ns, discovery_watch_next_ns(&r->discovery));
    due_ns = earlier_ns(due_ns, links_next_ns(&r->links, clock_now_ns()));
    due_ns = earlier_ns(due_ns, live_door_next_ns(&r->door));
    r->fds[0] = (struct pollfd){.fd = r->signals->fd, .events = POLLIN};
    n_output = output_pollfds(&r->output.output, r->fds + n);
    n += n_output;
    n += links_pollfds(&r->links, r->fds + n);
    discovery_watch_fds(&r->discovery, r->fds + n);
    n += DISCOVERY_WATCH_FDS;
    live_door_fds(&r->door, r->fds + n);
    n += LIVE_DOOR_FDS;
    if (poll(r->fds, n, clock_left_ms(output_due_ns(&r->output.output, due_ns))) <= 0)
        for (nfds_t i = 0; i < n; i++)
            r->fds[i].revents = 0;
    output_serve(&r->output.output, r->fds + 1, n_output);
    links_serve(&r->links);
    run_serve_live(r);
    run_take_signals(r);
    if (!r->is_over && !r->forwarded_signal)
        run_discover(r);
    remote_output_give_credit(&r->output, &r->links);
}

static bool run_is_stopped(void *arg)
{
    struct elastic_run *r = arg;

    run_take_signals(r);
    return r->has_failed || r->forwarded_signal;
}

static void run_serve(struct elastic_run *r)
{
    while (!r->is_over || run_has_agents(r))
        run_serve_once(r);
    links_close(&r->links, true);
    remote_output_finish(&r->output, r->signals->fd, r->fds, run_is_stopped, r);
}

/* --- start and end ---------------------------------------------------------------- */

static void run_set_policy(const struct elastic_run *r, struct elastic_config *ret)
{
    const struct elastic_options *o = r->c->options;
    const uint64_t wait_ns = o->timeout_ms * NS_PER_MS;
    /* those of the list, or all that a list that changes may have */
    const uint64_t all = r->c->discovery ? (uint64_t)r->hosts.n * r->hosts.slots
                                         : hostlist_slots(r->c->job->hosts);

    *ret = (struct elastic_config){.n_workers = r->hosts.n,
                                   .slots = r->hosts.slots,
                                   .start_ranks = o->start,
                                   .min_ranks = o->min,
                                   .max_ranks = o->max,
                                   .n_spares = o->spares,
                                   .reset_limit = o->reset_limit,
                                   .wait_ns = wait_ns,
                                   .exclude_ns = o->exclude_ns,
                                   .exclude_max_ns = o->exclude_max_ns};
    if (ret->max_ranks == 0)
        ret->max_ranks = all > o->start ? (uint32_t)all : o->start;
    ret->leave_ns = wait_ns / 2 < LEAVE_MAX_NS ? wait_ns / 2 : LEAVE_MAX_NS;
}

/* How many hosts a list that may change can have: as many as --max-np and --spares need
 * if each has only the slots of the smallest one, and some more. */
static uint32_t run_room(const struct elastic_run *r, uint32_t slots)
{
    const struct hostlist *list = r->c->job->hosts;
    const struct elastic_options *o = r->c->options;
    uint32_t fewest = list->n ? list->v[0].slots : r->c->slots_per_host;
    uint64_t n = 2 * (uint64_t)list->n;

    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].slots < fewest)
            fewest = list->v[i].slots;
    fewest = fewest > 0 ? fewest : 1;
    if (n < ((uint64_t)o->max + o->spares) / fewest + ROOM_HOSTS)
        n = ((uint64_t)o->max + o->spares) / fewest + ROOM_HOSTS;
    return n < ROOM_ALL / slots ? (uint32_t)n : ROOM_ALL / slots;
}

static int run_open_hosts(struct elastic_run *r, struct err *err)
{
    const struct hostlist *list = r->c->job->hosts;
    uint32_t n = (uint32_t)list->n, slots = 1;
    int rc;

    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].slots > slots)
            slots = list->v[i].slots;
    if (r->c->discovery) {
        slots = slots > ROOM_SLOTS ? slots : ROOM_SLOTS;
        n = run_room(r, slots);
    }
    rc = elastic_hosts_init(&r->hosts, n, slots, err);
    if (rc < 0)
        return rc;
    r->addresses = mem_calloc(n, sizeof(*r->addresses));
    r->is_done = mem_calloc(n, sizeof(*r->is_done));
    r->fds = mem_calloc(1 + OUTPUT_FDS + 2 * (size_t)n * slots + LINK_FDS * (size_t)n
                            + DISCOVERY_WATCH_FDS + LIVE_DOOR_FDS,
                        sizeof(*r->fds));
    r->failure = mem_zalloc(sizeof(*r->failure));
    return r->addresses && r->is_done && r->fds && r->failure
               ? 0
               : err_set(err, -ENOMEM, "out of memory for %u hosts", n);
}

static int run_open_links(struct elastic_run *r, struct err *err)
{
    struct links_config c = {.ssh = r->e.ssh,
                             .agent_port = r->c->job->agent_port ? r->c->job->agent_port
                                                                 : REMOTE_DEFAULT_PORT,
                             .root = r->root,
                             .deadline_ns = clock_now_ns() + r->start_ns,
                             .peer_timeout_ns = r->e.peer_timeout_ms * NS_PER_MS,
                             .signals = r->signals,
                             .guard = r->c->job->guard,
                             .env = r->c->job->env,
                             .on_open = run_on_open,
                             .on_frame = run_on_frame,
                             .on_lost = run_on_lost,
                             .arg = r};
    int rc;

    (void)snprintf(c.agent_path, sizeof(c.agent_path), "%s", r->e.agent_path);
    rc = links_init(&r->links, &c, err);
    for (uint32_t h = 0; rc == 0 && h < r->hosts.n; h++) {
        rc = links_add(&r->links, LINK_LOCAL, r->hosts.v[h].name, h, h + 1, err);
        if (rc == 0)
            r->links.v[h].state = LINK_GONE; /* until the host list names it */
    }
    return rc;
}

static int run_open_lead(struct elastic_run *r, struct err *err)
{
    struct elastic_lead_config c = {.token = &r->token,
                                    .job_id = r->e.job_id,
                                    .spawn = run_spawn,
                                    .kill = run_kill,
                                    .retire = run_retire,
                                    .send = run_send,
                                    .name_of = run_name_of,
                                    .address_for = run_address_for,
                                    .on_rank = run_set_rank,
                                    .arg = r};

    int rc;

    run_set_policy(r, &c.policy);
    rc = elastic_lead_open(&r->lead, &c, err);
    if (rc == 0 && r->e.keep_ms > 0)
        elastic_take_over(&r->lead.e, 0, clock_now_ns() + ADOPT_NS);
    return rc;
}

/* A job with a name of its own may be led by one horovodrun after another, which must
 * have the same keys. Only hvd-agent serve keeps processes without a horovodrun. The
 * operator gives a name to each job, however its launcher reaches the hosts. */
static int run_name_job(struct elastic_run *r, struct err *err)
{
    const struct env_reader env = {environment_own, NULL, err};
    const char *name = getenv(ENV_ELASTIC_JOB);
    uint64_t keep_ms = r->c->options->timeout_ms;

    if (!name || !*name)
        return 0;
    if (strlen(name) > 100)
        return err_set(err, -EINVAL, "HVD_ELASTIC_JOB is longer than 100 bytes");
    if (!r->c->job->token_file) {
        log_warn("without --token-file no other horovodrun can take this job over",
                 "HVD_ELASTIC_JOB=\"%s\"", name);
        return 0;
    }
    (void)snprintf(r->e.job_id, sizeof(r->e.job_id), HOROVODRUN_JOB_ID, name);
    sha256_digest(r->e.job_id, strlen(r->e.job_id), r->e.seed);
    r->e.keep_ms = keep_ms < UINT32_MAX ? (uint32_t)keep_ms : UINT32_MAX;
    return env_port(&env, ENV_STATUS_PORT, &r->status_port);
}

static int run_prepare(struct elastic_run *r, struct err *err)
{
    const struct remote_job *job = r->c->job;
    const struct discovery_watch_config discovery = {.command = r->c->discovery,
                                                     .slots = r->c->slots_per_host,
                                                     .env = job->env,
                                                     .signals = r->signals,
                                                     .guard = job->guard,
                                                     .timeout_ns = SCRIPT_NS};
    int rc;

    r->start_ns = job->start_timeout_ms * NS_PER_MS;
    rc = errand_make(job, (job->start_timeout_ms + 999) / 1000, &r->e, err);
    rc = rc < 0 ? rc : run_name_job(r, err);
    rc = rc < 0
             ? rc
             : session_make_keys(job->token_file, r->e.seed, &r->root, &r->token, err);
    rc = rc < 0 ? rc : run_open_hosts(r, err);
    if (rc < 0)
        return rc;
    r->e.elastic_slots = r->hosts.slots;
    r->e.np = r->hosts.n * r->hosts.slots;
    r->e.local = r->hosts.n;
    r->e.fanout = 0;
    rc = remote_output_open(&r->output, job, r->e.np, r->hosts.n, err);
    rc = rc < 0 ? rc : run_open_lead(r, err);
    rc = rc < 0 ? rc : run_open_links(r, err);
    if (rc < 0)
        return rc;
    run_open_live(r);
    discovery_watch_begin(&r->discovery, &discovery, clock_now_ns());
    run_apply_list(r, job->hosts);
    return 0;
}

static void run_fill_end(struct elastic_run *r, struct remote_end *ret)
{
    memset(ret, 0, sizeof(*ret));
    ret->forwarded_signal = r->forwarded_signal;
    if (r->forwarded_signal || r->lead.e.has_ended_well)
        return;
    ret->has_failed = true;
    if (r->has_failed)
        ret->first = *r->failure;
    else
        elastic_lead_fill_end(&r->lead, &ret->first);
}

static void run_release(struct elastic_run *r)
{
    discovery_watch_end(&r->discovery);
    run_close_live(r);
    links_release(&r->links);
    elastic_lead_close(&r->lead);
    remote_output_release(&r->output);
    elastic_hosts_release(&r->hosts);
    errand_release(&r->e);
    token_wipe(&r->root);
    token_wipe(&r->token);
    mem_free(r->addresses);
    mem_free(r->is_done);
    mem_free(r->failure);
    mem_free(r->fds);
}

int elastic_job_run(const struct elastic_job *job,
                    struct signals *signals,
                    struct remote_end *ret,
                    struct err *err)
{
    AUTOFREE struct elastic_run *r = mem_zalloc(sizeof(*r));
    int rc;

    if (!r)
        return err_set(err, -ENOMEM, "out of memory");
    r->c = job;
    r->signals = signals;
    r->discovery.child = (struct child){.stdout_fd = -1, .stderr_fd = -1};
    rc = run_prepare(r, err);
    if (rc == 0) {
        run_serve(r);
        run_fill_end(r, ret);
    }
    run_release(r);
    return rc;
}

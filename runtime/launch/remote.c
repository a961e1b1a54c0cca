/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun's side of a job on several hosts.
 *
 *   own host: a forked child --.
 *   other hosts: ssh, or serve --+-- links (links.c) -- frames (errand.h)
 *                                        |
 *                                   remote_receive.c
 *      READY from all -> addresses, rendezvous server here -> START to all
 *      OUTPUT -> remote_output.c: lines, prefix, files -> our stdout; then CREDIT
 *      FAILED, a lost link -> remote_hosts.c: first failure -> STOP to all
 *      DONE from all -> FINISH; then every link closes and the job ends
 *
 * The main thread does everything, except the rendezvous and, with serve, connecting.
 * Called by horovodrun.c. */
#include "runtime/launch/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/attach.h"
#include "runtime/launch/errand_make.h"
#include "runtime/launch/links.h"
#include "runtime/launch/live_door.h"
#include "runtime/launch/remote_address.h"
#include "runtime/launch/remote_hosts.h"
#include "runtime/launch/remote_output.h"
#include "runtime/launch/remote_receive.h"
#include "runtime/launch/session.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/wire/bytes.h"

/* agents: SIGTERM 5 s, SIGKILL 10 s, output 2 s */
#define STOP_NS (25 * NS_PER_S)

struct remote {
    const struct remote_job *job;
    struct signals *signals;
    struct token root, token;
    struct errand e;
    uint64_t peer_timeout_ns, start_deadline_ns, start_timeout_s;
    uint64_t end_deadline_ns; /* of waiting for agents after the end was decided */
    struct remote_hosts hosts;
    struct link_set links;
    struct remote_output output;
    struct live_lead lead;
    struct live_door door;
    struct rdv_server *server;
    uint16_t rdv_port;
    size_t n_reported; /* failures that were passed to the rendezvous */
    int forwarded_signal;
    struct pollfd *fds;
};

/* --- events of links --- */

static void remote_on_lost(void *arg, struct link *l)
{
    struct remote *r = arg;
    for (uint32_t h = l->first; h < l->end; h++)
        remote_output_end(&r->output, &r->hosts.v[h]);
    remote_hosts_lose(&r->hosts, l->first, l->end, l->why);
}

static int
remote_on_frame(void *arg, struct link *l, const struct frame *f, struct err *err)
{
    struct remote *r = arg;
    return remote_receive(&r->hosts, &r->output, &r->lead, l, f, err);
}

/* Reports the missing hosts and the stage of the first of them. */
static void remote_time_out(struct remote *r)
{
    char why[300];
    uint32_t first = 0, missing = remote_hosts_missing(&r->hosts, &first);
    const char *name = r->job->hosts->v[first].name;
    const char *stage = "its agent has not connected";
    for (size_t i = 0; i < r->links.n; i++) {
        const struct link *l = &r->links.v[i];
        if (l->first > first || first >= l->end)
            continue;
        if (l->state == LINK_OPEN && l->first == first)
            stage = "its agent is connected but not ready";
        else if (l->state == LINK_GREETING && l->kind == LINK_SSH)
            stage = "ssh has neither started the agent nor failed";
        break;
    }
    int n = snprintf(why, sizeof(why),
                     "host %.60s: not ready within %llu s (--start-timeout): %s", name,
                     (unsigned long long)r->start_timeout_s, stage);
    if (missing > 1 && n > 0)
        (void)snprintf(why + n, sizeof(why) - (size_t)n, "; and %u more", missing - 1);
    remote_hosts_fail(&r->hosts, name, 125, why);
}

static void remote_send_job(void *arg, struct link *l)
{
    struct remote *r = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    bytes_put_u32(&b, l->end);
    errand_write(&r->e, &b);
    log_info("agent connected", "host=%s", l->host);
    links_send(&r->links, ERRAND_JOB, l->first, &b);
}

static void
remote_send_to_all(struct remote *r, enum errand_type type, const struct strbuf *b)
{
    for (uint32_t h = 0; h < r->job->hosts->n; h++)
        links_send(&r->links, type, h, b);
}

/* --- the live report --- */

static void remote_examine(void *arg, uint32_t number)
{
    struct remote *r = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};
    strbuf_init(&b, 16);
    bytes_put_u32(&b, number);
    remote_send_to_all(r, ERRAND_EXAMINE, &b);
}

static const char *remote_host_of(void *arg, uint32_t rank)
{
    const struct remote *r = arg;
    for (uint32_t h = 0; h < r->job->hosts->n; h++) {
        if (rank < r->job->hosts->v[h].slots)
            return r->job->hosts->v[h].name;
        rank -= r->job->hosts->v[h].slots;
    }
    return "";
}

/* 1 if the hosts differ: then a slow host is not found, only slow ranks. */
static uint32_t remote_slots(const struct remote *r)
{
    const struct hostlist *hosts = r->job->hosts;
    for (size_t h = 1; h < hosts->n; h++)
        if (hosts->v[h].slots != hosts->v[0].slots)
            return 1;
    return hosts->v[0].slots;
}

static void remote_open_live(struct remote *r)
{
    struct live_lead_config c = {
        .examine = remote_examine, .host_of = remote_host_of, .arg = r};
    live_lead_init(&r->lead, &c);
    live_lead_meet(&r->lead, 0, (uint32_t)r->job->hosts->n);
    live_door_write_token(r->job->dir, &r->token);
    live_door_open(&r->door, r->job->dir, &r->token, r->e.job_id, &r->lead);
}

/* --- decisions --- */

static int remote_send_start(struct remote *r, uint32_t h, struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    CLEANUP(errand_start_release)
    struct errand_start s = {.rdv_port = r->rdv_port,
                             .master_port = r->hosts.v[0].ready.master_port};
    bool is_tf = r->job->roles.framework != FRAMEWORK_HVD;
    int rc = remote_address_reach(&r->hosts, h, is_tf ? (uint32_t)r->job->hosts->n : 1,
                                  &s.reach, err);
    if (rc < 0)
        return rc;
    (void)snprintf(s.rdv_host, sizeof(s.rdv_host), "%s", r->hosts.v[h].launcher);
    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    errand_start_write(&s, &b);
    links_send(&r->links, ERRAND_START, h, &b);
    return 0;
}

static int remote_start(struct remote *r, struct err *err)
{
    int fd = -1;
    struct auth_id id = {.token = &r->token, .job_id = r->e.job_id};
    int rc = remote_address_find(&r->hosts, r->job->iface, err);
    if (rc < 0)
        return rc;
    if ((rc = tcp_listen("::", 0, &fd, &r->rdv_port, err)) < 0)
        return rc;
    rc = rdv_server_start(fd, &id, r->job->np, rdv_log_waiting, &r->server, err);
    if (rc < 0) {
        fd_close(&fd);
        return rc;
    }
    for (uint32_t h = 0; rc == 0 && h < r->job->hosts->n; h++)
        rc = remote_send_start(r, h, err);
    if (rc < 0)
        return rc;
    live_lead_set_present(&r->lead, (uint32_t)r->job->hosts->n);
    live_lead_start(&r->lead, r->job->np, remote_slots(r));
    log_info("all hosts are ready, ranks start", "np=%u hosts=%zu", r->job->np,
             r->job->hosts->n);
    return 0;
}

static void remote_enter_end(struct remote *r, enum meet_state state)
{
    meet_enter(&r->hosts.meet, state);
    remote_send_to_all(r, state == MEET_STOPPED ? ERRAND_STOP : ERRAND_FINISH, NULL);
    links_close(&r->links, false);
    r->end_deadline_ns = clock_now_ns() + STOP_NS;
}

/* Reports the failed rank or host at once to ranks that wait in the rendezvous. */
static void remote_fail_rendezvous(struct remote *r)
{
    char sentence[480];
    const struct report *first = meet_first(&r->hosts.meet);
    if (!first || !r->server || r->hosts.meet.verdict.n == r->n_reported)
        return;
    r->n_reported = r->hosts.meet.verdict.n;
    report_sentence(first, sentence, sizeof(sentence));
    rdv_server_fail(r->server, sentence);
}

static void remote_decide(struct remote *r)
{
    struct err err = ERR_INIT;
    uint64_t now_ns = clock_now_ns();
    if (remote_hosts_are_over(&r->hosts))
        return;
    if (r->hosts.meet.state == MEET_WAITING && !r->hosts.meet.verdict.n
        && now_ns >= r->start_deadline_ns)
        remote_time_out(r);
    remote_fail_rendezvous(r);
    enum meet_state due = meet_due(&r->hosts.meet, clock_wall_us(), now_ns);
    if (due == r->hosts.meet.state
        || (due == MEET_STOPPED && now_ns < r->hosts.others_ns
            && links_are_opening(&r->links)))
        return;
    if (due != MEET_RUNNING) {
        remote_enter_end(r, due);
        return;
    }
    meet_enter(&r->hosts.meet, due);
    if (remote_start(r, &err) < 0)
        remote_hosts_fail(&r->hosts, r->job->hosts->v[0].name, 125, err.text);
}

static void remote_take_signals(struct remote *r)
{
    int sig;
    while ((sig = signals_next(r->signals)) > 0) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        if (sig == SIGCHLD)
            continue; /* link.c reaps its own children */
        if (sig == SIGTSTP) {
            log_warn("a job over several hosts cannot be suspended, continuing",
                     "signal=SIGTSTP");
            continue;
        }
        if (signals_is_stop(sig) && !r->forwarded_signal) {
            r->forwarded_signal = sig;
            r->hosts.are_interrupted = true;
            log_info("signal forwarded", "signal=%s", signal_name(sig));
            if (r->hosts.meet.state == MEET_WAITING)
                remote_enter_end(r, MEET_FINISHED);
        }
        strbuf_init(&b, 16);
        bytes_put_u32(&b, (uint32_t)sig);
        remote_send_to_all(r, ERRAND_SIGNAL, &b);
    }
}

/* --- the loop --- */

static uint64_t remote_next_due(const struct remote *r)
{
    uint64_t now_ns = clock_now_ns(), due = links_next_ns(&r->links, now_ns);
    uint64_t verdict_ns = meet_deadline_ns(&r->hosts.meet);
    if (verdict_ns <= now_ns && r->hosts.others_ns > now_ns) /* see remote_decide() */
        verdict_ns = r->hosts.others_ns;
    uint64_t others[] = {
        verdict_ns,
        r->hosts.meet.state == MEET_WAITING ? r->start_deadline_ns : UINT64_MAX,
        remote_hosts_are_over(&r->hosts) ? r->end_deadline_ns : UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (others[i] < due)
            due = others[i];
    due = earlier_ns(due, live_door_next_ns(&r->door));
    return output_due_ns(&r->output.output, due);
}

static void remote_serve_once(struct remote *r)
{
    nfds_t n = 1, n_output;
    r->fds[0] = (struct pollfd){.fd = r->signals->fd, .events = POLLIN};
    n_output = output_pollfds(&r->output.output, r->fds + n);
    n += n_output;
    n += links_pollfds(&r->links, r->fds + n);
    live_door_fds(&r->door, r->fds + n);
    n += LIVE_DOOR_FDS;
    if (poll(r->fds, n, clock_left_ms(remote_next_due(r))) <= 0)
        for (nfds_t i = 0; i < n; i++)
            r->fds[i].revents = 0;
    output_serve(&r->output.output, r->fds + 1, n_output);
    links_serve(&r->links);
    live_door_serve(&r->door);
    remote_take_signals(r);
    remote_output_give_credit(&r->output, &r->links);
    remote_decide(r);
}

static bool remote_is_stopped(void *arg)
{
    struct remote *r = arg;
    remote_take_signals(r);
    return r->hosts.meet.state == MEET_STOPPED || r->forwarded_signal;
}

/* Runs until every agent has closed or the deadline is over; then writes the rest of
 * the output. */
static void remote_serve(struct remote *r)
{
    links_serve(&r->links);
    while (!remote_hosts_are_over(&r->hosts)
           || (links_left(&r->links) && clock_now_ns() < r->end_deadline_ns))
        remote_serve_once(r);
    links_close(&r->links, true);
    remote_output_finish(&r->output, r->signals->fd, r->fds, remote_is_stopped, r);
}

/* --- start and end --- */

static int
remote_add_links(struct remote *r, int local_fd, pid_t local_pid, struct err *err)
{
    const struct hostlist *hosts = r->job->hosts;
    enum link_kind kind = r->job->token_file ? LINK_SERVE : LINK_SSH;
    uint32_t first = 0, end = 0;
    int rc = 0;
    if (r->e.local < hosts->n) {
        rc = links_add(&r->links, LINK_LOCAL, hosts->v[r->e.local].name, r->e.local,
                       r->e.local + 1, err);
        if (rc == 0)
            links_adopt(&r->links, 0, local_pid, local_fd);
    }
    for (uint32_t j = 0; rc == 0
                         && errand_share(0, (uint32_t)hosts->n, r->e.local, r->e.fanout,
                                         j, &first, &end);
         j++)
        rc = links_add(&r->links, kind, hosts->v[first].name, first, end, err);
    return rc;
}

static int remote_prepare(struct remote *r, struct err *err)
{
    int local_fd = -1, rc;
    pid_t local_pid = 0;
    uint64_t ms = r->job->start_timeout_ms;
    r->start_timeout_s = (ms + 999) / 1000;
    r->start_deadline_ns = clock_now_ns() + ms * NS_PER_MS;
    if ((rc = errand_make(r->job, r->start_timeout_s, &r->e, err)) < 0
        || (rc = session_make_keys(r->job->token_file, r->e.seed, &r->root, &r->token,
                                   err))
               < 0
        || (rc = remote_hosts_init(&r->hosts, r->job->hosts, r->job->np, r->e.local,
                                   err))
               < 0
        || (rc = remote_output_open(&r->output, r->job, r->job->np,
                                    (uint32_t)r->job->hosts->n, err))
               < 0)
        return rc;
    remote_open_live(r);
    r->fds = mem_calloc(1 + LIVE_DOOR_FDS + OUTPUT_FDS + 2 * (size_t)r->job->np
                            + LINK_FDS * (r->job->hosts->n + 1),
                        sizeof(*r->fds));
    if (!r->fds)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", r->job->np);
    r->peer_timeout_ns = r->e.peer_timeout_ms * NS_PER_MS;
    if (r->e.local < r->job->hosts->n
        && (rc = attach_local(r->signals, r->job->guard, &local_fd, &local_pid, err))
               < 0)
        return rc;
    struct links_config c = {
        .ssh = r->e.ssh,
        .agent_port = r->job->agent_port ? r->job->agent_port : REMOTE_DEFAULT_PORT,
        /* the launcher of an MPIJob is started before its workers */
        .is_patient = getenv("K_MPI_JOB_ROLE") != NULL,
        .root = r->root,
        .deadline_ns = r->start_deadline_ns - ms * NS_PER_MS / 10,
        .peer_timeout_ns = r->peer_timeout_ns,
        .signals = r->signals,
        .guard = r->job->guard,
        .env = r->job->env,
        .on_open = remote_send_job,
        .on_frame = remote_on_frame,
        .on_lost = remote_on_lost,
        .arg = r};
    (void)snprintf(c.agent_path, sizeof(c.agent_path), "%s", r->e.agent_path);
    rc = links_init(&r->links, &c, err);
    if (rc == 0)
        rc = remote_add_links(r, local_fd, local_pid, err);
    if (rc < 0)
        fd_close(&local_fd); /* the child exits when its connection ends */
    return rc;
}

static void remote_fill_end(struct remote *r, struct remote_end *ret)
{
    const struct report *first = meet_first(&r->hosts.meet);
    memset(ret, 0, sizeof(*ret));
    ret->forwarded_signal = r->forwarded_signal;
    if (!first)
        return;
    ret->has_failed = true;
    ret->first = *first;
    if (ret->first.f.rank < 0 && r->hosts.n_failed > 1)
        remote_hosts_name_others(&r->hosts, &ret->first.f);
}

static void remote_release(struct remote *r)
{
    live_door_close(&r->door);
    live_lead_release(&r->lead);
    links_release(&r->links);
    rdv_server_stop(r->server);
    remote_output_release(&r->output);
    remote_hosts_release(&r->hosts);
    errand_release(&r->e);
    token_wipe(&r->root);
    token_wipe(&r->token);
    mem_free(r->fds);
}

int remote_run(const struct remote_job *job,
               struct signals *signals,
               struct remote_end *ret,
               struct err *err)
{
    AUTOFREE struct remote *r = mem_zalloc(sizeof(*r));
    if (!r)
        return err_set(err, -ENOMEM, "out of memory");
    r->job = job;
    r->signals = signals;
    int rc = remote_prepare(r, err);
    if (rc == 0) {
        remote_serve(r);
        remote_fill_end(r, ret);
    }
    remote_release(r);
    return rc;
}

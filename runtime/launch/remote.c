/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun's side of a job on several hosts.
 *
 *   own host: a forked child --.
 *   other hosts: ssh, or serve --+-- links (links.c) -- frames (errand.h)
 *                                        |
 *      READY from all -> addresses, rendezvous server here -> START to all
 *      OUTPUT -> output.c: lines, prefix, files -> our stdout; then CREDIT for more
 *      FAILED, a lost link -> meet.c, verdict.c: first failure -> STOP to all
 *      DONE from all -> FINISH; then every link closes and the job ends
 *
 * Before START every failure is final: a lost host does not come back. The main thread
 * does everything, except the rendezvous and, with serve, connecting. Called by
 * horovodrun.c. */
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
#include "runtime/wire/bytes.h"
#include "runtime/launch/core/meet.h"
#include "runtime/launch/links.h"
#include "runtime/launch/output.h"
#include "runtime/launch/remote_errand.h"
#include "runtime/launch/remote_places.h"
#include "runtime/launch/session.h"
#include "runtime/rendezvous/rendezvous.h"

/* agents: SIGTERM 5 s, SIGKILL 10 s, output 2 s */
#define STOP_NS           (25 * NS_PER_S)
#define SLOW_READER_NS    (2 * NS_PER_S) /* after a stop */
#define OTHERS_NS         NS_PER_S
#define NO_MEET_TIMEOUT_S 1000000000u /* remote_time_out() reports it instead */

struct remote {
    const struct remote_job *job;
    struct signals *signals;
    struct token root, token;
    struct errand e;
    uint64_t peer_timeout_ns, start_deadline_ns, start_timeout_s;
    uint64_t end_deadline_ns; /* of waiting for agents after the end was decided */
    struct remote_host *hosts;
    uint32_t n_failed_hosts;
    uint64_t others_ns; /* until then further failed hosts are named with the first */
    struct link_set links;
    struct meet meet;
    struct output output;
    struct rdv_server *server;
    uint16_t rdv_port;
    size_t n_reported; /* failures that were passed to the rendezvous */
    int forwarded_signal;
    struct pollfd *fds;
};

static bool remote_is_over(const struct remote *r)
{
    return r->meet.state == MEET_STOPPED || r->meet.state == MEET_FINISHED;
}

/* --- failures --- */

static void remote_fail(struct remote *r, const char *host, int code, const char *why)
{
    AUTOFREE struct report *report = mem_zalloc(sizeof(*report));
    if (!report)
        return;
    report->f.rank = report->blames = -1;
    report->f.exit_code = code;
    report->f.at_wall_us = clock_wall_us();
    (void)snprintf(report->f.host, sizeof(report->f.host), "%s", host);
    (void)snprintf(report->f.why, sizeof(report->f.why), "%.*s", 235, why);
    meet_failed(&r->meet, report, clock_now_ns());
}

/* A host that failed before the start counts once, with its first failure. */
static bool remote_count_failed(struct remote *r, uint32_t host)
{
    bool is_new = !r->hosts[host].has_failed;
    r->hosts[host].has_failed = true;
    r->n_failed_hosts += is_new;
    if (!r->others_ns)
        r->others_ns = clock_now_ns() + OTHERS_NS;
    return is_new;
}

static void
remote_lose_hosts(struct remote *r, uint32_t first, uint32_t end, const char *why)
{
    char text[300];
    const char *name = r->job->hosts->v[first].name;
    bool is_started = r->meet.state == MEET_RUNNING;
    if (remote_is_over(r))
        return;
    for (uint32_t h = first; is_started && h < end; h++)
        if (h == first || h != r->e.local)
            meet_lost(&r->meet, h, why, clock_wall_us(), clock_now_ns());
    if (is_started || !remote_count_failed(r, first))
        return;
    log_info("a host failed before the start", "host=%s cause=\"%s\"", name, why);
    (void)snprintf(text, sizeof(text), "host %.60s: %.200s", name, why);
    remote_fail(r, name, 125, text);
}

static void remote_on_lost(void *arg, struct link *l)
{
    struct remote *r = arg;
    for (uint32_t h = l->first; h < l->end; h++)
        remote_host_output_ended(&r->hosts[h], &r->output);
    remote_lose_hosts(r, l->first, l->end, l->why);
}

/* Reports the missing hosts and the stage of the first of them. */
static void remote_time_out(struct remote *r)
{
    char why[300];
    uint32_t missing = 0, first = 0;
    for (uint32_t h = (uint32_t)r->job->hosts->n; h-- > 0;)
        if (!r->hosts[h].is_ready) {
            missing++;
            first = h;
        }
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
    remote_fail(r, name, 125, why);
}

/* --- frames --- */

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

static int remote_take_output(struct remote *r,
                              uint32_t host,
                              const struct frame *f,
                              struct err *err)
{
    struct errand_output o;
    int rc = errand_output_read(f->p + 4, f->n - 4, &o, err);
    struct remote_host *h = &r->hosts[host];
    if (rc == 0 && (o.rank < h->first_rank || o.rank - h->first_rank >= h->n_ranks))
        rc = err_set(err, -EPROTO, "output of rank %u, which is on another host",
                     o.rank);
    if (rc < 0)
        return rc;
    if (o.n)
        output_feed(&r->output, o.rank, (int)o.stream, o.p, o.n);
    h->owed_bytes += (uint32_t)o.n;
    return 0;
}

static int remote_take_ready(struct remote *r,
                             struct link *l,
                             uint32_t host,
                             const struct frame *f,
                             struct err *err)
{
    struct remote_host *h = &r->hosts[host];
    int rc = errand_ready_read(f->p + 4, f->n - 4, &h->ready, err);
    if (rc < 0)
        return rc;
    h->is_ready = true;
    meet_set_ready(&r->meet, host);
    log_info("host is ready", "host=%s", r->job->hosts->v[host].name);
    if (l->kind == LINK_SERVE) {
        int fd = l->channel.conn.fd;
        (void)tcp_peer_addr(fd, h->ready.own, sizeof(h->ready.own));
        (void)tcp_local_addr(fd, h->ready.theirs, sizeof(h->ready.theirs));
    } else if (host != l->first) { /* it sees the agent in between, not this host */
        (void)snprintf(h->ready.theirs, sizeof(h->ready.theirs), "%s",
                       r->hosts[l->first].ready.theirs);
    }
    return 0;
}

static int remote_take_failed(struct remote *r,
                              uint32_t host,
                              const struct frame *f,
                              struct err *err)
{
    AUTOFREE struct report *report = mem_alloc(sizeof(*report));
    if (!report)
        return err_set(err, -ENOMEM, "out of memory for a failure report");
    int rc = report_read(f->p + 4, f->n - 4, report, err);
    if (rc < 0)
        return rc;
    if (!r->hosts[host].is_ready)
        remote_count_failed(r, host);
    if (!*report->f.host
        || !strcmp(report->f.host, "-")) { /* the agent had not decoded its JOB */
        char why[sizeof(report->f.why)];
        const char *name = r->job->hosts->v[host].name;
        (void)snprintf(why, sizeof(why), "%s", report->f.why);
        (void)snprintf(report->f.why, sizeof(why), "host %.60s: %.170s", name, why);
        (void)snprintf(report->f.host, sizeof(report->f.host), "%s", name);
    }
    if (!r->forwarded_signal)
        meet_failed(&r->meet, report, clock_now_ns());
    return 0;
}

static int remote_take_lost(struct remote *r,
                            struct link *l,
                            uint32_t host,
                            const struct frame *f,
                            struct err *err)
{
    struct errand_lost lost;
    int rc = errand_lost_read(f->p + 4, f->n - 4, &lost, err);
    if (rc == 0 && (lost.end <= host || lost.end > l->end))
        rc = err_set(err, -EPROTO, "a loss message is malformed");
    if (rc == 0)
        remote_lose_hosts(r, host, lost.end, lost.why);
    return rc;
}

static int
remote_on_frame(void *arg, struct link *l, const struct frame *f, struct err *err)
{
    struct remote *r = arg;
    struct bytes_reader b = {.p = f->p, .left = f->n};
    uint32_t host = bytes_u32(&b);
    if (f->type == ERRAND_PING)
        return 0;
    if (host < l->first || host >= l->end)
        return err_set(err, -EPROTO, "its agent sent a message for another host");
    switch ((enum errand_type)f->type) {
    case ERRAND_READY:
        return remote_take_ready(r, l, host, f, err);
    case ERRAND_OUTPUT:
        return remote_take_output(r, host, f, err);
    case ERRAND_FAILED:
        return remote_take_failed(r, host, f, err);
    case ERRAND_DONE:
        remote_host_output_ended(&r->hosts[host], &r->output);
        meet_done(&r->meet, host, 0);
        return 0;
    case ERRAND_LOST:
        return remote_take_lost(r, l, host, f, err);
    case ERRAND_NOTE:
        remote_print_note(r->job->program, r->job->hosts->v[host].name, f->p + 4,
                          f->n - 4);
        return 0;
    case ERRAND_PING:
    case ERRAND_JOB:
    case ERRAND_START:
    case ERRAND_SIGNAL:
    case ERRAND_CREDIT:
    case ERRAND_STOP:
    case ERRAND_FINISH:
        break;
    }
    return err_set(err, -EPROTO, "message %u is not for horovodrun", f->type);
}

static void
remote_send_to_all(struct remote *r, enum errand_type type, const struct strbuf *b)
{
    for (uint32_t h = 0; h < r->job->hosts->n; h++)
        links_send(&r->links, type, h, b);
}

/* Gives no credit while our reader is slow; the ranks then block on their pipes. */
static void remote_give_credit(struct remote *r)
{
    if (output_is_full(&r->output))
        return;
    for (uint32_t h = 0; h < r->job->hosts->n; h++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        if (r->hosts[h].owed_bytes < ERRAND_CREDIT_BYTES / 4)
            continue;
        strbuf_init(&b, 16);
        bytes_put_u32(&b, r->hosts[h].owed_bytes);
        r->hosts[h].owed_bytes = 0;
        links_send(&r->links, ERRAND_CREDIT, h, &b);
    }
}

/* --- decisions --- */

static int remote_start(struct remote *r, struct err *err)
{
    int fd = -1;
    struct auth_id id = {.token = &r->token, .job_id = r->e.job_id};
    int rc = remote_addresses(r->job->hosts, r->e.local, r->job->iface, r->hosts, err);
    if (rc < 0)
        return rc;
    if ((rc = tcp_listen("::", 0, &fd, &r->rdv_port, err)) < 0)
        return rc;
    if ((rc = rdv_server_start(fd, &id, r->job->np, &r->server, err)) < 0) {
        fd_close(&fd);
        return rc;
    }
    for (uint32_t h = 0; h < r->job->hosts->n; h++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct errand_start s = {.rdv_port = r->rdv_port,
                                 .master_port = r->hosts[0].ready.master_port};
        (void)snprintf(s.rdv_host, sizeof(s.rdv_host), "%s", r->hosts[h].launcher);
        (void)snprintf(s.master_addr, sizeof(s.master_addr), "%s", r->hosts[h].master);
        strbuf_init(&b, 1024);
        errand_start_write(&s, &b);
        links_send(&r->links, ERRAND_START, h, &b);
    }
    log_info("all hosts are ready, ranks start", "np=%u hosts=%zu", r->job->np,
             r->job->hosts->n);
    return 0;
}

static void remote_enter_end(struct remote *r, enum meet_state state)
{
    meet_enter(&r->meet, state);
    remote_send_to_all(r, state == MEET_STOPPED ? ERRAND_STOP : ERRAND_FINISH, NULL);
    links_close(&r->links, false);
    r->end_deadline_ns = clock_now_ns() + STOP_NS;
}

/* Reports the failed rank or host at once to ranks that wait in the rendezvous. */
static void remote_fail_rendezvous(struct remote *r)
{
    char sentence[480];
    const struct report *first = meet_first(&r->meet);
    if (!first || !r->server || r->meet.verdict.n == r->n_reported)
        return;
    r->n_reported = r->meet.verdict.n;
    report_sentence(first, sentence, sizeof(sentence));
    rdv_server_fail(r->server, sentence);
}

static void remote_decide(struct remote *r)
{
    struct err err = ERR_INIT;
    uint64_t now_ns = clock_now_ns();
    if (remote_is_over(r))
        return;
    if (r->meet.state == MEET_WAITING && !r->meet.verdict.n
        && now_ns >= r->start_deadline_ns)
        remote_time_out(r);
    remote_fail_rendezvous(r);
    enum meet_state due = meet_due(&r->meet, clock_wall_us(), now_ns);
    if (due == r->meet.state
        || (due == MEET_STOPPED && now_ns < r->others_ns
            && links_are_opening(&r->links)))
        return;
    if (due != MEET_RUNNING) {
        remote_enter_end(r, due);
        return;
    }
    meet_enter(&r->meet, due);
    if (remote_start(r, &err) < 0)
        remote_fail(r, r->job->hosts->v[0].name, 125, err.text);
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
            log_info("signal forwarded", "signal=%s", signal_name(sig));
            if (r->meet.state == MEET_WAITING)
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
    uint64_t verdict_ns = meet_deadline_ns(&r->meet);
    if (verdict_ns <= now_ns && r->others_ns > now_ns) /* see remote_decide() */
        verdict_ns = r->others_ns;
    uint64_t others[] = {
        verdict_ns, r->meet.state == MEET_WAITING ? r->start_deadline_ns : UINT64_MAX,
        remote_is_over(r) ? r->end_deadline_ns : UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (others[i] < due)
            due = others[i];
    return output_due_ns(&r->output, due);
}

static void remote_serve_once(struct remote *r)
{
    nfds_t n = 1, n_output;
    r->fds[0] = (struct pollfd){.fd = r->signals->fd, .events = POLLIN};
    n_output = output_pollfds(&r->output, r->fds + n);
    n += n_output;
    n += links_pollfds(&r->links, r->fds + n);
    if (poll(r->fds, n, clock_left_ms(remote_next_due(r))) <= 0)
        for (nfds_t i = 0; i < n; i++)
            r->fds[i].revents = 0;
    output_serve(&r->output, r->fds + 1, n_output);
    links_serve(&r->links);
    remote_take_signals(r);
    remote_give_credit(r);
    remote_decide(r);
}

/* Runs until every agent has closed or the deadline is over; then writes the rest of
 * the output. */
static void remote_serve(struct remote *r)
{
    uint64_t slow_ns = UINT64_MAX;
    links_serve(&r->links);
    while (!remote_is_over(r)
           || (links_left(&r->links) && clock_now_ns() < r->end_deadline_ns))
        remote_serve_once(r);
    links_close(&r->links, true);
    while (!output_drain(&r->output) && clock_now_ns() < slow_ns) {
        nfds_t n = output_pollfds(&r->output, r->fds + 1);
        r->fds[0] = (struct pollfd){.fd = r->signals->fd, .events = POLLIN};
        if ((r->meet.state == MEET_STOPPED || r->forwarded_signal)
            && slow_ns == UINT64_MAX)
            slow_ns = clock_now_ns() + SLOW_READER_NS;
        (void)poll(r->fds, n + 1, clock_left_ms(output_due_ns(&r->output, slow_ns)));
        remote_take_signals(r);
    }
    output_report_lost(&r->output);
}

/* --- start and end --- */

static int remote_make_keys(struct remote *r, struct err *err)
{
    int rc = r->job->token_file ? token_read_file(r->job->token_file, &r->root, err)
                                : token_random(&r->root, err);
    if (rc == 0)
        session_job_token(&r->root, r->e.seed, &r->token);
    return rc;
}

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

static int remote_open_output(struct remote *r, struct err *err)
{
    AUTOFREE uint32_t *numbers = mem_calloc(r->job->np, sizeof(*numbers));
    size_t n_fds = 2 * (size_t)r->job->np + LINK_FDS * (r->job->hosts->n + 1);
    r->fds = mem_calloc(1 + OUTPUT_FDS + n_fds, sizeof(*r->fds));
    if (!numbers || !r->fds)
        return err_set(err, -ENOMEM, "out of memory for %u ranks", r->job->np);
    for (uint32_t i = 0; i < r->job->np; i++)
        numbers[i] = i;
    struct output_config c = {.n = r->job->np,
                              .ranks = numbers,
                              .size = r->job->np,
                              .out_fd = 1,
                              .err_fd = 2,
                              .with_timestamp = r->job->with_timestamp,
                              .dir = r->job->output_dir};
    return output_init(&r->output, &c, err);
}

static int remote_prepare(struct remote *r, struct err *err)
{
    int local_fd = -1, rc;
    pid_t local_pid = 0;
    uint64_t ms = r->job->start_timeout_ms;
    r->start_timeout_s = (ms + 999) / 1000;
    r->start_deadline_ns = clock_now_ns() + ms * NS_PER_MS;
    if ((rc = remote_errand(r->job, r->start_timeout_s, &r->e, err)) < 0
        || (rc = remote_make_keys(r, err)) < 0
        || (rc = remote_hosts_new(r->job->hosts, r->job->np, &r->hosts, err)) < 0
        || (rc = meet_init(&r->meet, (uint32_t)r->job->hosts->n, 0, 0,
                           NO_MEET_TIMEOUT_S, clock_now_ns(), err))
               < 0
        || (rc = remote_open_output(r, err)) < 0)
        return rc;
    r->peer_timeout_ns = r->e.peer_timeout_ms * NS_PER_MS;
    meet_know_hosts(&r->meet, r->job->hosts, r->job->np);
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
    const struct report *first = meet_first(&r->meet);
    memset(ret, 0, sizeof(*ret));
    ret->forwarded_signal = r->forwarded_signal;
    if (!first)
        return;
    ret->has_failed = true;
    ret->first = *first;
    if (ret->first.f.rank < 0 && r->n_failed_hosts > 1)
        remote_name_others(r->job->hosts, r->hosts, &ret->first.f);
}

static void remote_release(struct remote *r)
{
    links_release(&r->links);
    rdv_server_stop(r->server);
    output_release(&r->output);
    meet_release(&r->meet);
    errand_release(&r->e);
    token_wipe(&r->root);
    token_wipe(&r->token);
    mem_free(r->hosts);
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

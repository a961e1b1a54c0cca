/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, one poll(): the listening socket, the connections of all agents, those of
 * readers (readers.h), and a socket to end the thread.
 *
 *   strangers -> handshake (wire/accept.h) -> frames -> meet.c
 *                                        TABLE, STOP, FINISH, WORLD <-'
 *
 * The handshake proves the job's token and name. The generation of an agent is in
 * its HELLO, since agents of several generations may connect while a job is scaled.
 * To form a new world the hub sends WORLD to all connected agents. Members keep
 * their connections and send HELLO again; agents without a place in the new world
 * exit. The hub also runs the rendezvous server of the ranks, a new one for each
 * world on its own port, with the generation in the handshake.
 *
 * After it has sent the end of the job to all agents, the hub waits until they close
 * their connections: if it closed a socket first, with an unread heartbeat, the
 * kernel would drop that last message. The thread owns everything but the wake-up
 * socket; hub_start and hub_finish belong to the main thread. Called by agent.c. */
#include "runtime/launch/hub_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define PROGRESS_NS (10 * NS_PER_S)
#define LINGER_NS                                                                      \
    (20 * NS_PER_S) /* time for agents to stop their ranks (5 s + 10 s) and to close */
#define ABSENT_NS                                                                      \
    (5 * NS_PER_S)     /* for agents that connect after a failure before the start */
#define SPARE_CONNS 64 /* connections of restarted agents */
#define FIXED_FDS   (2 + READERS_MAX) /* before those of agents */

static void hub_close_conn(struct hub *h, struct conn *c, const char *why)
{
    if (c->is_closing)
        return;
    c->is_closing = true;
    if (c->worker < 0)
        return;
    if (h->meet.state == MEET_WAITING || h->meet.state == MEET_RUNNING)
        log_warn("worker's connection lost", "worker=%u address=%s cause=\"%s\"",
                 (unsigned)c->worker, c->address, why);
    meet_lost(&h->meet, (uint32_t)c->worker, why, clock_wall_us(), clock_now_ns());
}

static void hub_admit(void *arg, const struct admitted *m)
{
    struct hub *h = arg;
    struct conn *c;
    int fd = m->fd;
    if (m->role == ROLE_READER) {
        readers_admit(&h->live.readers, m, clock_now_ns());
        return;
    }
    if (h->n == h->max) {
        log_warn("agent refused, too many are connected", "address=%s connected=%zu",
                 m->address, h->n);
        fd_close(&fd);
        return;
    }
    c = conn_new(m, MESSAGE_TO_HUB_MAX_BYTES);
    if (!c)
        return; /* out of memory: it connects again */
    conn_own_address(c, h->own_address, sizeof(h->own_address));
    h->conns[h->n++] = c;
}

/* Reports the failed rank at once to ranks that wait in the rendezvous. */
static void hub_fail_rendezvous(struct hub *h)
{
    char sentence[480];
    const struct report *first = meet_first(&h->meet);
    if (!first || !h->server || h->meet.verdict.n == h->n_reported)
        return;
    h->n_reported = h->meet.verdict.n;
    report_sentence(first, sentence, sizeof(sentence));
    rdv_server_fail(h->server, sentence);
}

static void hub_serve_conn(struct hub *h, struct conn *c)
{
    struct err err = ERR_INIT;
    struct frame f;
    int rc;
    channel_serve(&c->channel);
    while ((rc = channel_next(&c->channel, clock_now_ns(), &f, &err)) > 0) {
        rc = hub_take_frame(h, c, &f, &err);
        if (rc < 0)
            break;
    }
    if (rc < 0)
        hub_close_conn(h, c, err.text);
    else if (c->channel.lost)
        hub_close_conn(h, c,
                       c->channel.lost == -EPIPE ? "its agent exited"
                                                 : strerror(-c->channel.lost));
}

/* Sends heartbeats and checks deadlines. Returns the time of the next call. */
static uint64_t hub_tick(struct hub *h, uint64_t now_ns)
{
    uint64_t due = UINT64_MAX;
    for (size_t i = 0; i < h->n; i++) {
        struct conn *c = h->conns[i];
        uint64_t next = UINT64_MAX;
        char why[64];
        int rc = c->is_closing ? 0
                               : channel_tick(&c->channel, MESSAGE_PING,
                                              h->peer_timeout_ns, now_ns, &next);
        if (rc < 0) {
            (void)snprintf(why, sizeof(why),
                           rc == -ETIMEDOUT ? "silent for %llu s"
                                            : "it does not read what is sent",
                           (unsigned long long)(h->peer_timeout_ns / NS_PER_S));
            hub_close_conn(h, c, why);
        }
        if (!c->is_closing && next < due)
            due = next;
    }
    return due;
}

static void hub_fail_own(struct hub *h, const struct err *err)
{
    AUTOFREE struct report *r = mem_zalloc(sizeof(*r));
    if (!r)
        return;
    report_init(r, h->meet.members[0].host, 125, clock_wall_us());
    (void)snprintf(r->f.why, sizeof(r->f.why), "%.230s", err->text);
    meet_failed(&h->meet, r, clock_now_ns());
}

/* Grows the arrays to one connection per worker and some spare ones. */
static int hub_make_room(struct hub *h, uint32_t workers, struct err *err)
{
    size_t max = (size_t)workers + SPARE_CONNS;
    if (max <= h->max)
        return 0;
    struct conn **conns = mem_calloc(max, sizeof(struct conn *));
    struct pollfd *fds = mem_calloc(2 + READERS_MAX + max, sizeof(*fds));
    if (!conns || !fds) {
        mem_free(conns);
        mem_free(fds);
        return err_set(err, -ENOMEM, "out of memory for %u workers", workers);
    }
    if (h->n)
        memcpy(conns, h->conns, h->n * sizeof(struct conn *));
    mem_free(h->conns);
    mem_free(h->fds);
    h->conns = conns;
    h->fds = fds;
    h->max = max;
    return 0;
}

/* Sends the new world to all connected agents. The ranks of the current one lose their
 * rendezvous; they are stopped anyway. */
static void hub_form_world(struct hub *h)
{
    struct err err = ERR_INIT;
    uint32_t before = h->meet.workers;
    if (hub_make_room(h, h->meet.wanted.workers, &err) < 0
        || meet_reform(&h->meet, clock_now_ns(), &err) < 0) {
        h->meet.wanted.generation = h->meet.generation;
        hub_fail_own(h, &err);
        return;
    }
    log_info("forming another world", "generation=%u workers=%u before=%u",
             h->meet.generation, h->meet.workers, before);
    live_lead_meet(&h->live, h->meet.generation, h->meet.workers);
    rdv_server_stop(h->server);
    h->server = NULL;
    h->n_reported = h->n_broken = 0;
    h->is_hold_logged = false;
    h->progress_ns = clock_now_ns() + PROGRESS_NS;
    for (size_t i = 0; i < h->n; i++) {
        struct conn *c = h->conns[i];
        c->is_here = false;
        if (c->worker >= h->meet.workers)
            c->worker = -1; /* it may leave without a failure */
        if (!c->is_closing && !c->is_refused)
            hub_send_world(h, c);
    }
}

static void hub_log_hold(struct hub *h)
{
    char sentence[480];
    if (h->is_hold_logged || !meet_holds(&h->meet))
        return;
    h->is_hold_logged = true;
    report_sentence(meet_first(&h->meet), sentence, sizeof(sentence));
    log_warn("failure held back, a world without this worker may be announced",
             "seconds=%d cause=\"%s\"", MEET_LEAVE_MS / 1000, sentence);
}

static void hub_decide(struct hub *h)
{
    struct err err = ERR_INIT;
    if (meet_reforms(&h->meet))
        hub_form_world(h);
    hub_log_hold(h);
    uint64_t now = clock_now_ns();
    enum meet_state before = h->meet.state;
    enum meet_state due = meet_due(&h->meet, clock_wall_us(), now);
    if (due == before)
        return;
    meet_enter(&h->meet, due);
    if (before == MEET_WAITING && due == MEET_STOPPED
        && now < h->meet.start_deadline_ns)
        h->absent_ns = now + ABSENT_NS;
    switch (due) {
    case MEET_RUNNING:
        if (hub_start_rendezvous(h, &err) < 0 || hub_send_table(h, &err) < 0)
            hub_fail_own(h, &err);
        else
            live_lead_start(&h->live, meet_ranks(&h->meet), h->env.slots);
        break;
    case MEET_STOPPED:
        hub_send_stop(h);
        break;
    case MEET_FINISHED:
        hub_send_finish(h);
        break;
    case MEET_WAITING:
        break;
    }
    if (due == MEET_STOPPED || due == MEET_FINISHED) {
        h->linger_ns = now + LINGER_NS;
        live_lead_end(&h->live);
    }
}

static void hub_log_progress(struct hub *h, uint64_t now_ns)
{
    struct strbuf who;
    if (h->meet.state != MEET_WAITING || now_ns < h->progress_ns)
        return;
    h->progress_ns = now_ns + PROGRESS_NS;
    strbuf_init(&who, 200);
    meet_missing(&h->meet, &who);
    if (who.n)
        log_info("waiting for workers", "missing=\"%s\" present=%u of=%u",
                 strbuf_str(&who), meet_present(&h->meet), h->meet.workers);
    strbuf_release(&who);
}

static void hub_sweep(struct hub *h)
{
    size_t kept = 0;
    for (size_t i = 0; i < h->n; i++) {
        if (h->conns[i]->is_closing)
            conn_free(h->conns[i]);
        else
            h->conns[kept++] = h->conns[i];
    }
    h->n = kept;
}

/* True when every agent has received the end of the job: connected ones have closed,
 * and agents that were absent when a worker failed before the start had time to
 * connect. */
static bool hub_all_informed(const struct hub *h, uint64_t now_ns)
{
    if (h->n > 0)
        return false;
    return now_ns >= h->absent_ns
           || meet_present(&h->meet) + h->n_broken >= h->meet.workers;
}

static uint64_t hub_next_deadline(struct hub *h, bool has_ended, uint64_t now_ns)
{
    uint64_t due = earlier_ns(hub_tick(h, now_ns), meet_deadline_ns(&h->meet));
    due = earlier_ns(due, door_next_ns(h->acceptor.door));
    due = earlier_ns(due, live_lead_next_ns(&h->live));
    if (h->meet.state == MEET_WAITING)
        due = earlier_ns(due, h->progress_ns);
    if (has_ended)
        due = earlier_ns(due, h->linger_ns);
    if (has_ended && now_ns < h->absent_ns)
        due = earlier_ns(due, h->absent_ns);
    return due;
}

static void hub_fill_fds(struct hub *h)
{
    h->fds[0] = (struct pollfd){.fd = h->wake[0], .events = POLLIN};
    h->fds[1] = (struct pollfd){.fd = door_fd(h->acceptor.door), .events = POLLIN};
    readers_fill_fds(&h->live.readers, h->fds + 2);
    for (size_t i = 0; i < h->n; i++) {
        const struct channel *c = &h->conns[i]->channel;
        h->fds[FIXED_FDS + i] =
            (struct pollfd){.fd = c->conn.fd, .events = channel_events(c)};
    }
}

/* One iteration; false at the end of the thread. */
static bool hub_serve_once(struct hub *h)
{
    bool has_ended = h->meet.state == MEET_STOPPED || h->meet.state == MEET_FINISHED;
    struct auth_id id;
    uint64_t now = clock_now_ns(), due = hub_next_deadline(h, has_ended, now);
    if (has_ended && (now >= h->linger_ns || hub_all_informed(h, now)))
        return false;
    hub_fill_fds(h);
    size_t polled = h->n;
    int ready = poll(h->fds, FIXED_FDS + polled, clock_left_ms(due));
    if (ready > 0 && h->fds[0].revents)
        return false;
    for (size_t i = 0; ready > 0 && i < polled; i++) {
        if (h->fds[FIXED_FDS + i].revents && !h->conns[i]->is_closing)
            hub_serve_conn(h, h->conns[i]);
    }
    id = hub_id(h, 0);
    acceptor_serve(&h->acceptor, &id, hub_admit, h);
    live_lead_set_present(&h->live, meet_present(&h->meet));
    live_lead_serve(&h->live);
    hub_log_progress(h, clock_now_ns());
    hub_fail_rendezvous(h);
    hub_decide(h);
    hub_sweep(h);
    return true;
}

static void *hub_main(void *arg)
{
    struct hub *h = arg;
    while (hub_serve_once(h))
        ;
    (void)shutdown(h->wake[0], SHUT_RDWR); /* hub_finish may be waiting */
    return NULL;
}

static void hub_free(struct hub *h)
{
    for (size_t i = 0; i < h->n; i++)
        conn_free(h->conns[i]);
    live_lead_release(&h->live);
    rdv_server_stop(h->server);
    acceptor_close(&h->acceptor);
    fd_close(&h->listen_fd);
    fd_close(&h->master_fd);
    fd_close(&h->wake[0]);
    fd_close(&h->wake[1]);
    meet_release(&h->meet);
    token_wipe(&h->token);
    mem_free(h->conns);
    mem_free(h->fds);
    mem_free(h);
}

static const char *hub_host_of(void *arg, uint32_t rank)
{
    const struct hub *h = arg;
    uint32_t worker = rank / h->meet.slots;
    return worker < h->meet.workers ? h->meet.members[worker].host : "";
}

static int hub_open(struct hub *h, struct err *err)
{
    static const struct accept_kind kind = {.name = "hub",
                                            .mine = ROLE_AGENT_HUB,
                                            .theirs = ROLE_AGENT,
                                            .or_theirs = ROLE_READER};
    const struct agent_env *a = &h->env;
    uint16_t port;
    int rc = meet_init(&h->meet, a->num_workers, a->slots, a->np, a->start_timeout_s,
                       clock_now_ns(), err);
    if (rc < 0)
        return rc;
    meet_know_world(&h->meet, a->generation, *a->world_file != '\0');
    struct live_lead_config live = {
        .examine = hub_send_examine, .host_of = hub_host_of, .arg = h};
    live_lead_init(&h->live, &live);
    live_lead_meet(&h->live, a->generation, a->num_workers);
    if ((rc = hub_make_room(h, a->num_workers, err)) < 0)
        return rc;
    if (tcp_listen("::", a->checkin_port, &h->listen_fd, &port, err) < 0)
        return err_prefix(err, "cannot listen for agents on port %u (HVD_CHECKIN_PORT)",
                          a->checkin_port);
    if ((rc = acceptor_open(&h->acceptor, &kind, err)) < 0
        || (rc = door_listen(h->acceptor.door, h->listen_fd, false, err)) < 0)
        return rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, h->wake) < 0)
        return err_errno(err, errno, "cannot create the wake-up socket of the hub");
    return 0;
}

int hub_start(const struct agent_env *env,
              const struct token *token,
              uint64_t peer_timeout_ns,
              struct hub **ret,
              struct err *err)
{
    struct hub *h = mem_zalloc(sizeof(*h));
    if (!h)
        return err_set(err, -ENOMEM, "out of memory for the hub");
    h->env = *env;
    h->token = *token;
    h->peer_timeout_ns = peer_timeout_ns;
    h->listen_fd = h->master_fd = h->wake[0] = h->wake[1] = -1;
    h->progress_ns = clock_now_ns() + PROGRESS_NS;
    (void)snprintf(h->own_address, sizeof(h->own_address), "127.0.0.1");
    int rc = hub_open(h, err);
    if (rc == 0 && (rc = -pthread_create(&h->thread, NULL, hub_main, h)) < 0)
        (void)err_errno(err, -rc, "cannot start the hub's thread");
    if (rc < 0) {
        hub_free(h);
        return rc;
    }
    *ret = h;
    return 0;
}

void hub_finish(struct hub *h, uint64_t deadline_ns)
{
    if (!h)
        return;
    /* the thread ends when all agents have closed; otherwise the shutdown ends it */
    (void)fd_wait(h->wake[1], POLLIN, deadline_ns);
    (void)shutdown(h->wake[1], SHUT_RDWR);
    (void)pthread_join(h->thread, NULL);
    hub_free(h);
}

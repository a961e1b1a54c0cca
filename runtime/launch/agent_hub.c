/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of the connection to the hub.
 *
 *   connect -> HELLO -> TABLE | WORLD (HELLO again) | STOP | FINISH | REFUSED
 *
 * Before the TABLE a lost hub may come back, because its pod was replaced. The agent
 * then connects again, unless its ranks have run. One connection serves several worlds.
 * Messages carry the generation in env, which is changed by the hub's WORLD, or by the
 * world file as long as the hub has not received a HELLO. Called by agent.c, in its
 * thread. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/agent_state.h"
#include "runtime/launch/core/meet.h"
#include "runtime/launch/dial.h"
#include "runtime/wire/bytes.h"

/* for our own failure to reach the hub, and its STOP to return */
#define FAREWELL_NS (3 * NS_PER_S)

/* --- failures --- */

enum outcome agent_fail(struct agent *a, int code, const char *why)
{
    a->is_own = true;
    report_init(&a->first, a->host, code, clock_wall_us());
    (void)snprintf(a->first.f.why, sizeof(a->first.f.why), "%.230s", why);
    return FAILED;
}

enum outcome agent_fail_signal(struct agent *a, int sig, const char *when)
{
    char why[200];
    (void)snprintf(
        why, sizeof(why),
        "worker %u received %s %s: its pod was deleted or evicted, or failed its probe",
        a->env.worker_index, signal_name(sig), when);
    (void)agent_fail(a, 0, why);
    a->is_leaving = true;
    a->first.f.signal = sig;
    return FAILED;
}

/* --- sending --- */

static void
agent_send(struct agent *a, enum message_type type, const struct strbuf *payload)
{
    if (a->is_connected && strbuf_status(payload) == 0)
        (void)channel_send(&a->channel, (uint8_t)type, strbuf_str(payload), payload->n,
                           clock_now_ns()); /* the next poll detects a lost hub */
}

void agent_send_report(struct agent *a, const struct report *r)
{
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    failed_write(a->env.generation, r, &payload);
    agent_send(a, MESSAGE_FAILED, &payload);
    a->has_reported = true;
}

static void agent_send_origin(struct agent *a, enum message_type type)
{
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    struct origin o = {a->env.worker_index, a->env.generation};
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    origin_write(&o, &payload);
    agent_send(a, type, &payload);
}

void agent_send_done(struct agent *a)
{
    a->is_done_sent = true;
    agent_send_origin(a, MESSAGE_DONE);
}

void agent_send_leaving(struct agent *a)
{
    if (a->is_leaving_sent || !*a->env.world_file)
        return;
    a->is_leaving_sent = true;
    agent_send_origin(a, MESSAGE_LEAVING);
}

static void
agent_send_live(void *arg, enum live_part part, uint32_t number, const struct strbuf *b)
{
    static const enum message_type types[] = {[LIVE_PART_RECORD] = MESSAGE_LIVE,
                                              [LIVE_PART_STALL] = MESSAGE_STALL,
                                              [LIVE_PART_FINDING] = MESSAGE_FOUND};
    struct agent *a = arg;
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    bytes_put_u32(&payload, a->env.generation);
    if (part == LIVE_PART_FINDING)
        bytes_put_u32(&payload, number);
    strbuf_add(&payload, strbuf_str(b), b->n);
    agent_send(a, types[part], &payload);
}

void agent_begin_live(struct agent *a, const char *stats_dir)
{
    struct live_host_config c = {.dir = stats_dir,
                                 .ranks = a->ranks,
                                 .n = a->n,
                                 .trainer = a->trainer,
                                 .send = agent_send_live,
                                 .arg = a};
    live_host_begin(&a->live, &c);
}

/* An examination in another world is over. */
static enum outcome agent_take_examine(struct agent *a, const struct frame *f)
{
    if (f->n == 8 && a->local && bytes_load_u32(f->p) == a->env.generation)
        live_host_examine(&a->live, bytes_load_u32(f->p + 4));
    return GOING;
}

static void agent_send_hello(struct agent *a)
{
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    struct hello h = {.worker = a->env.worker_index,
                      .workers = a->env.num_workers,
                      .slots = a->env.slots,
                      .np = a->env.np,
                      .generation = a->env.generation};
    (void)snprintf(h.host, sizeof(h.host), "%s", a->host);
    strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
    hello_write(&h, &payload);
    agent_send(a, MESSAGE_HELLO, &payload);
    a->sent_generation = a->env.generation;
}

/* --- worlds --- */

bool agent_has_place(const struct agent *a)
{
    return a->env.worker_index < a->env.num_workers;
}

static void agent_adopt_world(struct agent *a, const struct job_world *w)
{
    a->env.generation = w->generation;
    a->env.num_workers = w->workers;
    a->env.np = 0;
}

void agent_adopt_file(struct agent *a)
{
    struct job_world w;
    if (world_file_read(&a->world_file, clock_now_ns(), &w)
        && w.generation > a->env.generation)
        agent_adopt_world(a, &w);
}

void agent_watch_file(struct agent *a, uint64_t *ret_next_ns)
{
    CLEANUP(strbuf_release) struct strbuf payload = {0};
    struct job_world w;
    if (world_file_read(&a->world_file, clock_now_ns(), &w)
        && w.generation > a->sent_generation && a->is_connected) {
        a->sent_generation = w.generation;
        strbuf_init(&payload, MESSAGE_TO_HUB_MAX_BYTES);
        world_write(&w, &payload);
        agent_send(a, MESSAGE_WORLD, &payload);
    }
    if (a->world_file.next_ns < *ret_next_ns)
        *ret_next_ns = a->world_file.next_ns;
}

/* The hub forms a world: a new one, or the one this agent waits for. While ranks run, a
 * WORLD of their own generation is ignored. */
static enum outcome agent_take_world(struct agent *a, const struct job_world *w)
{
    if (w->generation < a->env.generation
        || (w->generation == a->env.generation && a->local))
        return GOING;
    if (w->generation > a->env.generation)
        log_info("changing to another world", "generation=%u workers=%u before=%u",
                 w->generation, w->workers, a->env.num_workers);
    agent_adopt_world(a, w);
    return REFORMED;
}

/* --- receiving --- */

static enum outcome agent_take_frame(struct agent *a, const struct frame *f)
{
    struct err err = ERR_INIT;
    struct job_world world;
    switch (f->type) {
    case MESSAGE_TABLE:
        table_release(&a->table);
        if (table_read(f->p, f->n, &a->table, &err) < 0)
            return agent_fail(a, 125, err.text);
        return STARTED;
    case MESSAGE_EXAMINE:
        return agent_take_examine(a, f);
    case MESSAGE_STOP:
        if (report_read(f->p, f->n, &a->first, &err) < 0)
            return agent_fail(a, 125, err.text);
        a->is_own = false;
        return FAILED;
    case MESSAGE_REFUSED: {
        char why[240];
        (void)snprintf(why, sizeof(why), "worker 0 refused worker %u: %.*s",
                       a->env.worker_index, (int)(f->n < 190 ? f->n : 190),
                       (const char *)f->p);
        (void)agent_fail(a, 125, why);
        a->is_own = false; /* the job continues without this worker */
        return FAILED;
    }
    case MESSAGE_FINISH:
        return FINISHED;
    case MESSAGE_WORLD:
        if (world_read(f->p, f->n, &world, &err) < 0)
            return agent_fail(a, 125, err.text);
        return agent_take_world(a, &world);
    case MESSAGE_PING:
        return GOING;
    }
    return agent_fail(a, 125, "worker 0 sent a message of an unknown type");
}

static void agent_lose_hub(struct agent *a, const char *why)
{
    char text[240];
    (void)snprintf(text, sizeof(text), "worker 0 (%.100s) was lost: %.80s",
                   a->env.checkin_addr, why);
    (void)agent_fail(a, a->table.hosts.n ? 125 : FAILURE_LATE, text);
    if (a->table.hosts.n) /* the failure is on that host */
        (void)snprintf(a->first.f.host, sizeof(a->first.f.host), "%s",
                       a->table.hosts.v[0].name);
    a->is_connected = false;
    channel_release(&a->channel);
}

enum outcome agent_serve_hub(struct agent *a)
{
    struct err err = ERR_INIT;
    struct frame f;
    enum outcome o = GOING;
    int rc, lost;
    channel_serve(&a->channel);
    while (o == GOING
           && (rc = channel_next(&a->channel, clock_now_ns(), &f, &err)) != 0) {
        if (rc < 0)
            return agent_fail(a, 125, err.text);
        o = agent_take_frame(a, &f);
    }
    lost = a->channel.lost;
    if (o != GOING || lost == 0)
        return o;
    agent_lose_hub(a, lost == -EPIPE ? "its agent exited" : strerror(-lost));
    return HUB_GONE;
}

enum outcome agent_tick_hub(struct agent *a, uint64_t *ret_next_ns)
{
    char why[64];
    int rc = channel_tick(&a->channel, MESSAGE_PING, a->peer_timeout_ns, clock_now_ns(),
                          ret_next_ns);
    if (rc == 0)
        return GOING;
    (void)snprintf(why, sizeof(why),
                   rc == -ETIMEDOUT ? "silent for %llu s" : "cannot send",
                   (unsigned long long)(a->peer_timeout_ns / NS_PER_S));
    agent_lose_hub(a, why);
    return HUB_GONE;
}

/* --- waiting --- */

/* Waits for one descriptor, the deadline or a signal. FAILED after a stop signal,
 * otherwise GOING. */
static enum outcome
agent_wait_fd(struct agent *a, int fd, short events, uint64_t deadline_ns)
{
    struct pollfd p[2] = {{.fd = a->signals.fd, .events = POLLIN},
                          {.fd = fd, .events = events}};
    int sig, status;
    (void)poll(p, 2, clock_left_ms(deadline_ns));
    while ((sig = signals_next(&a->signals)) > 0) {
        if (signals_is_stop(sig))
            return agent_fail_signal(a, sig, "before the job started");
        while (sig == SIGCHLD && signals_reap(&status) > 0)
            ; /* orphans of the container, if this is PID 1 */
    }
    return GOING;
}

enum outcome agent_reach_hub(struct agent *a)
{
    struct err err = ERR_INIT;
    struct auth_id id = {.token = &a->token, .job_id = a->env.job_id, .generation = 0};
    bool is_hub = a->env.worker_index == 0;
    struct dial *dial;
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    char why[240];
    int fd;
    struct dial_to to = {.host = is_hub ? "127.0.0.1" : a->env.checkin_addr,
                         .port = a->env.checkin_port,
                         .mine = ROLE_AGENT,
                         .theirs = ROLE_AGENT_HUB};
    if (dial_start(&to, &id, a->start_deadline_ns, &dial, &err) < 0)
        return agent_fail(a, 125, err.text);
    struct pollfd p = {.fd = dial_fd(dial), .events = POLLIN};
    /* the thread returns at start_deadline_ns at the latest */
    while (poll(&p, 1, 0) <= 0)
        if (agent_wait_fd(a, p.fd, POLLIN, UINT64_MAX) == FAILED) {
            a->has_gone_early = true;
            return FAILED; /* the process exits, which ends the thread */
        }
    if (dial_end(dial, &fd, &session, &err) < 0) {
        (void)snprintf(
            why, sizeof(why), "worker %u could not reach worker 0 at %.60s:%u: %.130s",
            a->env.worker_index, a->env.checkin_addr, a->env.checkin_port, err.text);
        return agent_fail(
            a, clock_now_ns() >= a->start_deadline_ns ? FAILURE_LATE : 125, why);
    }
    channel_init(&a->channel, fd, &session, MESSAGE_TO_AGENT_MAX_BYTES, clock_now_ns());
    a->is_connected = true;
    return GOING;
}

/* Waits for the hub's answer: TABLE, STOP, REFUSED or WORLD. */
static enum outcome agent_wait_table(struct agent *a)
{
    for (;;) {
        uint64_t next = 0;
        enum outcome o = agent_tick_hub(a, &next);
        if (o == GOING) {
            agent_watch_file(a, &next);
            o = agent_wait_fd(a, a->channel.conn.fd, channel_events(&a->channel), next);
        }
        if (o == GOING)
            o = agent_serve_hub(a);
        if (o == HUB_GONE && clock_now_ns() >= a->start_deadline_ns)
            return FAILED;
        if (o != GOING)
            return o;
    }
}

/* One iteration of the loops below. */
static enum outcome agent_serve_last(struct agent *a, uint64_t until_ns)
{
    uint64_t next = until_ns;
    enum outcome o = agent_tick_hub(a, &next);
    if (o != GOING)
        return o;
    struct pollfd p = {.fd = a->channel.conn.fd, .events = channel_events(&a->channel)};
    (void)poll(&p, 1, clock_left_ms(next < until_ns ? next : until_ns));
    return agent_serve_hub(a);
}

/* Sends LEAVING; the hub then closes the connection. GOING when the hub's TABLE and
 * LEAVING crossed: the job has started, and the exit of this agent is a failure of the
 * job. */
static enum outcome agent_leave_early(struct agent *a)
{
    struct report own = a->first;
    uint64_t until = clock_now_ns() + FAREWELL_NS;
    enum outcome o = GOING;
    agent_send_origin(a, MESSAGE_LEAVING);
    while (o == GOING && clock_now_ns() < until) {
        o = agent_serve_last(a, until);
        if (o == REFORMED)
            o = agent_has_place(a) ? GOING : LEFT;
    }
    if (o == LEFT || (o == FAILED && !a->is_own))
        return o;
    a->first = own; /* not the loss of the hub that followed */
    if (o == STARTED)
        return GOING;
    a->has_gone_early = true;
    return FAILED;
}

enum outcome agent_leave_job(struct agent *a)
{
    enum outcome o = a->is_leaving && !a->has_run ? agent_leave_early(a) : GOING;
    if (o != GOING)
        return o;
    struct report own = a->first;
    uint64_t until = clock_now_ns() + FAREWELL_NS;
    if (a->is_leaving)
        agent_send_leaving(a);
    if (a->is_leaving_sent)
        until += MEET_LEAVE_MS * NS_PER_MS;
    agent_send_report(a, &own);
    while (o == GOING && a->is_connected && clock_now_ns() < until) {
        o = agent_serve_last(a, until);
        if (o == REFORMED && !agent_has_place(a))
            return LEFT;
        if (o == REFORMED) {
            agent_send_report(a, &own); /* it also holds in this world */
            o = GOING;
        }
    }
    if (a->is_own)
        a->first = own; /* not the loss of the hub that followed */
    return FAILED;
}

enum outcome agent_join(struct agent *a)
{
    enum outcome o = a->is_connected ? REFORMED : agent_reach_hub(a);
    while (o == GOING || o == REFORMED) {
        agent_adopt_file(a);
        if (!agent_has_place(a))
            return LEFT;
        agent_send_hello(a);
        o = agent_wait_table(a);
        if (o != HUB_GONE || a->has_run)
            continue;
        log_warn("connection to worker 0 lost before the start, retrying",
                 "cause=\"%s\"", a->first.f.why);
        o = agent_reach_hub(a);
    }
    return o == HUB_GONE ? FAILED : o;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How a world ends: one cause with one text, the same on all ranks. The first cause
 * that rank 0 settles is sent to all and never changes.
 *
 *   a rank dies  Its parent reports it to rank 0 (UP_LOST), which settles the text.
 *                Its children are cut off from rank 0, settle the same text themselves
 *                and send it to all below them.
 *   a failure    What a rank sees itself (its backend failed) is a suspicion. Rank 0
 *                waits SUSPECT_GRACE_ROOT_NS for the loss that explains it, because
 *                the dead rank is the cause and the broken pipe of its neighbour the
 *                consequence. A rank without an answer of rank 0 within
 *                SUSPECT_GRACE_NS settles its own suspicion; but if its parent was
 *                silent for half of the time that counts as silence, that silence is
 *                the cause.
 *   no answer    A rank that has reported a loss and gets no answer settles it.
 *   the launcher says that the world of an elastic job is over (control_break): each rank
 *                settles that text by itself, because the launcher says so to all.
 *   a goodbye    UP_LEAVE with its origin, ENDED down to all; FAILED if the goodbye has a
 *                text. Both let the ranks carry out what was answered before. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/control/tree.h"

static const uint64_t SUSPECT_GRACE_ROOT_NS = 500 * NS_PER_MS;
static const uint64_t SUSPECT_GRACE_NS =
    700 * NS_PER_MS; /* longer than rank 0's, so that its answer comes first */

static void rank_text(const struct control *c, uint32_t rank, char *buf, size_t size)
{
    const struct control_member *m = &c->cfg.members[rank];

    (void)snprintf(buf, size, "rank %u (host %s, pid %u)", rank, m->host, m->pid);
}

/* "rank 1 (host b, pid 123)BETWEENwhat" */
static void cause_text(const struct control *c,
                       uint32_t rank,
                       const char *between,
                       const char *what,
                       char buf[CAUSE_BYTES])
{
    char name[HOST_NAME_MAX_BYTES + 64];

    rank_text(c, rank, name, sizeof(name));
    (void)snprintf(buf, CAUSE_BYTES, "%s%s%s", name, between, what);
}

/* --- causes and ends --- */

void tree_settle(struct control *c, const char *text)
{
    if (c->is_broken)
        return;
    c->is_broken = true;
    (void)err_set(&c->cause, -ECONNABORTED, "%s", text);
    (void)tree_send_children(c, TREE_ABORT, c->cause.text, strlen(c->cause.text));
}

static void send_ended(struct control *c, const char *text, bool is_failure)
{
    (void)tree_send_children(c, is_failure ? TREE_FAILED : TREE_ENDED, text,
                             strlen(text));
}

void tree_end(struct control *c, const char *text, bool is_failure)
{
    if (c->is_ended || c->is_broken)
        return;
    c->is_ended = true;
    c->suspect_until_ns = 0; /* a reported loss no longer matters */
    (void)snprintf(c->who_ended, sizeof(c->who_ended), "%s", text);
    send_ended(c, c->who_ended, is_failure);
    c->cfg.handlers.ended(c->cfg.handlers.arg, c->who_ended, is_failure);
}

static void leave_text(const struct control *c,
                       uint32_t rank,
                       const struct leave *l,
                       char buf[CAUSE_BYTES])
{
    const char *why = l->why == LEAVE_EXIT ? "exited" : "called shutdown()";

    cause_text(c, rank, " ", *l->how ? l->how : why, buf);
}

static void leave_send(struct control *c)
{
    uint8_t goodbye[1 + GOODBYE_HOW_BYTES] = {(uint8_t)c->left.why};
    size_t n = strlen(c->left.how);

    memcpy(goodbye + 1, c->left.how, n);
    (void)tree_put_up(c, &(struct up_item){UP_LEAVE, c->cfg.rank, goodbye, 1 + n});
    (void)tree_flush_up(c); /* the pump detects a lost parent */
}

void control_leave(struct control *c, const struct leave *leave)
{
    char text[CAUSE_BYTES];

    if (c->has_left || c->is_broken)
        return;
    c->has_left = true;
    c->left.why = leave->why;
    goodbye_clean(leave->how, c->left.how, sizeof(c->left.how));
    if (!tree_is_root(c)) {
        leave_send(c);
        return;
    }
    leave_text(c, 0, &c->left, text);
    tree_end(c, text, *c->left.how);
}

/* For a rank that leaves before it has received ENDED: sends its children the ENDED
 * that rank 0 will send to the other ranks. */
void tree_send_ended_early(struct control *c)
{
    char text[CAUSE_BYTES];

    if (!c->has_left || c->is_ended || c->is_broken)
        return;
    leave_text(c, c->cfg.rank, &c->left, text);
    send_ended(c, text, *c->left.how);
}

/* --- losses --- */

int tree_set_lost(
    const struct control *c, uint32_t rank, int code, const char *how, struct err *err)
{
    char text[CAUSE_BYTES];

    cause_text(c, rank, " was lost: ", how, text);
    return err_set(err, code, "%s", text);
}

/* On rank 0 about any rank, on others about their parent. */
static void cause_settle_loss(struct control *c, uint32_t rank, const char *how)
{
    char text[CAUSE_BYTES];

    if (c->is_ended || c->is_broken)
        return;
    cause_text(c, rank, " was lost: ", how, text);
    if (c->suspect_until_ns > 0 && c->suspect_rank == rank)
        tree_settle(c, c->suspicion); /* it reported why it leaves */
    else
        tree_settle(c, text);
}

/* Not on rank 0: of a child. */
static void cause_report_loss(struct control *c, uint32_t rank, const char *how)
{
    const struct up_item item = {UP_LOST, rank, how, strlen(how)};

    cause_text(c, rank, " was lost: ", how, c->suspicion);
    c->suspect_rank = c->cfg.rank;
    c->suspect_until_ns = clock_now_ns() + SUSPECT_GRACE_NS;
    (void)tree_put_up(c, &item); /* without an answer we settle it */
    (void)tree_flush_up(c);
}

static void edge_lost(struct control *c, uint32_t index, const char *how)
{
    struct tree_edge *e = &c->edges[index];

    tree_drop(c, e);
    if (e->has_left || c->is_ended || c->is_broken)
        return;
    if (index == 0 || tree_is_root(c))
        cause_settle_loss(c, e->rank, how);
    else
        cause_report_loss(c, e->rank, how);
}

static void edge_closed(struct control *c, uint32_t index)
{
    char how[160];

    (void)snprintf(how, sizeof(how), "connection closed%s",
                   c->cfg.closed_means ? c->cfg.closed_means : "");
    edge_lost(c, index, how);
}

void tree_lost(struct control *c, uint32_t index, int r)
{
    if (c->edges[index].conn.fd < 0)
        return;
    if (r == -EPIPE)
        edge_closed(c, index);
    else if (r == -EBADMSG)
        edge_lost(c, index, "its control frame failed the check");
    else
        edge_lost(c, index, strerror(-r));
}

static void silence_text(const struct control *c, char *buf, size_t size)
{
    (void)snprintf(buf, size, "silent for %.3g s (HVD_PEER_TIMEOUT)",
                   (double)c->cfg.peer_timeout_ns / 1e9);
}

void tree_silent(struct control *c, uint32_t index)
{
    char how[64];

    silence_text(c, how, sizeof(how));
    edge_lost(c, index, how);
}

/* --- suspicions --- */

/* Rank 0 puts the rank in front of the text. */
static void suspicion_set(struct control *c, uint32_t rank, const char *reason)
{
    if (c->is_broken || c->suspect_until_ns > 0)
        return;
    if (c->is_ended)
        (void)snprintf(c->suspicion, sizeof(c->suspicion), "%s", c->who_ended);
    else
        cause_text(c, rank, ": ", reason, c->suspicion);
    c->suspect_rank = rank;
    c->suspect_until_ns =
        clock_now_ns() + (tree_is_root(c) ? SUSPECT_GRACE_ROOT_NS : SUSPECT_GRACE_NS);
}

static void suspicion_send(struct control *c, const char *reason)
{
    const struct up_item item = {UP_SUSPECT, c->cfg.rank, reason,
                                 strnlen(reason, UP_TEXT_MAX_BYTES)};

    if (tree_is_root(c) || c->n_edges == 0)
        return;
    (void)tree_put_up(c, &item); /* without an answer it is settled here */
    (void)tree_flush_up(c);
}

void control_suspect(struct control *c, const char *reason)
{
    if (c->is_broken || c->suspect_until_ns > 0)
        return;
    suspicion_set(c, c->cfg.rank, reason);
    suspicion_send(c, reason);
}

void control_abort(struct control *c, const char *cause)
{
    char text[CAUSE_BYTES];

    if (c->is_broken)
        return;
    if (tree_is_root(c)) {
        tree_settle(c, cause);
        return;
    }
    suspicion_send(c, cause);
    cause_text(c, c->cfg.rank, ": ", cause, text); /* the same text as rank 0's */
    tree_settle(c, text);
}

void control_break(struct control *c, const char *cause)
{
    int none = BREAK_NONE;

    if (!atomic_compare_exchange_strong_explicit(&c->break_state, &none, BREAK_WRITING,
                                                 memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    (void)snprintf(c->break_text, sizeof(c->break_text), "%s", cause);
    /* release: the seat, which acquires it, reads the text */
    atomic_store_explicit(&c->break_state, BREAK_DUE, memory_order_release);
    control_wake(c);
}

bool tree_take_break(struct control *c)
{
    int state = atomic_load_explicit(&c->break_state, memory_order_acquire);

    if (state != BREAK_DUE)
        return state == BREAK_TAKEN;
    atomic_store_explicit(&c->break_state, BREAK_TAKEN, memory_order_relaxed);
    tree_settle(c, c->break_text);
    return true;
}

void tree_end_suspicion(struct control *c, uint64_t now_ns)
{
    const struct tree_edge *e = &c->edges[0];

    if (!tree_is_root(c) && !c->is_ended && e->conn.fd >= 0
        && now_ns > e->received_ns + c->cfg.peer_timeout_ns / 2)
        tree_silent(c, 0);
    else
        tree_settle(c, c->suspicion);
}

/* --- rank 0 receives --- */

static void cause_on_work(struct control *c, const struct up_item *item)
{
    const struct control_handlers *h = &c->cfg.handlers;
    struct err err = ERR_INIT;
    char text[CAUSE_BYTES];

    if (h->up(h->arg, item->origin, item->p, item->n, &err) >= 0)
        return;
    (void)snprintf(text, sizeof(text), "rank %u: %.440s", item->origin, err.text);
    tree_settle(c, text);
}

static void cause_on_leave(struct control *c, const struct up_item *item)
{
    const uint8_t *p = item->p;
    struct leave l = {.why = (enum leave_reason)p[0]};
    char how[UP_TEXT_MAX_BYTES], text[CAUSE_BYTES];

    (void)snprintf(how, sizeof(how), "%.*s", (int)(item->n - 1), (const char *)p + 1);
    goodbye_clean(how, l.how, sizeof(l.how));
    leave_text(c, item->origin, &l, text);
    tree_end(c, text, *l.how);
}

void tree_on_item(struct control *c, const struct up_item *item)
{
    char text[CAUSE_BYTES];

    bool is_text = item->kind != UP_WORK && item->kind != UP_REPORT;

    (void)snprintf(text, sizeof(text), "%.*s", is_text ? (int)item->n : 0,
                   (const char *)item->p);
    switch (item->kind) {
    case UP_WORK:
        cause_on_work(c, item);
        break;
    case UP_SUSPECT:
        suspicion_set(c, item->origin, text);
        break;
    case UP_LOST:
        cause_settle_loss(c, item->origin, text);
        break;
    case UP_LEAVE:
        cause_on_leave(c, item);
        break;
    case UP_REPORT:
        c->cfg.handlers.report(c->cfg.handlers.arg, item->origin, item->p, item->n);
        break;
    case UP_KIND_END:
        break;
    }
}

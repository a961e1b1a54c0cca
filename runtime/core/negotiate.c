/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's negotiation: requests of the ranks in, ordered answers out. Driven by the
 * coordinator; the other ranks only read the answers.
 *
 * I1  A name (within its process set) is complete when each rank of the set has
 *     submitted it once or has joined. It is ready then, or, in a group, when the whole
 *     group is complete. The order of readiness is the order of the answers, and so of
 *     the batches on every rank.
 *
 * I2  Every ready name gets exactly one answer, RUN or FAIL.
 *
 * I3  A pending tensor takes the parameters of the first rank, one bit per rank, and
 *     for allgather, gather and alltoall one number per rank. Later requests are
 *     compared on arrival and not stored.
 *
 * I4  The first disagreement is the one that is reported.
 *
 * I5  A bit of the cache means the tensor that the slot had on the sender when it sent
 *     the bit (slots.c). An answer is sent by slot alone only if every rank sent the bit.
 *
 * I6  A plan contains tensors of the world (process set 0) only. A tensor of another
 *     set or of a pair ends the count of equal steps, as any tensor does that a plan
 *     cannot contain. So a loop that uses other sets in each step stays with bits; if it
 *     uses them now and then, plans begin in between and are left for them, and cycle.c
 *     makes them rare if they are short.
 *     A plan is frozen only when nothing else is pending. Requests of the plan's
 *     tensors that a rank sent before it received the plan are dropped here; the rank
 *     puts them into the plan itself (member.c). The same holds for a join, because it
 *     follows everything that its rank has submitted. From FREEZE until a rank leaves
 *     the plan no slot is reassigned, so that the plan's slots mean the same to all
 *     ranks whenever they read FREEZE.
 *
 * I7  The first transfer of a pair is answered after a PAIR answer, on which all ranks
 *     connect the pair. Pairs are never removed.
 *
 * stall.c reports the pending tensors. */
#include "runtime/core/negotiate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/cycle.h"
#include "runtime/core/fusion.h"
#include "runtime/core/mismatch.h"
#include "runtime/core/nametab.h"
#include "runtime/core/pending.h"
#include "runtime/core/pending_pairs.h"
#include "runtime/core/slots.h"

/* WINDOW: tensors considered for one batch. WRITE_AIM: size of a down message. */
enum { WINDOW = 256, WRITE_AIM = 1 << 18 };

struct negotiate {
    struct negotiate_config cfg;
    struct pendings tensors;
    struct slots *slots; /* NULL: no cache */
    struct cycle *cycle; /* NULL: no plan */
    uint64_t *seen;      /* [n_ranks] down messages each rank has received */
    uint64_t n_messages; /* down, written */
    /* The last plan. */
    uint32_t plan;
    uint64_t plan_msg; /* the message that contained it; 0: none */
    uint32_t *plan_of; /* [cache_capacity] the last plan of each slot */
    bool wants_leave, has_left, reports_late, sends_tuning;
    struct tuning tuning;
    uint32_t tuned_in; /* the last plan that was left for new settings */
    bool is_planning;  /* no rank has left the plan, as far as rank 0 has received */
    struct negotiate_counts counts;
    uint64_t *scratch; /* [n_ranks] */
};

void negotiate_free(struct negotiate *n)
{
    if (!n)
        return;
    pendings_release(&n->tensors);
    slots_free(n->slots);
    cycle_free(n->cycle);
    mem_free(n->seen);
    mem_free(n->plan_of);
    mem_free(n->scratch);
    mem_free(n);
}

int negotiate_new(const struct negotiate_config *cfg, struct negotiate **ret)
{
    struct negotiate *n = mem_zalloc(sizeof(*n));
    uint32_t cap = cfg->cache_capacity < SLOTS_MAX ? cfg->cache_capacity : SLOTS_MAX;
    int rc;

    if (!n)
        return -ENOMEM;
    n->cfg = *cfg;
    n->cfg.cache_capacity = cap;
    n->seen = mem_calloc(cfg->n_ranks, sizeof(*n->seen));
    n->scratch = mem_calloc(cfg->n_ranks, sizeof(*n->scratch));
    n->plan_of = mem_calloc(cap + 1u, sizeof(*n->plan_of));
    rc = n->seen && n->scratch && n->plan_of ? 0 : -ENOMEM;
    if (rc == 0)
        rc = pendings_init(&n->tensors, cfg->n_ranks);
    if (rc == 0 && cap > 0)
        rc = slots_new(cap, cfg->n_ranks, &n->slots);
    if (rc == 0 && cap > 0 && cfg->may_freeze)
        rc = cycle_new(cap, &n->cycle);
    if (rc < 0) {
        negotiate_free(n);
        return rc;
    }
    *ret = n;
    return 0;
}

size_t negotiate_pending(const struct negotiate *n)
{
    return n->tensors.waiting.n;
}

bool negotiate_has_news(const struct negotiate *n)
{
    return n->tensors.ready.n > 0 || n->wants_leave || n->reports_late
           || n->sends_tuning || pendings_all_joined(&n->tensors);
}

void negotiate_report_late(struct negotiate *n)
{
    n->reports_late = n->tensors.waiting.head != NULL;
}

void negotiate_tune(struct negotiate *n, const struct tuning *t)
{
    n->tuning = *t;
    n->sends_tuning = true;
}

struct negotiate_counts negotiate_counts(const struct negotiate *n)
{
    struct negotiate_counts c = n->counts;

    c.n_needs = n->cycle ? cycle_needs(n->cycle) : 0;
    return c;
}

/* --- what ranks send --- */

int negotiate_add(struct negotiate *n,
                  uint32_t rank,
                  const struct tensor_request *req,
                  uint64_t now_ns,
                  struct err *err)
{
    n->counts.n_requests++;
    if (n->cfg.on_request)
        n->cfg.on_request(n->cfg.on_request_arg, rank, req);
    return pendings_add(&n->tensors, rank, req, false, now_ns, err);
}

static bool slot_is_planned(const struct negotiate *n, uint32_t slot)
{
    return n->plan_msg > 0 && slot < n->cfg.cache_capacity
           && n->plan_of[slot] == n->plan;
}

/* Was it sent before the rank received the plan, which contains it (I6)? */
static bool request_is_overtaken(struct negotiate *n,
                                 uint32_t rank,
                                 const struct tensor_request *q,
                                 uint64_t n_seen)
{
    const struct tensor_request *p;
    uint32_t slot;

    if (n_seen >= n->plan_msg || !n->slots)
        return false;
    slot = slots_find(n->slots, q->process_set, q->name);
    if (slot == SLOT_NONE || !slot_is_planned(n, slot))
        return false;
    p = slots_resolve(n->slots, slot, rank, UINT64_MAX);
    return p && request_same(p, q);
}

static int negotiate_receive_hits(struct negotiate *n,
                                  uint32_t rank,
                                  const struct up *u,
                                  uint64_t n_seen,
                                  uint64_t now_ns,
                                  struct err *err)
{
    for (uint32_t i = 0; i < u->n_words; i++) {
        for (uint64_t w = up_word(u, i); w != 0; w &= w - 1) {
            uint32_t slot = u->first + i * 64 + (uint32_t)__builtin_ctzll(w);
            const struct tensor_request *q;
            int rc;

            if (n_seen < n->plan_msg && slot_is_planned(n, slot))
                continue;
            q = n->slots ? slots_resolve(n->slots, slot, rank, n_seen) : NULL;
            if (!q)
                return err_set(err, -EPROTO,
                               "rank %u sent slot %u of the response cache, which was "
                               "never assigned",
                               rank, slot);
            n->counts.n_hits++;
            if (n->cfg.on_request)
                n->cfg.on_request(n->cfg.on_request_arg, rank, q);
            rc = pendings_add(&n->tensors, rank, q, true, now_ns, err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int negotiate_receive_entry(struct negotiate *n,
                                   uint32_t rank,
                                   const struct up *u,
                                   uint64_t n_seen,
                                   uint64_t now_ns,
                                   struct err *err)
{
    if (u->kind != UP_LEAVE && n_seen >= n->plan_msg)
        n->is_planning = false; /* a rank in the plan does not send these */
    switch (u->kind) {
    case UP_REQUEST:
        if (request_is_overtaken(n, rank, &u->req, n_seen)
            || (u->req.coll == COLL_JOIN && n_seen < n->plan_msg))
            return 0;
        return negotiate_add(n, rank, &u->req, now_ns, err);
    case UP_HITS:
        return negotiate_receive_hits(n, rank, u, n_seen, now_ns, err);
    case UP_LEAVE:
        if (u->plan != n->plan || n->has_left)
            return 0;
        n->wants_leave = n->has_left = true;
        if (n->cycle && n->tuned_in != n->plan)
            cycle_left(n->cycle, u->n_steps);
        return 0;
    }
    return 0;
}

int negotiate_receive(struct negotiate *n,
                      uint32_t rank,
                      struct message_reader *in,
                      uint64_t now_ns,
                      struct err *err)
{
    struct up u;
    int rc;

    if (rank >= n->cfg.n_ranks)
        return err_set(err, -EPROTO, "a request of rank %u in a world of %u", rank,
                       n->cfg.n_ranks);
    if (in->kind != MESSAGE_UP)
        return err_set(err, -EBADMSG, "control message: answers instead of requests");
    if (in->n_seen < n->seen[rank] || in->n_seen > n->n_messages)
        return err_set(
            err, -EPROTO, "rank %u claims %llu received answers, only %llu were sent",
            rank, (unsigned long long)in->n_seen, (unsigned long long)n->n_messages);
    n->seen[rank] = in->n_seen;
    while ((rc = message_next_up(in, &u, err)) > 0) {
        rc = negotiate_receive_entry(n, rank, &u, in->n_seen, now_ns, err);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* --- answers --- */

static void negotiate_put_leave(struct negotiate *n, struct strbuf *out)
{
    struct down d = {.kind = DOWN_LEAVE, .slot = SLOT_NONE, .plan = n->plan};

    message_put_down(out, &d);
    n->wants_leave = false;
    n->counts.n_leaves++;
}

static void negotiate_put_late(struct negotiate *n, struct strbuf *out)
{
    struct down d = {.kind = DOWN_LATE, .has_req = true, .slot = SLOT_NONE};

    n->reports_late = false;
    if (!n->tensors.waiting.head)
        return; /* it is complete by now */
    d.req = n->tensors.waiting.head->first;
    message_put_down(out, &d);
}

/* An answer behind FREEZE makes all ranks leave the plan (member.c), so every rank
 * applies these settings between the same two batches. */
static void negotiate_put_tuning(struct negotiate *n, struct strbuf *out)
{
    struct down d = {.kind = DOWN_TUNE, .slot = SLOT_NONE, .tuning = n->tuning};

    n->sends_tuning = false;
    n->tuned_in = n->plan;
    n->cfg.fusion_bytes = n->tuning.fusion_bytes;
    message_put_down(out, &d);
}

static bool pending_is_cached(const struct pending *p)
{
    switch (p->first.coll) {
    case COLL_ALLREDUCE:
    case COLL_ALLGATHER:
    case COLL_BROADCAST:
    case COLL_BARRIER:
    case COLL_ALLTOALL:
    case COLL_REDUCESCATTER:
    case COLL_REDUCE:
    case COLL_GATHER:
    case COLL_SENDRECV:
        return p->n_excused == 0;
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        break;
    }
    return false;
}

/* Did every rank of the set send it as a bit? */
static bool pending_is_all_hits(const struct pending *p)
{
    return p->set && p->n_hits == p->set->view.n;
}

/* The slot of a tensor that a plan can contain: one of the world that every rank sent as
 * a bit. SLOT_NONE: it cannot. */
static uint32_t pending_plan_slot(const struct negotiate *n, const struct pending *p)
{
    return p->text || p->first.process_set != 0 || !pending_is_all_hits(p)
               ? SLOT_NONE
               : slots_find(n->slots, p->first.process_set, p->first.name);
}

static void
negotiate_fill_counts(struct negotiate *n, const struct pending *p, struct down *d)
{
    const struct set_view *s = &p->set->view;

    if (!p->dim0 || !request_has_counts(&p->first))
        return;
    for (uint32_t i = 0; i < s->n; i++)
        n->scratch[i] = p->dim0[s->ranks ? s->ranks[i] : i];
    d->counts = n->scratch;
    d->n_counts = s->n;
}

static void negotiate_write_answer(struct negotiate *n,
                                   const struct pending *p,
                                   bool fuse_next,
                                   struct strbuf *out)
{
    struct down d = {.kind = p->text ? DOWN_FAIL : DOWN_RUN,
                     .fuse_next = fuse_next,
                     .has_req = true,
                     .slot = SLOT_NONE};
    bool is_new = true;

    if (p->text) {
        (void)snprintf(d.text, sizeof(d.text), "%s", p->text);
    } else if (n->slots && pending_is_cached(p) && !n->is_planning) {
        d.slot =
            slots_assign(n->slots, &p->first, p->dim0, n->n_messages, n->seen, &is_new);
        d.has_req = is_new || !pending_is_all_hits(p);
    }
    if (d.has_req) {
        d.req = p->first;
        d.req.no_gpu[0] = 0; /* it is in the text */
        if (!p->text)
            negotiate_fill_counts(n, p, &d);
    }
    message_put_down(out, &d);
}

static void
plan_mark_slots(struct negotiate *n, const uint32_t *v, uint32_t n_slots, uint32_t plan)
{
    for (uint32_t i = 0; i < n_slots; i++)
        n->plan_of[v[i]] = plan;
}

/* Are all pending tensors part of the next plan, whose slots are marked? */
static bool plan_is_alone(struct negotiate *n)
{
    const struct pending *lists[] = {n->tensors.waiting.head, n->tensors.ready.head};

    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        for (const struct pending *p = lists[l]; p; p = p->next) {
            uint32_t s = slots_find(n->slots, p->first.process_set, p->first.name);

            if (p->text || s == SLOT_NONE || n->plan_of[s] != n->plan + 1
                || p->n_hits != p->n_seen || p->n_excused > 0)
                return false;
        }
    }
    return true;
}

/* Counts a tensor that is about to be answered by its slot, as cycle_answer. A step
 * must not begin inside a group: a plan would begin there too, and ranks offer whole
 * groups. */
static bool cycle_count_answer(struct negotiate *n,
                               const struct pending *p,
                               uint32_t slot,
                               const uint32_t **ret_slots,
                               uint32_t *ret_n)
{
    return !(p->is_inside && cycle_is_new(n->cycle))
           && cycle_answer(n->cycle, slot, ret_slots, ret_n);
}

/* If the first ready tensor begins an equal step: writes FREEZE instead of an
 * answer. */
static bool negotiate_freeze(struct negotiate *n, struct strbuf *out)
{
    struct pending *p = n->tensors.ready.head;
    struct down d = {.kind = DOWN_FREEZE,
                     .fuse_next = n->cfg.fuses_groups_apart,
                     .slot = SLOT_NONE,
                     .fusion_bytes = n->cfg.fusion_bytes};
    uint8_t raw[CYCLE_MAX * 4];
    const uint32_t *slots;
    uint32_t slot;

    if (!n->cycle)
        return false;
    slot = pending_plan_slot(n, p);
    if (slot == SLOT_NONE || n->tensors.n_joined > 0) {
        cycle_reset(n->cycle);
        return false;
    }
    if (!cycle_count_answer(n, p, slot, &slots, &d.n_slots))
        return false;
    plan_mark_slots(n, slots, d.n_slots, n->plan + 1);
    if (p->is_inside || !plan_is_alone(n)) {
        plan_mark_slots(n, slots, d.n_slots, 0);
        cycle_reset(n->cycle);
        return false;
    }
    for (uint32_t i = 0; i < d.n_slots; i++)
        for (unsigned b = 0; b < 4; b++)
            raw[i * 4 + b] = (uint8_t)(slots[i] >> (8 * b));
    d.slots = raw;
    d.plan = ++n->plan;
    n->plan_msg = n->n_messages;
    n->has_left = false;
    n->is_planning = true;
    n->counts.n_plans++;
    message_put_down(out, &d);
    pendings_clear(&n->tensors);
    cycle_reset(n->cycle);
    return true;
}

static size_t negotiate_take_window(const struct negotiate *n,
                                    const struct tensor_request **window)
{
    size_t k = 0;

    for (const struct pending *p = n->tensors.ready.head; p && k < WINDOW && !p->text;
         p = p->next)
        window[k++] = &p->first;
    return k;
}

/* How many of the first `take` ready tensors belong to the current step. A step begins
 * with a batch of its own, because a plan may begin there. Counts all but the first. */
static size_t negotiate_cut_at_step(struct negotiate *n, size_t take)
{
    const struct pending *p = n->tensors.ready.head;
    const uint32_t *slots;
    uint32_t n_slots;

    for (size_t i = 1; i < take && n->cycle; i++) {
        uint32_t s;

        p = p->next;
        s = pending_plan_slot(n, p);
        if (s == SLOT_NONE)
            cycle_reset(n->cycle);
        else if (cycle_has(n->cycle, s))
            return i;
        else
            (void)cycle_count_answer(n, p, s, &slots, &n_slots);
    }
    return take;
}

/* Writes PAIR if the next answer is the first of its pair (I7). */
static void negotiate_put_pair(struct negotiate *n, struct strbuf *out)
{
    const struct pending *p = n->tensors.ready.head;
    struct down d = {.kind = DOWN_PAIR, .slot = SLOT_NONE};

    if (p->text || p->first.coll != COLL_SENDRECV || p->set->has_met)
        return;
    p->set->has_met = true;
    d.pair = p->set->id;
    message_put_down(out, &d);
}

/* One batch, or one failure. */
static int negotiate_write_batch(struct negotiate *n, struct strbuf *out)
{
    const struct tensor_request *window[WINDOW];
    struct fusion_limit limit = {n->cfg.fusion_bytes, n->cfg.fuses_groups_apart};
    size_t take = fusion_take(window, negotiate_take_window(n, window), &limit);

    take = negotiate_cut_at_step(n, take > 0 ? take : 1); /* 0: it failed */
    negotiate_put_pair(n, out);
    for (size_t i = 0; i < take; i++) {
        struct pending *p = n->tensors.ready.head;
        int r = p->text ? 0 : pendings_settle(&n->tensors, p);

        if (r < 0)
            return r;
        negotiate_write_answer(n, p, i + 1 < take, out);
        pendings_drop_ready(&n->tensors);
    }
    return 0;
}

int negotiate_write(struct negotiate *n, struct strbuf *out)
{
    int rc = 0;

    n->n_messages++;
    n->counts.n_messages++;
    message_begin_down(out);
    if (n->wants_leave)
        negotiate_put_leave(n, out);
    if (n->reports_late)
        negotiate_put_late(n, out);
    if (n->sends_tuning)
        negotiate_put_tuning(n, out);
    pairs_spread(&n->tensors, n->scratch);
    while (rc == 0 && n->tensors.ready.n > 0 && out->n < WRITE_AIM) {
        if (negotiate_freeze(n, out))
            break;
        rc = negotiate_write_batch(n, out);
    }
    if (n->tensors.ready.n == 0 && pendings_all_joined(&n->tensors)) {
        struct down d = {.kind = DOWN_JOINED, .has_req = true, .slot = SLOT_NONE};

        d.req = n->tensors.join;
        d.req.root = n->tensors.last_joined;
        message_put_down(out, &d);
        pendings_rejoin(&n->tensors);
        if (n->cycle)
            cycle_reset(n->cycle);
    }
    return rc < 0 ? rc : strbuf_status(out);
}

/* --- the stall report's view --- */

void negotiate_walk(const struct negotiate *n, negotiate_walk_fn fn, void *arg)
{
    for (const struct pending *p = n->tensors.waiting.head; p; p = p->next) {
        struct negotiate_view v = {.name = p->first.name,
                                   .coll = p->first.coll,
                                   .process_set = p->first.process_set,
                                   .since_ns = p->since_ns,
                                   .n_ranks = n->cfg.n_ranks,
                                   .n = n,
                                   .pending = p};

        v.n_missing = p->set ? pending_n_missing(p) : 0;
        if (!fn(arg, &v))
            return;
    }
}

bool negotiate_is_missing(const struct negotiate_view *v, uint32_t rank)
{
    return pendings_is_missing(&v->n->tensors, v->pending, rank);
}

bool negotiate_is_submitted(const struct negotiate_view *v, uint32_t rank)
{
    return pending_has_rank(v->pending, rank);
}

uint64_t negotiate_active_ns(const struct negotiate *n, const bool *is_in)
{
    return pendings_active_ns(&n->tensors, is_in);
}

uint32_t negotiate_n_ranks(const struct negotiate *n)
{
    return n->cfg.n_ranks;
}

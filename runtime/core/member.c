/* SPDX-License-Identifier: Apache-2.0 */
/* See member.h for the protocol.
 *
 *   FREE --FREEZE arrives--> FROZEN --handed out--> PLAN --agreed to leave--> FREE
 *
 * I1  Answers are handed out in their order, each exactly once. The slots of
 *     an answer, however, and n_seen are updated when it arrives: a bit that is sent
 *     afterwards means the slot's new tensor. An answer by slot alone means the tensor
 *     that the slot had when the answer arrived.
 *
 * I2  After the arrival of FREEZE nothing is sent. When FREEZE is handed out, every
 *     open op is either part of the plan or a reason to leave it. Rank 0 has dropped
 *     what was sent before and is part of the plan; everything else it still has.
 *
 * I3  The acts of one agreement are handed out before the next agreement starts.
 *
 * Why overlapping process sets cannot deadlock. All ranks have one sequence of batches:
 * the batches of all sets in rank 0's one stream of answers, and in a plan, which
 * contains tensors of the world only, those that every rank cuts from the same AND.
 * Every rank carries out the batches of its sets in that order. Consider the first
 * unfinished batch of the sequence: its members have finished all batches before it, so
 * they are in it or about to enter it. It finishes.
 *
 * Why agreements do not keep ranks from a batch. No rank starts an agreement before it
 * has carried out the result of the last one (I3) and all answers before FREEZE, and
 * answers behind FREEZE are carried out when the plan is left. So all ranks enter each
 * agreement at the same position of the sequence, and no rank inside a batch waits for a
 * rank that is in an agreement.
 *
 * Who enters an agreement. It needs all ranks. A rank that has submitted a tensor of the
 * plan enters one, and all ranks will, because all belong to the world. A rank that must
 * leave the plan enters one too, and rank 0 sends LEAVE to the ranks that have nothing
 * to offer, which is a reason to leave for them (member.h). */
#include "runtime/core/member_state.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/pair.h"

enum { MESSAGE_AIM = 1 << 18 };

int member_new(uint32_t rank, uint32_t n_ranks, struct member **ret)
{
    struct member *m = mem_zalloc(sizeof(*m));

    if (!m)
        return -ENOMEM;
    m->rank = rank;
    m->n_ranks = n_ranks;
    m->counts = mem_calloc(n_ranks, sizeof(*m->counts));
    m->news_counts = mem_calloc(n_ranks, sizeof(*m->news_counts));
    if (!m->counts || !m->news_counts) {
        member_free(m);
        return -ENOMEM;
    }
    *ret = m;
    return 0;
}

static void member_drop_plan(struct member *m)
{
    for (uint32_t i = 0; i < m->n_plan && m->recs; i++)
        records_put(m->recs[i]);
    plan_free(m->plan);
    mem_free(m->recs);
    mem_free(m->by_place);
    mem_free(m->order);
    mem_free(m->window);
    m->plan = NULL;
    m->recs = NULL;
    m->by_place = NULL;
    m->order = NULL;
    m->window = NULL;
    m->n_plan = m->n_order = m->at_order = 0;
}

void member_free(struct member *m)
{
    if (!m)
        return;
    while (m->todo_head)
        member_todo_drop(m);
    member_drop_plan(m);
    nametab_release(&m->ops);
    records_put(m->held);
    while (m->at_due < m->n_due)
        records_put(m->due[m->at_due++]);
    mem_free(m->due);
    records_release(&m->records);
    mem_free(m->sets);
    mem_free(m->items);
    mem_free(m->zeros);
    mem_free(m->counts);
    mem_free(m->news_counts);
    mem_free(m);
}

struct member_counts member_counts(const struct member *m)
{
    return m->stats;
}

bool member_is_agreeing(const struct member *m)
{
    return m->is_agreeing;
}

bool member_is_in_plan(const struct member *m)
{
    return m->mode == MODE_PLAN;
}

uint32_t member_plan_size(const struct member *m)
{
    return m->mode == MODE_PLAN ? m->n_plan : 0;
}

bool member_has_offer(const struct member *m)
{
    return m->mode == MODE_PLAN && !m->is_agreeing && plan_has_any(m->plan);
}

bool member_has_whole_plan(const struct member *m)
{
    return m->mode == MODE_PLAN && plan_is_whole(m->plan);
}

bool member_has_todo(const struct member *m)
{
    return m->todo_head != NULL || m->at_order < m->n_order;
}

void member_leave_plan(struct member *m)
{
    if (m->mode == MODE_PLAN)
        m->must_leave = true;
}

/* --- process sets --- */

int member_set_added(struct member *m, uint32_t id, bool is_in)
{
    void *v = m->sets;
    int rc = mem_grow(&v, m->n_sets, &m->sets_cap, sizeof(*m->sets), UINT32_MAX);

    m->sets = v;
    if (rc < 0)
        return rc;
    m->sets[m->n_sets++] = (struct set_entry){id, is_in};
    return 0;
}

void member_set_removed(struct member *m, uint32_t id)
{
    for (size_t i = 0; i < m->n_sets; i++)
        if (m->sets[i].id == id) {
            m->sets[i] = m->sets[--m->n_sets];
            return;
        }
}

bool member_is_in_set(const struct member *m, uint32_t id)
{
    for (size_t i = 0; i < m->n_sets; i++)
        if (m->sets[i].id == id)
            return m->sets[i].is_in;
    return id == 0 || pair_has(id, m->rank);
}

/* --- open operations --- */

static void op_classify(struct member *m, struct member_op *op)
{
    struct cache_record *r = records_match(&m->records, op->req);

    op->is_planned = r && r->plan == m->plan_no && op->req->coll != COLL_JOIN;
    if (op->req->coll == COLL_JOIN)
        op->is_sent = false; /* rank 0 dropped it (I2) */
    if (!op->is_planned) {
        m->must_leave = true;
        return;
    }
    op->is_sent = false;
    op->place = r->place;
    m->by_place[op->place] = op;
    plan_have(m->plan, op->place);
}

int member_submit(struct member *m, struct member_op *op)
{
    if (m->join)
        return -EBUSY;
    op->node.name = op->req->name;
    op->node.set = op->req->process_set;
    op->is_sent = op->is_planned = false;
    if (nametab_add(&m->ops, &op->node) < 0)
        return -ENOMEM;
    op->next = NULL;
    op->prev = m->tail;
    if (m->tail)
        m->tail->next = op;
    else
        m->head = op;
    m->tail = op;
    if (!m->first_unsent)
        m->first_unsent = op;
    if (op->req->coll == COLL_JOIN)
        m->join = op;
    if (m->mode == MODE_PLAN)
        op_classify(m, op);
    return 0;
}

static void member_remove_op(struct member *m, struct member_op *op)
{
    nametab_remove(&m->ops, &op->node);
    if (m->first_unsent == op)
        m->first_unsent = op->next;
    if (op->prev)
        op->prev->next = op->next;
    else
        m->head = op->next;
    if (op->next)
        op->next->prev = op->prev;
    else
        m->tail = op->prev;
    if (m->join == op)
        m->join = NULL;
}

struct member_op *member_find_op(const struct member *m, uint32_t set, const char *name)
{
    return (struct member_op *)(void *)nametab_find(&m->ops, set, name);
}

/* --- up --- */

/* A run of slots, as words of bits. */
struct bits {
    uint64_t words[SLOTS_MAX / 64];
    uint32_t lo, hi; /* words in use: [lo, hi) */
};

static void bits_write(struct strbuf *out, struct bits *b)
{
    if (b->lo < b->hi)
        message_put_hits(out, b->lo * 64, b->words + b->lo, b->hi - b->lo);
}

static void bits_add(struct bits *b, uint32_t slot)
{
    uint32_t w = slot / 64;

    if (b->lo >= b->hi) {
        b->lo = w;
        b->hi = w + 1;
        b->words[w] = 0;
    }
    while (w < b->lo)
        b->words[--b->lo] = 0;
    while (w >= b->hi)
        b->words[b->hi++] = 0;
    b->words[w] |= 1ull << (slot % 64);
}

/* Writes ops in the order of submission. Adjacent bits form one entry; rank 0 reads it
 * by ascending slot. */
static void member_write_ops(struct member *m, struct strbuf *out)
{
    struct bits b;

    b.lo = b.hi = 0;
    for (; m->first_unsent && out->n < MESSAGE_AIM;
         m->first_unsent = m->first_unsent->next) {
        struct member_op *op = m->first_unsent;
        const struct cache_record *r;

        if (op->is_sent)
            continue;
        r = records_match(&m->records, op->req);
        if (r) {
            bits_add(&b, r->slot);
            m->stats.n_hits++;
        } else {
            bits_write(out, &b);
            b.lo = b.hi = 0;
            message_put_request(out, op->req);
            m->stats.n_requests++;
        }
        op->is_sent = true;
    }
    bits_write(out, &b);
}

bool member_take_up(struct member *m, struct strbuf *out)
{
    bool sends_leave = m->mode == MODE_PLAN && m->must_leave && !m->has_sent_leave;

    if (!sends_leave && (m->mode != MODE_FREE || !m->first_unsent))
        return false;
    strbuf_clear(out);
    message_begin_up(out, m->n_seen);
    if (sends_leave) {
        uint64_t n_steps = m->n_agreed / m->n_plan;

        message_put_leave(out, m->plan_no,
                          n_steps < UINT32_MAX ? (uint32_t)n_steps : UINT32_MAX);
        m->has_sent_leave = true;
    } else {
        member_write_ops(m, out);
    }
    m->stats.n_up++;
    return true;
}

int member_add_item(struct member *m, size_t n, struct member_op *op)
{
    void *v = m->items;
    int rc = mem_grow(&v, n, &m->items_cap, sizeof(*m->items), UINT32_MAX);

    m->items = v;
    if (rc < 0)
        return rc;
    m->items[n] = (struct member_item){op, op ? op->req : NULL};
    if (op)
        member_remove_op(m, op);
    return 0;
}

/* --- the plan --- */

/* Looks up this rank's records of the plan's slots. */
static int
member_find_plan_records(struct member *m, const struct down *d, struct err *err)
{
    for (uint32_t i = 0; i < d->n_slots; i++) {
        struct cache_record *rec = records_get(&m->records, down_slot(d, i));

        if (!rec || !rec->is_ours || rec->req.process_set != 0)
            return err_set(err, -EPROTO,
                           "rank 0 plans slot %u, which this rank does not have",
                           down_slot(d, i));
        records_hold(rec);
        m->recs[i] = rec;
        rec->plan = d->plan;
        rec->place = i;
        m->window[i] = &rec->req;
    }
    return 0;
}

static int member_begin_plan(struct member *m, const struct down *d, struct err *err)
{
    int rc;

    member_drop_plan(m);
    m->n_plan = d->n_slots;
    m->n_agreed = 0;
    m->recs = mem_calloc(d->n_slots, sizeof(void *));
    m->by_place = mem_calloc(d->n_slots, sizeof(void *));
    m->order = mem_calloc(d->n_slots, sizeof(*m->order));
    m->window = mem_calloc(d->n_slots, sizeof(void *));
    if (!m->recs || !m->by_place || !m->order || !m->window)
        return err_set(err, -ENOMEM, "out of memory for a plan");
    rc = member_find_plan_records(m, d, err);
    if (rc < 0)
        return rc;
    rc = plan_new(m->window, d->n_slots, &m->plan);
    if (rc < 0)
        return err_set(err, rc,
                       rc == -ENOMEM ? "out of memory for a plan"
                                     : "rank 0 plans %u tensors",
                       d->n_slots);
    m->plan_no = d->plan;
    m->limit = (struct fusion_limit){d->fusion_bytes, d->fuse_next};
    m->mode = MODE_PLAN;
    m->must_leave = m->has_sent_leave = false;
    m->stats.n_plans++;
    m->stats.n_before_plan = m->stats.n_planned;
    for (struct member_op *op = m->head; op; op = op->next)
        op_classify(m, op);
    return 0;
}

static void member_end_plan(struct member *m)
{
    for (struct member_op *op = m->head; op; op = op->next)
        op->is_planned = false;
    m->first_unsent = m->head;
    m->mode = MODE_FREE;
    m->stats.n_leaves++;
    member_drop_plan(m);
}

/* Hands out the next agreed batch. NOTHING: none is left. */
static int member_take_agreed(struct member *m, struct member_act *ret, struct err *err)
{
    size_t take;

    if (m->at_order == m->n_order)
        return 0;
    take = fusion_take(m->window + m->at_order, m->n_order - m->at_order, &m->limit);
    m->held = m->recs[m->order[m->at_order]];
    records_hold(m->held);
    ret->counts = m->held->counts;
    ret->n_counts = m->held->n_counts;
    for (size_t i = 0; i < take; i++)
        if (member_add_item(m, i, m->by_place[m->order[m->at_order++]]) < 0)
            return err_set(err, -ENOMEM, "out of memory for a batch");
    m->stats.n_planned += take;
    member_hand_out(m, take, ret);
    return 0;
}

static void plan_begin_agreement(struct member *m, struct member_act *ret)
{
    plan_offer(m->plan, !m->must_leave, m->words);
    ret->kind = MEMBER_AGREE;
    ret->words = m->words;
    ret->n_words = plan_words(m->plan);
    m->is_agreeing = true;
    m->stats.n_rounds++;
}

/* In a plan. An answer behind FREEZE is a reason to leave. */
static void plan_offer_if_due(struct member *m, bool may_offer, struct member_act *ret)
{
    if (m->todo_head)
        m->must_leave = true;
    if (!m->is_agreeing && (m->must_leave || (may_offer && plan_has_any(m->plan))))
        plan_begin_agreement(m, ret);
}

int member_agreed(struct member *m, const uint64_t *words, bool *ret_is_empty)
{
    bool stays;

    m->is_agreeing = false;
    m->at_order = 0;
    m->n_order = plan_agreed(m->plan, words, &stays, m->order);
    m->n_agreed += m->n_order;
    for (uint32_t i = 0; i < m->n_order; i++)
        m->window[i] = &m->recs[m->order[i]]->req;
    *ret_is_empty = stays && m->n_order == 0;
    m->stats.n_empty += *ret_is_empty;
    if (!stays)
        member_end_plan(m);
    return 0;
}

/* Reads the next answer into m->down. 1; 0: the message has no more. */
static int member_read_answer(struct member *m, struct err *err)
{
    int rc = 0;

    if (!m->is_open)
        rc = message_open(&m->reader, m->todo_head->bytes, m->todo_head->n, err);
    m->is_open = true;
    if (rc == 0)
        rc = message_next_down(&m->reader, m->counts, m->n_ranks, &m->down, err);
    if (rc == 0)
        member_todo_drop(m);
    return rc;
}

int member_next(struct member *m,
                bool may_offer,
                struct member_act *ret,
                struct err *err)
{
    bool more = false;
    size_t n = 0;
    int rc;

    *ret = (struct member_act){.kind = MEMBER_NOTHING};
    m->n_zeros = 0;
    records_put(m->held);
    m->held = NULL;
    rc = member_take_agreed(m, ret, err);
    if (rc < 0 || ret->kind != MEMBER_NOTHING)
        return rc;
    if (m->mode == MODE_PLAN) {
        plan_offer_if_due(m, may_offer, ret);
        return 0;
    }
    while (m->todo_head && ret->kind == MEMBER_NOTHING) {
        rc = member_read_answer(m, err);
        if (rc > 0 && m->down.kind == DOWN_FREEZE)
            rc = member_begin_plan(m, &m->down, err);
        else if (rc > 0)
            rc = member_answer(m, &n, &more, ret, err);
        if (rc < 0)
            return rc;
        if (n > 0 && !more)
            member_hand_out(m, n, ret);
        if (m->mode == MODE_PLAN) {
            if (m->reader.in.left == 0)
                member_todo_drop(
                    m); /* else: the answers behind FREEZE are a reason to leave */
            return member_next(m, may_offer, ret, err);
        }
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* See member.h for the protocol.
 *
 * I1  Answers are handed out in their order, each exactly once, but what they say about
 *     slots counts from their arrival, and n_seen with it: a bit that is sent
 * afterwards means the slot's new tensor. I2  From the arrival of FREEZE on nothing is
 * sent; from the moment it is handed out every open op is either of the plan or a
 * reason to leave it. What was sent before and is of the plan has been dropped by rank
 * 0; what is not is still there. I3  The acts of one agreement are handed out before
 * the next agreement begins.
 *
 *   FREE --FREEZE arrives--> FROZEN --handed out--> PLAN --agreed to leave--> FREE */
#include "runtime/core/member.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/core/cycle.h"
#include "runtime/core/fusion.h"
#include "runtime/core/plan.h"
#include "runtime/core/records.h"

enum { MESSAGE_AIM = 1 << 18 };

enum mode { MODE_FREE, MODE_FROZEN, MODE_PLAN };

struct todo { /* a down message */
    struct todo *next;
    size_t n;
    uint8_t bytes[];
};

struct set_entry {
    uint32_t id;
    bool is_in;
};

struct member {
    uint32_t n_ranks;
    uint64_t n_seen;
    struct nametab ops;             /* open ones, by name */
    struct member_op *head, *tail;  /* open ones, oldest first */
    struct member_op *first_unsent; /* all before it are sent or planned */
    struct member_op *join;         /* this rank's, until all have joined */
    struct records records;
    struct set_entry *sets; /* but set 0 */
    size_t n_sets, sets_cap;

    struct todo *todo_head, *todo_tail;
    struct message_reader reader; /* of todo_head, when is_open */
    bool is_open;

    enum mode mode;
    struct plan *plan;
    uint32_t plan_no, n_plan;
    struct fusion_limit limit;
    struct member_op **by_place; /* [n_plan] */
    uint32_t *order; /* [n_plan] agreed, not handed out: from at to n_order */
    uint32_t n_order, at_order;
    bool must_leave, has_told, is_agreeing;
    uint64_t words[CYCLE_MAX / 64 + 1];

    struct member_item *items; /* of the act at hand */
    size_t items_cap;
    struct request *zeros; /* of items without op */
    size_t n_zeros, zeros_cap;
    const struct request **window; /* [n_plan] */
    uint64_t *counts;              /* [n_ranks] */
    struct down down;
    struct member_counts stats;
};

int member_new(uint32_t n_ranks, struct member **ret)
{
    struct member *m = mem_zalloc(sizeof(*m));

    if (!m)
        return -ENOMEM;
    m->n_ranks = n_ranks;
    m->counts = mem_calloc(n_ranks, sizeof(*m->counts));
    if (!m->counts) {
        mem_free(m);
        return -ENOMEM;
    }
    *ret = m;
    return 0;
}

static void todo_drop(struct member *m)
{
    struct todo *t = m->todo_head;

    m->todo_head = t->next;
    if (!m->todo_head)
        m->todo_tail = NULL;
    m->is_open = false;
    mem_free(t);
}

static void plan_drop(struct member *m)
{
    plan_free(m->plan);
    mem_free(m->by_place);
    mem_free(m->order);
    mem_free(m->window);
    m->plan = NULL;
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
        todo_drop(m);
    plan_drop(m);
    nametab_release(&m->ops);
    records_release(&m->records);
    mem_free(m->sets);
    mem_free(m->items);
    mem_free(m->zeros);
    mem_free(m->counts);
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

bool member_has_offer(const struct member *m)
{
    return m->mode == MODE_PLAN && !m->is_agreeing && plan_has_any(m->plan);
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
    int r = mem_grow(&v, m->n_sets, &m->sets_cap, sizeof(*m->sets), UINT32_MAX);

    m->sets = v;
    if (r < 0)
        return r;
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

static bool is_in_set(const struct member *m, uint32_t id)
{
    for (size_t i = 0; i < m->n_sets; i++)
        if (m->sets[i].id == id)
            return m->sets[i].is_in;
    return id == 0;
}

/* --- open operations --- */

static void classify(struct member *m, struct member_op *op)
{
    struct record *r = records_match(&m->records, op->req);

    op->is_planned = r && r->plan == m->plan_no && op->req->coll != COLL_JOIN;
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
        classify(m, op);
    return 0;
}

static void op_remove(struct member *m, struct member_op *op)
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

static struct member_op *op_find(const struct member *m, uint32_t set, const char *name)
{
    return (struct member_op *)(void *)nametab_find(&m->ops, set, name);
}

/* --- up --- */

/* Bits are collected for one run of slots, as far as it reaches. */
struct bits {
    uint64_t words[SLOTS_MAX / 64];
    uint32_t lo, hi; /* words in use: [lo, hi) */
};

static void put_bits(struct strbuf *out, struct bits *b)
{
    if (b->lo < b->hi)
        message_put_hits(out, b->lo * 64, b->words + b->lo, b->hi - b->lo);
}

static void add_bit(struct bits *b, uint32_t slot)
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

/* In the order of submission, as far as bits allow: rank 0 takes the bits by slot. */
static void put_ops(struct member *m, struct strbuf *out)
{
    struct bits b;

    b.lo = b.hi = 0;
    for (; m->first_unsent && out->n < MESSAGE_AIM;
         m->first_unsent = m->first_unsent->next) {
        struct member_op *op = m->first_unsent;
        const struct record *r;

        if (op->is_sent)
            continue;
        r = records_match(&m->records, op->req);
        if (r) {
            add_bit(&b, r->slot);
            m->stats.n_hits++;
        } else {
            put_bits(out, &b);
            b.lo = b.hi = 0;
            message_put_request(out, op->req);
            m->stats.n_requests++;
        }
        op->is_sent = true;
    }
    put_bits(out, &b);
}

bool member_take_up(struct member *m, struct strbuf *out)
{
    bool tells = m->mode == MODE_PLAN && m->must_leave && !m->has_told;

    if (!tells && (m->mode != MODE_FREE || !m->first_unsent))
        return false;
    strbuf_clear(out);
    message_begin_up(out, m->n_seen);
    if (tells) {
        message_put_leave(out, m->plan_no);
        m->has_told = true;
    } else {
        put_ops(m, out);
    }
    m->stats.n_up++;
    return true;
}

/* --- down --- */

/* What a message says about slots counts from its arrival (I1). */
static int note(struct member *m, const struct down *d)
{
    const struct member_op *op;

    if (d->kind == DOWN_FREEZE)
        m->mode = MODE_FROZEN;
    if (d->kind != DOWN_RUN || !d->has_req || d->slot == SLOT_NONE)
        return 0;
    op = op_find(m, d->req.process_set, d->req.name);
    return records_set(&m->records, d->slot, op ? op->req : NULL, d->counts,
                       d->n_counts);
}

int member_receive(struct member *m, const void *p, size_t n, struct err *err)
{
    struct message_reader in;
    struct todo *t;
    int r = message_open(&in, p, n, err);

    if (r == 0 && in.kind != MESSAGE_DOWN)
        r = err_set(err, -EBADMSG, "control message: requests where answers belong");
    while (r == 0) {
        r = message_next_down(&in, m->counts, m->n_ranks, &m->down, err);
        if (r <= 0)
            break;
        r = note(m, &m->down);
        if (r < 0)
            return err_set(err, r, "out of memory for the response cache");
    }
    if (r < 0)
        return r;
    t = mem_alloc(sizeof(*t) + n);
    if (!t)
        return err_set(err, -ENOMEM, "out of memory for %zu bytes of answers", n);
    t->next = NULL;
    t->n = n;
    memcpy(t->bytes, p, n);
    if (m->todo_tail)
        m->todo_tail->next = t;
    else
        m->todo_head = t;
    m->todo_tail = t;
    m->n_seen++;
    m->stats.n_down++;
    return 0;
}

static int add_item(struct member *m, size_t n, struct member_op *op)
{
    void *v = m->items;
    int r = mem_grow(&v, n, &m->items_cap, sizeof(*m->items), UINT32_MAX);

    m->items = v;
    if (r < 0)
        return r;
    m->items[n] = (struct member_item){op, op ? op->req : NULL};
    if (op)
        op_remove(m, op);
    return 0;
}

/* A tensor of others in which this rank, having joined, takes part. */
static int add_zeros(struct member *m, size_t n, const struct request *req)
{
    void *v = m->zeros;
    int r = mem_grow(&v, m->n_zeros, &m->zeros_cap, sizeof(*m->zeros), UINT32_MAX);

    m->zeros = v;
    if (r == 0)
        r = add_item(m, n, NULL);
    if (r == 0)
        m->zeros[m->n_zeros++] = *req;
    return r;
}

/* The op that an answer is about; NULL: it is not for this rank. */
static int find_op(struct member *m,
                   const struct down *d,
                   struct member_op **ret,
                   bool *ret_is_ours,
                   struct err *err)
{
    const struct record *rec = NULL;
    uint32_t set;
    const char *name;

    *ret = NULL;
    *ret_is_ours = false;
    if (!d->has_req) {
        rec = records_get(&m->records, d->slot);
        if (!rec && !records_is_known(&m->records, d->slot))
            return err_set(err, -EPROTO,
                           "rank 0 answers slot %u, which it never gave out", d->slot);
        if (!rec)
            return 0;
    }
    set = rec ? rec->req.process_set : d->req.process_set;
    name = rec ? rec->req.name : d->req.name;
    if (!rec && d->req.coll == COLL_SET_ADD)
        set = 0; /* there it was submitted; it holds the new set's number now */
    *ret = op_find(m, set, name);
    *ret_is_ours = *ret || is_in_set(m, set);
    if (*ret_is_ours && !*ret && !m->join && d->kind == DOWN_RUN)
        return err_set(err, -EPROTO,
                       "rank 0 answers tensor \"%.200s\", which this rank has not",
                       name);
    return 0;
}

static int take_run(struct member *m,
                    const struct down *d,
                    size_t *n,
                    struct member_act *ret,
                    struct err *err)
{
    const struct record *rec = d->has_req ? NULL : records_get(&m->records, d->slot);
    struct member_op *op;
    bool is_ours;
    int r = find_op(m, d, &op, &is_ours, err);

    if (r < 0 || !is_ours)
        return r;
    ret->counts = rec ? rec->counts : d->counts;
    ret->n_counts = rec ? rec->n_counts : d->n_counts;
    if (d->has_req)
        ret->set_id = d->req.process_set;
    if (op)
        r = add_item(m, *n, op);
    else if (d->has_req)
        r = add_zeros(m, *n, &d->req);
    else
        r = -EPROTO; /* a tensor of one who has joined is told whole */
    if (r < 0)
        return err_set(err, r,
                       r == -EPROTO ? "rank 0 answers a slot in a join"
                                    : "out of memory for a batch");
    ++*n;
    return 0;
}

static void hand_out(struct member *m, size_t n, struct member_act *ret)
{
    for (size_t i = 0, z = 0; i < n; i++)
        if (!m->items[i].op)
            m->items[i].req = &m->zeros[z++];
    ret->kind = MEMBER_RUN;
    ret->items = m->items;
    ret->n_items = n;
}

/* One answer. *more: RUN whose batch goes on. */
static int
answer(struct member *m, size_t *n, bool *more, struct member_act *ret, struct err *err)
{
    const struct down *d = &m->down;
    struct member_op *op = NULL;
    bool is_ours;
    int r;

    *more = false;
    switch (d->kind) {
    case DOWN_RUN:
        *more = d->fuse_next;
        return take_run(m, d, n, ret, err);
    case DOWN_FAIL:
        r = find_op(m, d, &op, &is_ours, err);
        if (r < 0 || !op)
            return r;
        ret->kind = MEMBER_FAIL;
        ret->text = d->text;
        break;
    case DOWN_JOINED:
        op = m->join;
        if (!op)
            return err_set(err, -EPROTO,
                           "rank 0 says all have joined, this rank has not");
        ret->kind = MEMBER_JOIN;
        ret->last_joined = d->req.root;
        break;
    case DOWN_FREEZE:
    case DOWN_LEAVE:
        return 0;
    }
    r = add_item(m, 0, op);
    if (r < 0)
        return err_set(err, r, "out of memory for a batch");
    ret->items = m->items;
    ret->n_items = 1;
    return 0;
}

/* --- the plan --- */

static int plan_begin(struct member *m, const struct down *d, struct err *err)
{
    int r = 0;

    plan_drop(m);
    m->n_plan = d->n_slots;
    m->by_place = mem_calloc(d->n_slots, sizeof(void *));
    m->order = mem_calloc(d->n_slots, sizeof(*m->order));
    m->window = mem_calloc(d->n_slots, sizeof(void *));
    if (!m->by_place || !m->order || !m->window)
        return err_set(err, -ENOMEM, "out of memory for a plan");
    for (uint32_t i = 0; i < d->n_slots; i++) {
        struct record *rec = records_get(&m->records, down_slot(d, i));

        if (!rec)
            return err_set(err, -EPROTO,
                           "rank 0 plans slot %u, which this rank has not",
                           down_slot(d, i));
        rec->plan = d->plan;
        rec->place = i;
        m->window[i] = &rec->req;
    }
    r = plan_new(m->window, d->n_slots, &m->plan);
    if (r < 0)
        return err_set(err, r,
                       r == -ENOMEM ? "out of memory for a plan"
                                    : "rank 0 plans %u tensors",
                       d->n_slots);
    m->plan_no = d->plan;
    m->limit = (struct fusion_limit){d->fusion_bytes, d->fuse_next};
    m->mode = MODE_PLAN;
    m->must_leave = m->has_told = false;
    m->stats.n_plans++;
    for (struct member_op *op = m->head; op; op = op->next)
        classify(m, op);
    return 0;
}

static void plan_end(struct member *m)
{
    for (struct member_op *op = m->head; op; op = op->next)
        op->is_planned = false;
    m->first_unsent = m->head;
    m->mode = MODE_FREE;
    m->stats.n_leaves++;
    plan_drop(m);
}

/* The next batch of what was agreed. */
static int take_agreed(struct member *m, struct member_act *ret, struct err *err)
{
    size_t left = m->n_order - m->at_order, take;
    const struct record *rec;

    for (size_t i = 0; i < left; i++)
        m->window[i] = m->by_place[m->order[m->at_order + i]]->req;
    take = fusion_take(m->window, left, &m->limit);
    rec = records_match(&m->records, m->window[0]);
    if (rec) {
        ret->counts = rec->counts;
        ret->n_counts = rec->n_counts;
    }
    for (size_t i = 0; i < take; i++)
        if (add_item(m, i, m->by_place[m->order[m->at_order++]]) < 0)
            return err_set(err, -ENOMEM, "out of memory for a batch");
    m->stats.n_planned += take;
    hand_out(m, take, ret);
    return 0;
}

static void offer(struct member *m, struct member_act *ret)
{
    plan_offer(m->plan, !m->must_leave, m->words);
    ret->kind = MEMBER_AGREE;
    ret->words = m->words;
    ret->n_words = plan_words(m->plan);
    m->is_agreeing = true;
    m->stats.n_rounds++;
}

int member_agreed(struct member *m, const uint64_t *words, bool *ret_is_empty)
{
    bool stays;

    m->is_agreeing = false;
    m->at_order = 0;
    m->n_order = plan_agreed(m->plan, words, &stays, m->order);
    *ret_is_empty = stays && m->n_order == 0;
    m->stats.n_empty += *ret_is_empty;
    if (!stays)
        plan_end(m);
    return 0;
}

int member_next(struct member *m,
                bool may_offer,
                struct member_act *ret,
                struct err *err)
{
    bool more = false;
    size_t n = 0;
    int r;

    *ret = (struct member_act){.kind = MEMBER_NOTHING};
    m->n_zeros = 0;
    if (m->at_order < m->n_order)
        return take_agreed(m, ret, err);
    if (m->mode == MODE_PLAN) {
        if (m->todo_head)
            m->must_leave = true;
        if (!m->is_agreeing && (m->must_leave || (may_offer && plan_has_any(m->plan))))
            offer(m, ret);
        return 0;
    }
    while (m->todo_head && ret->kind == MEMBER_NOTHING) {
        r = m->is_open
                ? 0
                : message_open(&m->reader, m->todo_head->bytes, m->todo_head->n, err);
        m->is_open = true;
        if (r == 0)
            r = message_next_down(&m->reader, m->counts, m->n_ranks, &m->down, err);
        if (r == 0)
            todo_drop(m);
        if (r > 0 && m->down.kind == DOWN_FREEZE)
            r = plan_begin(m, &m->down, err);
        else if (r > 0)
            r = answer(m, &n, &more, ret, err);
        if (r < 0)
            return r;
        if (n > 0 && !more)
            hand_out(m, n, ret);
        if (m->mode == MODE_PLAN) {
            if (m->reader.in.at == m->reader.in.n)
                todo_drop(m); /* what is behind it is a reason to leave */
            return member_next(m, may_offer, ret, err);
        }
    }
    return 0;
}

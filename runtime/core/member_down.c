/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, from the message to the act. The slots of an answer are updated when it
 * arrives (member_note_answer); the answer itself is handed out in order
 * (member_answer). member.c lists the invariants. */
#include "runtime/core/member_state.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

void member_todo_drop(struct member *m)
{
    struct todo *t = m->todo_head;

    m->todo_head = t->next;
    if (!m->todo_head)
        m->todo_tail = NULL;
    m->is_open = false;
    mem_free(t);
}

static int member_note_slot(struct member *m, uint32_t slot, struct err *err)
{
    struct cache_record *rec = records_get(&m->records, slot);
    void *v = m->due;
    int rc;

    if (!rec)
        return err_set(err, -EPROTO, "rank 0 answers slot %u, which it never assigned",
                       slot);
    if (m->at_due > 0 && m->n_due == m->due_cap) {
        memmove(m->due, m->due + m->at_due, (m->n_due - m->at_due) * sizeof(void *));
        m->n_due -= m->at_due;
        m->at_due = 0;
    }
    rc = mem_grow(&v, m->n_due, &m->due_cap, sizeof(void *), UINT32_MAX);
    m->due = v;
    if (rc < 0)
        return err_set(err, rc, "out of memory for answers");
    records_hold(rec);
    m->due[m->n_due++] = rec;
    return 0;
}

/* Must this rank submit this tensor too? */
static bool member_is_to_submit(const struct member *m, const struct tensor_request *q)
{
    if (q->coll == COLL_PROBE)
        return false;
    return request_by_members(q) ? request_set_has(q, m->rank)
                                 : member_is_in_set(m, q->process_set);
}

/* Updates the slots that an answer names (I1). */
static int member_note_answer(struct member *m, const struct down *d, struct err *err)
{
    const struct member_op *op;

    if (d->kind == DOWN_FREEZE)
        m->mode = MODE_FROZEN;
    if (d->kind == DOWN_LATE && !m->join && member_is_to_submit(m, &d->req)
        && !member_find_op(m, d->req.process_set, d->req.name)) {
        m->is_late = true;
        memcpy(m->late, d->req.name, sizeof(m->late));
    }
    if (d->kind == DOWN_RUN && !d->has_req)
        return member_note_slot(m, d->slot, err);
    if (d->kind != DOWN_RUN || d->slot == SLOT_NONE)
        return 0;
    op = member_find_op(m, d->req.process_set, d->req.name);
    if (records_set(&m->records, d->slot, op ? op->req : &d->req, op != NULL, d->counts,
                    d->n_counts)
        < 0)
        return err_set(err, -ENOMEM, "out of memory for the response cache");
    return 0;
}

int member_receive(struct member *m, const void *p, size_t n, struct err *err)
{
    struct message_reader in;
    struct todo *t;
    int rc = message_open(&in, p, n, err);

    if (rc == 0 && in.kind != MESSAGE_DOWN)
        rc = err_set(err, -EBADMSG, "control message: requests instead of answers");
    while (rc == 0) {
        rc = message_next_down(&in, m->news_counts, m->n_ranks, &m->news, err);
        if (rc <= 0)
            break;
        rc = member_note_answer(m, &m->news, err);
    }
    if (rc < 0)
        return rc;
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

/* Adds a tensor of other ranks to which this rank, having joined, contributes zeros. */
static int
member_add_zeros(struct member *m, size_t n, const struct tensor_request *req)
{
    void *v = m->zeros;
    int rc = mem_grow(&v, m->n_zeros, &m->zeros_cap, sizeof(*m->zeros), UINT32_MAX);

    m->zeros = v;
    if (rc == 0)
        rc = member_add_item(m, n, NULL);
    if (rc == 0)
        m->zeros[m->n_zeros++] = *req;
    return rc;
}

/* The record of an answer that contains only the slot, held for the current act. */
static const struct cache_record *member_take_record(struct member *m)
{
    struct cache_record *rec = m->at_due < m->n_due ? m->due[m->at_due++] : NULL;

    records_put(m->held);
    m->held = rec;
    return rec;
}

/* Finds the op that an answer is about; rec: the record if the answer contains only the
 * slot. *ret NULL and *ret_is_ours false: the answer is not for this rank. */
static int member_match_op(struct member *m,
                           const struct down *d,
                           const struct cache_record *rec,
                           struct member_op **ret,
                           bool *ret_is_ours,
                           struct err *err)
{
    uint32_t set;
    const char *name;

    *ret = NULL;
    *ret_is_ours = false;
    set = rec ? rec->req.process_set : d->req.process_set;
    name = rec ? rec->req.name : d->req.name;
    if (!rec && d->req.coll == COLL_SET_ADD)
        set =
            0; /* the set it was submitted in; process_set holds the new set's id now */
    *ret = member_find_op(m, set, name);
    *ret_is_ours = *ret || member_is_in_set(m, set);
    if (*ret_is_ours && !*ret && !m->join && d->kind == DOWN_RUN)
        return err_set(
            err, -EPROTO,
            "rank 0 answers tensor \"%.200s\", which this rank does not have", name);
    return 0;
}

static int member_take_run(struct member *m,
                           const struct down *d,
                           size_t *n,
                           struct member_act *ret,
                           struct err *err)
{
    const struct cache_record *rec = d->has_req ? NULL : member_take_record(m);
    struct member_op *op;
    bool is_ours;
    int rc = member_match_op(m, d, rec, &op, &is_ours, err);

    if (rc < 0 || !is_ours)
        return rc;
    ret->counts = rec ? rec->counts : d->counts;
    ret->n_counts = rec ? rec->n_counts : d->n_counts;
    if (d->has_req)
        ret->set_id = d->req.process_set;
    if (op)
        rc = member_add_item(m, *n, op);
    else if (d->has_req)
        rc = member_add_zeros(m, *n, &d->req);
    else
        rc = -EPROTO; /* rank 0 sends requests in full while a rank has joined */
    if (rc < 0)
        return err_set(err, rc,
                       rc == -EPROTO ? "rank 0 answers a slot in a join"
                                     : "out of memory for a batch");
    ++*n;
    return 0;
}

/* A set that its members add, and this rank is not one of them. */
static bool down_is_foreign_set(const struct member *m, const struct down *d)
{
    return d->kind == DOWN_RUN && d->has_req && request_by_members(&d->req)
           && !request_set_has(&d->req, m->rank);
}

static int
member_take_foreign_set(struct member *m, struct member_act *ret, struct err *err)
{
    if (member_add_item(m, 0, NULL) < 0)
        return err_set(err, -ENOMEM, "out of memory for a batch");
    m->items[0].req = &m->down.req;
    ret->kind = MEMBER_SET;
    ret->set_id = m->down.req.process_set;
    ret->items = m->items;
    ret->n_items = 1;
    return 0;
}

/* The answer of a probe is for the rank that has submitted it. */
static int member_take_probe(struct member *m, struct member_act *ret, struct err *err)
{
    const struct tensor_request *q = &m->down.req;
    struct member_op *op = member_find_op(m, q->process_set, q->name);

    if (!op || op->req->coll != COLL_PROBE)
        return 0;
    ret->kind = MEMBER_PROBE;
    ret->result_rank = q->root;
    if (member_add_item(m, 0, op) < 0)
        return err_set(err, -ENOMEM, "out of memory for a batch");
    ret->items = m->items;
    ret->n_items = 1;
    return 0;
}

void member_hand_out(struct member *m, size_t n, struct member_act *ret)
{
    for (size_t i = 0, z = 0; i < n; i++)
        if (!m->items[i].op)
            m->items[i].req = &m->zeros[z++];
    ret->kind = MEMBER_RUN;
    ret->items = m->items;
    ret->n_items = n;
}

int member_answer(
    struct member *m, size_t *n, bool *more, struct member_act *ret, struct err *err)
{
    const struct down *d = &m->down;
    struct member_op *op = NULL;
    bool is_ours;
    int rc;

    *more = false;
    if (down_is_foreign_set(m, d))
        return member_take_foreign_set(m, ret, err);
    if (d->kind == DOWN_RUN && d->has_req && d->req.coll == COLL_PROBE)
        return member_take_probe(m, ret, err);
    switch (d->kind) {
    case DOWN_RUN:
        *more = d->fuse_next;
        return member_take_run(m, d, n, ret, err);
    case DOWN_FAIL:
        rc = member_match_op(m, d, NULL, &op, &is_ours, err);
        if (rc < 0 || !op)
            return rc;
        ret->kind = MEMBER_FAIL;
        ret->text = d->text;
        break;
    case DOWN_JOINED:
        op = m->join;
        if (!op)
            return err_set(
                err, -EPROTO,
                "rank 0 reports that all ranks have joined, but this rank has not");
        ret->kind = MEMBER_JOIN;
        ret->result_rank = d->req.root;
        break;
    case DOWN_PAIR:
        ret->kind = MEMBER_PAIR;
        ret->set_id = d->pair;
        return 0;
    case DOWN_TUNE:
        ret->kind = MEMBER_TUNE;
        ret->tuning = &d->tuning;
        return 0;
    case DOWN_FREEZE:
    case DOWN_LEAVE:
    case DOWN_LATE:
        return 0;
    }
    rc = member_add_item(m, 0, op);
    if (rc < 0)
        return err_set(err, rc, "out of memory for a batch");
    ret->items = m->items;
    ret->n_items = 1;
    return 0;
}

const char *member_is_late(struct member *m)
{
    const char *name = m->is_late ? m->late : NULL;

    m->is_late = false;
    return name;
}

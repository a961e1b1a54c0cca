/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a simulated world: reports, links, and how a rank submits. See sim.h. */
#include "tests/lib/sim.h"

/* --- reports --- */

void sim_wrong(struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (s->why[0])
        return;
    va_start(ap, fmt);
    (void)vsnprintf(s->why, sizeof(s->why), fmt, ap);
    va_end(ap);
}

bool sim_is_over(const struct sim *s)
{
    return s->rc < 0 || s->why[0];
}

void sim_error(struct sim *s, int r)
{
    if (r < 0 && s->rc == 0)
        s->rc = r;
}

static bool sim_show_pending(void *arg, const struct negotiate_view *v)
{
    const struct sim *s = arg;

    (void)fprintf(stderr, "  pending %s (%s, set %u), missing on:", v->name,
                  collective_name(v->coll), v->process_set);
    for (uint32_t r = 0; r < s->cfg.n_ranks; r++)
        if (negotiate_is_missing(v, r))
            (void)fprintf(stderr, " %u", r);
    (void)fprintf(stderr, "%s\n", v->n_missing ? "" : " its group");
    return true;
}

void sim_dump(struct sim *s)
{
    (void)fprintf(stderr,
                  "seed %llu, event %llu: %s %s\n  %u ranks, cache %u, fusion %llu, "
                  "depth %u, steps %u\n",
                  (unsigned long long)s->seed, (unsigned long long)s->now, s->why,
                  s->err.text, s->cfg.n_ranks, s->cfg.cache_capacity,
                  (unsigned long long)s->cfg.fusion_bytes, s->depth, s->n_steps);
    for (uint32_t i = 0; i < s->cfg.n_ranks; i++) {
        const struct sim_rank *r = &s->ranks[i];

        (void)fprintf(stderr, "  rank %u: step %u, %u transfers%s%s%s%s%s%s; waits for",
                      i, r->step, r->n_transfers, r->is_holding ? ", an act waits" : "",
                      r->is_dead ? ", dead" : "",
                      r->is_running ? ", in a batch of " : "",
                      !r->is_running        ? ""
                      : r->act.n_items == 0 ? "a pair"
                                            : r->act.items[0].req->name,
                      member_is_in_plan(r->m) ? ", in a plan" : "",
                      member_is_agreeing(r->m) ? ", agreeing" : "");
        for (const struct sim_op *op = r->ops; op; op = op->next)
            (void)fprintf(stderr, " %s(set %u, step %u%s%s)", op->req.name,
                          op->req.process_set, op->step,
                          op->part.is_sent ? ", sent" : "",
                          op->part.is_planned ? ", planned" : "");
        (void)fprintf(stderr, "\n");
    }
    negotiate_walk(s->n, sim_show_pending, s);
}

/* --- links --- */

void sim_link_push(struct sim_link *l, const void *p, size_t n)
{
    struct sim_msg *m;

    if (l->n_sent++ >= l->cut_after)
        return;
    m = malloc(sizeof(*m) + n);
    assert_non_null(m);
    m->next = NULL;
    m->n = n;
    memcpy(m->bytes, p, n);
    if (l->tail)
        l->tail->next = m;
    else
        l->head = m;
    l->tail = m;
}

struct sim_msg *sim_link_pop(struct sim_link *l)
{
    struct sim_msg *m = l->head;

    if (!m)
        return NULL;
    l->head = m->next;
    if (!l->head)
        l->tail = NULL;
    return m;
}

/* --- submitting --- */

uint32_t sim_spec_mask(const struct sim *s, const struct sim_spec *p)
{
    return s->sets[p->by_members ? p->makes : p->set].mask;
}

uint32_t sim_mask_nth(uint32_t mask, uint32_t i)
{
    for (uint32_t r = 0; r < SIM_RANKS; r++)
        if (mask >> r & 1 && i-- == 0)
            return r;
    return 0;
}

uint32_t sim_mask_size(uint32_t mask)
{
    return (uint32_t)__builtin_popcount(mask);
}

/* q as the rank that differs submits it. */
static struct tensor_request
odd_request(const struct sim *s, const struct sim_spec *p, struct tensor_request q)
{
    uint32_t mask = s->sets[p->set].mask;

    switch (p->odd) {
    case ODD_SHAPE:
        q.shape[1] += 3;
        break;
    case ODD_NDIM:
        q.shape[q.ndim++] = 1;
        break;
    case ODD_DTYPE:
        q.dtype = DT_I32;
        break;
    case ODD_OP:
        q.op = OP_MAX;
        break;
    case ODD_SCALE:
        q.prescale = 0.25;
        break;
    case ODD_ROOT:
        q.root = sim_mask_nth(mask, (p->root_place + 1) % sim_mask_size(mask));
        break;
    case ODD_COLL:
        q.coll = q.coll == COLL_ALLREDUCE ? COLL_BROADCAST : COLL_ALLREDUCE;
        q.root = sim_mask_nth(mask, 0);
        break;
    case ODD_NO_GROUP:
        q.group = q.group_n = 0;
        break;
    case ODD_CODEC:
        (void)snprintf(q.codec, sizeof(q.codec), "fp16");
        break;
    case ODD_NONE:
    case ODD_COUNT:
        break;
    }
    return q;
}

static void fill_request(const struct sim *s,
                         uint32_t rank,
                         const struct sim_spec *p,
                         struct sim_op *op)
{
    struct tensor_request *q = &op->req;
    uint32_t mask = s->sets[p->set].mask;

    *q = (struct tensor_request){.coll = p->coll,
                                 .dtype = p->dtype,
                                 .op = p->op,
                                 .prescale = 1,
                                 .postscale = 1,
                                 .process_set = s->sets[p->set].id,
                                 .group = p->group,
                                 .group_n = p->group_n};
    (void)snprintf(q->name, sizeof(q->name), "%s", p->name);
    switch (p->coll) {
    case COLL_BARRIER:
    case COLL_JOIN:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        break;
    case COLL_SET_ADD:
        for (uint32_t r = 0, m = s->sets[p->makes].mask; r < SIM_RANKS; r++)
            if (m >> r & 1)
                op->set[4 * q->n_set++] = (uint8_t)r;
        q->set = op->set;
        q->root = p->by_members ? SET_BY_MEMBERS : SET_BY_ALL;
        break;
    case COLL_SET_REMOVE:
        q->root = s->sets[p->makes].id;
        break;
    case COLL_BROADCAST:
    case COLL_REDUCE:
    case COLL_GATHER:
    case COLL_SENDRECV:
        q->root = sim_mask_nth(mask, p->root_place);
        /* fallthrough */
    case COLL_ALLREDUCE:
    case COLL_ALLGATHER:
    case COLL_ALLTOALL:
    case COLL_REDUCESCATTER:
        q->ndim = 2;
        q->shape[0] = p->rows + (p->uneven ? (rank * p->uneven) % 5 : 0);
        q->shape[1] = p->cols;
        break;
    }
    if (p->odd_rank == rank)
        *q = odd_request(s, p, *q);
}

void sim_submit(struct sim *s, uint32_t rank, const struct sim_spec *p)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_inst *inst = &s->insts[p->inst];
    struct sim_op *op = calloc(1, sizeof(*op));

    assert_non_null(op);
    fill_request(s, rank, p, op);
    op->part.req = &op->req;
    op->inst = p->inst;
    op->step = r->step;
    op->next = r->ops;
    r->ops = op;
    r->open_of[op->step]++;
    r->n_open++;
    r->is_joined = p->coll == COLL_JOIN;
    inst->submitted |= 1u << rank;
    inst->rows[rank] = op->req.ndim > 0 ? (uint64_t)op->req.shape[0] : 0;
    s->n_since = 0;
    sim_trace(s, "%llu rank %u submits %s\n", (unsigned long long)s->now, rank,
              p->name);
    sim_error(s, member_submit(r->m, &op->part));
}

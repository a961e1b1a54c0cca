/* SPDX-License-Identifier: Apache-2.0 */
/* How the simulated world runs and checks the acts of members: batches, failures,
 * joins, agreements. See sim.h. */
#include "tests/lib/sim_check.h"

/* --- ends --- */

void sim_end_op(struct sim *s, uint32_t rank, struct sim_op *op)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_op **at = &r->ops;

    while (*at && *at != op)
        at = &(*at)->next;
    if (!*at) {
        sim_wrong(s, "rank %u was handed an operation that is not open", rank);
        return;
    }
    *at = op->next;
    r->open_of[op->step]--;
    r->n_open--;
    s->n_since = 0;
    free(op);
}

static uint64_t hash_bytes(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_number(uint64_t h, uint64_t v)
{
    return hash_bytes(h, &v, sizeof(v));
}

/* What must be equal on all ranks of a batch. */
uint64_t sim_hash_act(const struct member_act *act)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < act->n_items; i++) {
        const struct tensor_request *q = act->items[i].req;

        h = hash_bytes(h, q->name, strlen(q->name) + 1);
        h = hash_number(h, (uint64_t)q->coll << 32 | (uint64_t)q->dtype << 16 | q->op);
        h = hash_number(h, (uint64_t)q->root << 32 | q->ndim);
        h = hash_number(h, q->group);
        for (uint32_t k = 0; k < q->n_set; k++)
            h = hash_number(h, request_set_rank(q, k));
        for (uint32_t d = request_has_counts(q) || q->coll == COLL_ALLTOALL;
             d < q->ndim; d++)
            h = hash_number(h, (uint64_t)q->shape[d]);
    }
    for (uint32_t i = 0; i < act->n_counts; i++)
        h = hash_number(h, act->counts[i]);
    return hash_number(h, act->set_id);
}

static void batches_grow(struct sim_batches *b)
{
    if (b->n < b->cap)
        return;
    b->cap = b->cap ? b->cap * 2 : 64;
    b->v = realloc(b->v, b->cap * sizeof(*b->v));
    assert_non_null(b->v);
}

static void check_group(struct sim *s, const struct sim_inst *inst)
{
    const struct sim_step *step = &s->steps[inst->step];

    for (uint32_t i = 0; i < step->n && inst->spec->group; i++) {
        const struct sim_spec *p = &step->v[i];

        if (p->group == inst->spec->group && p->set == inst->spec->set
            && s->insts[p->inst].submitted != s->insts[p->inst].wanted)
            sim_wrong(s, "%s runs before all of its group was submitted",
                      inst->spec->name);
    }
}

static void check_counts(struct sim *s,
                         uint32_t rank,
                         const struct sim_inst *inst,
                         const struct member_act *act)
{
    uint32_t mask = s->sets[inst->spec->set].mask, at = 0;

    if (inst->spec->coll != COLL_ALLGATHER && inst->spec->coll != COLL_GATHER)
        return;
    if (act->n_counts != sim_mask_size(mask)) {
        sim_wrong(s, "rank %u got %u counts for %s", rank, act->n_counts,
                  inst->spec->name);
        return;
    }
    for (uint32_t r = 0; r < SIM_RANKS; r++) {
        if (!(mask >> r & 1))
            continue;
        if (act->counts[at] != inst->rows[r])
            sim_wrong(s, "rank %u got %llu rows of rank %u for %s, not %llu", rank,
                      (unsigned long long)act->counts[at], r, inst->spec->name,
                      (unsigned long long)inst->rows[r]);
        at++;
    }
}

static void
check_item(struct sim *s, uint32_t rank, const struct member_act *act, size_t i)
{
    const struct sim_op *op = (const struct sim_op *)(const void *)act->items[i].op;
    struct sim_inst *inst;

    if (!op) {
        if (!s->ranks[rank].is_joined)
            sim_wrong(s, "rank %u, which has not joined, takes part in %s with zeros",
                      rank, act->items[i].req->name);
        return;
    }
    inst = &s->insts[op->inst];
    if (inst->submitted != inst->wanted)
        sim_wrong(s, "rank %u runs %s, submitted by %x of %x", rank, op->req.name,
                  inst->submitted, inst->wanted);
    if (inst->spec->end == END_FAIL)
        sim_wrong(s, "rank %u runs %s, which is to fail", rank, op->req.name);
    inst->run |= 1u << rank;
    check_group(s, inst);
    check_counts(s, rank, inst, act);
}

static void check_fusion(struct sim *s, uint32_t rank, const struct member_act *act)
{
    uint64_t sum = 0, bytes;

    for (size_t i = 0; i < act->n_items; i++) {
        if (request_size(act->items[i].req, NULL, &bytes, NULL) == 0)
            sum += bytes;
        if (s->cfg.fuses_groups_apart
            && act->items[i].req->group != act->items[0].req->group)
            sim_wrong(s, "rank %u fuses %s with another group", rank,
                      act->items[i].req->name);
        if (act->items[i].req->process_set != act->items[0].req->process_set)
            sim_wrong(s, "rank %u fuses %s with another set", rank,
                      act->items[i].req->name);
    }
    if (act->n_items > 1 && sum > s->ranks[rank].fusion_bytes)
        sim_wrong(s, "rank %u fuses %llu bytes, more than %llu", rank,
                  (unsigned long long)sum,
                  (unsigned long long)s->ranks[rank].fusion_bytes);
}

/* Every rank comes to the same settings after the same batches. */
void sim_take_tuning(struct sim *s, uint32_t rank, const struct tuning *t)
{
    struct sim_rank *r = &s->ranks[rank];
    const struct sim_tuning mine = {t->fusion_bytes, r->n_batches[0]};
    const struct sim_tuning *all = &s->tunings[r->n_tuned];

    if (r->n_tuned == s->n_tunings)
        s->tunings[s->n_tunings++] = mine;
    if (all->fusion_bytes != mine.fusion_bytes || all->n_batches != mine.n_batches)
        sim_wrong(s,
                  "rank %u fuses %llu bytes after %zu batches, others %llu after %zu",
                  rank, (unsigned long long)mine.fusion_bytes, mine.n_batches,
                  (unsigned long long)all->fusion_bytes, all->n_batches);
    r->n_tuned++;
    r->fusion_bytes = t->fusion_bytes;
}

static uint32_t handle_of(struct sim *s, uint32_t rank, uint32_t id)
{
    for (uint32_t h = 0; h < SIM_SETS + s->n_pairs; h++)
        if (s->sets[h].has_id && s->sets[h].id == id && s->sets[h].in >> rank & 1)
            return h;
    sim_wrong(s, "rank %u is to run in process set %u, which it has not", rank, id);
    return 0;
}

/* The rank enters its next batch of this set. name, inst: the first tensor's. */
static void check_enter_batch(struct sim *s,
                              uint32_t rank,
                              const struct member_act *act,
                              uint32_t h,
                              const char *name,
                              uint32_t inst)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_batches *list = &s->batches[h];
    struct sim_batch *b;

    r->act = *act;
    r->is_running = true;
    r->run_set = h;
    r->run_hash = sim_hash_act(act);
    batches_grow(list);
    if (r->n_batches[h] == list->n)
        list->v[list->n++] = (struct sim_batch){
            .hash = r->run_hash, .members = s->sets[h].mask, .first_inst = inst};
    b = &list->v[r->n_batches[h]++];
    sim_trace(s, "%llu rank %u runs %s, %zu tensors, batch %zu of set %u\n",
              (unsigned long long)s->now, rank, name, act->n_items, r->n_batches[h], h);
    if (b->hash != r->run_hash)
        sim_wrong(
            s, "rank %u runs %s (%zu tensors) as batch %zu of set %u, others another",
            rank, name, act->n_items, r->n_batches[h], h);
    if (inst != SIM_INSTS && b->first_inst != SIM_INSTS && b->first_inst != inst)
        sim_wrong(s, "rank %u runs another %s than other ranks", rank, name);
    b->entered |= 1u << rank;
}

void sim_begin_run(struct sim *s, uint32_t rank, const struct member_act *act)
{
    uint32_t h = handle_of(s, rank, act->items[0].req->process_set);
    const struct sim_op *op = (const struct sim_op *)(const void *)act->items[0].op;

    for (size_t i = 0; i < act->n_items; i++)
        check_item(s, rank, act, i);
    check_fusion(s, rank, act);
    if (h != 0 && member_is_in_plan(s->ranks[rank].m))
        sim_wrong(s, "rank %u runs %s of set %u in a plan", rank,
                  act->items[0].req->name, h);
    if (!(s->sets[h].mask >> rank & 1))
        sim_wrong(s, "rank %u runs %s of set %u, which it is not in", rank,
                  act->items[0].req->name, h);
    check_enter_batch(s, rank, act, h, act->items[0].req->name,
                      op ? op->inst : SIM_INSTS);
}

/* The world meets for a pair. */
void sim_begin_pair(struct sim *s, uint32_t rank, const struct member_act *act)
{
    uint32_t h = SIM_SETS;

    while (h < SIM_SETS + s->n_pairs && s->sets[h].id != act->set_id)
        h++;
    if (h == SIM_SETS + s->n_pairs || s->sets[h].in >> rank & 1)
        sim_wrong(s, "rank %u is to meet for pair %x, which %s", rank, act->set_id,
                  h == SIM_SETS + s->n_pairs ? "nobody uses" : "has met");
    else
        s->sets[h].in |= 1u << rank;
    check_enter_batch(s, rank, act, 0, "a pair", SIM_INSTS);
}

/* The world meets for a set that others have added. */
void sim_begin_set(struct sim *s, uint32_t rank, const struct member_act *act)
{
    const struct tensor_request *q = act->items[0].req;

    if (act->n_items != 1 || act->items[0].op || !request_by_members(q)
        || request_set_has(q, rank))
        sim_wrong(s, "rank %u is to meet for %s, which is not others' new set", rank,
                  q->name);
    check_enter_batch(s, rank, act, 0, q->name, SIM_INSTS);
}

/* h: its handle. */
static void set_comes(struct sim *s, uint32_t rank, uint32_t h, uint32_t id)
{
    struct sim_set *set = &s->sets[h];

    if (set->has_id && set->id != id)
        sim_wrong(s, "rank %u has process set %u, others %u", rank, id, set->id);
    set->id = id;
    set->has_id = true;
    set->in |= 1u << rank;
    sim_error(s, member_set_added(s->ranks[rank].m, id, set->mask >> rank & 1));
}

static void set_goes(struct sim *s, uint32_t rank, const struct sim_spec *p)
{
    struct sim_set *set = &s->sets[p->makes];

    set->in &= ~(1u << rank);
    member_set_removed(s->ranks[rank].m, set->id);
}

/* The handle in the name of what adds it, see change_set(). */
static uint32_t set_named(const char *name)
{
    return (uint32_t)strtoul(name + strlen("add."), NULL, 10);
}

/* This rank leaves the batch if all have entered it. */
bool sim_end_run(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];
    const struct sim_batch *b = &s->batches[r->run_set].v[r->n_batches[r->run_set] - 1];
    bool is_pair = r->act.kind == MEMBER_PAIR;
    const struct sim_op *op =
        is_pair ? NULL : (const struct sim_op *)(const void *)r->act.items[0].op;

    if (b->entered != b->members
        && (is_pair || r->act.items[0].req->coll != COLL_SET_REMOVE))
        return false;
    if (sim_hash_act(&r->act) != r->run_hash)
        sim_wrong(s, "the act of rank %u changed while it ran", rank);
    if (op && op->req.coll == COLL_SET_ADD)
        set_comes(s, rank, s->insts[op->inst].spec->makes, r->act.set_id);
    if (r->act.kind == MEMBER_SET)
        set_comes(s, rank, set_named(r->act.items[0].req->name), r->act.set_id);
    if (op && op->req.coll == COLL_SET_REMOVE)
        set_goes(s, rank, s->insts[op->inst].spec);
    for (size_t i = 0; i < r->act.n_items; i++)
        if (r->act.items[i].op)
            sim_end_op(s, rank, (struct sim_op *)(void *)r->act.items[i].op);
    r->is_running = false;
    return true;
}

void sim_take_failure(struct sim *s, uint32_t rank, const struct member_act *act)
{
    struct sim_op *op = (struct sim_op *)(void *)act->items[0].op;
    struct sim_inst *inst = &s->insts[op->inst];
    char who[24];

    sim_trace(s, "%llu rank %u fails %s: %s\n", (unsigned long long)s->now, rank,
              op->req.name, act->text);
    if (inst->spec->end == END_RUN)
        sim_wrong(s, "%s fails: %s", op->req.name, act->text);
    if (inst->failed == 0)
        (void)snprintf(inst->text, sizeof(inst->text), "%s", act->text);
    if (strcmp(inst->text, act->text) != 0)
        sim_wrong(s, "ranks got different messages: %s; %s", inst->text, act->text);
    (void)snprintf(who, sizeof(who), "rank %u ", inst->spec->odd_rank);
    if (inst->spec->odd_rank != SIM_NOBODY
        && (!strstr(act->text, who) || !strstr(act->text, op->req.name)))
        sim_wrong(s, "not named: %sand %s: %s", who, op->req.name, act->text);
    inst->failed |= 1u << rank;
    sim_end_op(s, rank, op);
}

void sim_take_join(struct sim *s, uint32_t rank, const struct member_act *act)
{
    struct sim_op *op = (struct sim_op *)(void *)act->items[0].op;
    struct sim_inst *inst = &s->insts[op->inst];

    if (inst->run == 0)
        inst->last_joined = s->last_join;
    if (act->result_rank != inst->last_joined)
        sim_wrong(s, "rank %u got rank %u as the last joined, it was %llu", rank,
                  act->result_rank, (unsigned long long)inst->last_joined);
    if (op->req.coll != COLL_JOIN || inst->submitted != inst->wanted)
        sim_wrong(s, "rank %u: %s ended as a join of all", rank, op->req.name);
    inst->run |= 1u << rank;
    s->ranks[rank].is_joined = false;
    sim_end_op(s, rank, op);
}

/* --- agreements --- */

void sim_begin_agreement(struct sim *s, uint32_t rank, const struct member_act *act)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_agreement *a;

    if (r->n_agreed == s->n_agreements) {
        if (s->n_agreements == s->agreements_cap) {
            s->agreements_cap = s->agreements_cap ? s->agreements_cap * 2 : 64;
            s->agreements = realloc(s->agreements, s->agreements_cap * sizeof(*a));
            assert_non_null(s->agreements);
        }
        a = &s->agreements[s->n_agreements++];
        *a = (struct sim_agreement){.n_words = act->n_words,
                                    .n_batches = r->n_batches[0]};
        memset(a->words, 0xff, sizeof(a->words));
    }
    a = &s->agreements[r->n_agreed++];
    if (a->n_words != act->n_words || act->n_words > SIM_WORDS)
        sim_wrong(s, "rank %u agrees on %u words, others on %u", rank, act->n_words,
                  a->n_words);
    if (a->n_batches != r->n_batches[0])
        sim_wrong(s, "rank %u agrees after %zu batches, others after %zu", rank,
                  r->n_batches[0], a->n_batches);
    for (uint32_t i = 0; i < act->n_words && i < SIM_WORDS; i++)
        a->words[i] &= act->words[i];
    a->begun |= 1u << rank;
    sim_trace(s, "%llu rank %u offers %llx\n", (unsigned long long)s->now, rank,
              (unsigned long long)act->words[0]);
}

bool sim_end_agreement(struct sim *s, uint32_t rank)
{
    struct sim_rank *r = &s->ranks[rank];
    struct sim_agreement *a = &s->agreements[r->n_agreed - 1];
    bool is_empty;

    if (sim_mask_size(a->begun) != s->cfg.n_ranks)
        return false;
    sim_trace(s, "%llu rank %u agreed %llx\n", (unsigned long long)s->now, rank,
              (unsigned long long)a->words[0]);
    sim_error(s, member_agreed(r->m, a->words, &is_empty));
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* State machine of an elastic job:
 *
 *            .--<-- member lost, or gone to the next world --.
 *            v                                               |
 *         WAITING -- all members have reported, and ---> RUNNING
 *            |        enough processes are ready             |
 *            |                                               | a member has ended well
 *            '--> ENDED <--- all have ended --- FINISHING <--'
 *
 * A world is never changed: it ends, and the next one has the next generation. It forms as
 * soon as there are min_ranks processes; those that come later wait until the members
 * leave at a commit (NOTIFY). So a loss costs no wait for the replacement, unless the job
 * has a fixed size (min_ranks is its size). NOTIFY waits until all processes that were
 * started are ready, up to 10 s after the first: a host that joins costs one new world.
 *
 * Failures. A process is replaced in its slot. If it fails there by the same cause again
 * within an hour, while others work, the slot is excluded for a time that doubles each time
 * and ends: one bad GPU costs its slot and not its host. If the same cause breaks three
 * worlds, or ends three processes of a slot, and nothing was committed in between, the job
 * ends: to repeat it would not help. Nor after three losses of all processes, each within
 * five minutes.
 *
 * Generations. A leader has a term, later than that of every leader before it, and numbers
 * its worlds: the first ones are 1, 2, 3. So no generation is given twice, also if a leader
 * was lost with worlds of which no worker knows.
 *
 * A leader that takes over has no memory. Its workers report their processes, from which
 * generation and members follow; a world of which some member is not reported is broken. */
#include "runtime/launch/core/elastic.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/elastic_finish.h"
#include "runtime/launch/core/elastic_handover.h"
#include "runtime/launch/core/elastic_loops.h"
#include "runtime/launch/core/elastic_places.h"
#include "runtime/launch/core/elastic_ranks.h"
#include "runtime/launch/core/elastic_slots.h"
#include "runtime/wire/member_message.h"

#define JOIN_MAX_NS   10000000000ull
#define SLOT_FAILURES 2
#define SLOTS_MAX     65536u
#define RESETS_MAX    ((1u << ELASTIC_TERM_BITS) - 2) /* a term has no more worlds */

/* --- begin and end ---------------------------------------------------------------- */

static int elastic_check_bounds(const struct elastic_config *c, struct err *err)
{
    if (c->min_ranks < 1 || c->min_ranks > c->start_ranks
        || c->start_ranks > c->max_ranks)
        return err_set(err, -EINVAL,
                       "%u, %u and %u ranks at least, at the start and at most: not in "
                       "this order, or less than 1",
                       c->min_ranks, c->start_ranks, c->max_ranks);
    return 0;
}

int elastic_init(struct elastic *e,
                 const struct elastic_config *c,
                 uint64_t now_ns,
                 struct err *err)
{
    int rc = elastic_check_bounds(c, err);

    memset(e, 0, sizeof(*e));
    if (rc < 0)
        return rc;
    if (c->n_workers < 1 || c->slots < 1 || c->slots > SLOTS_MAX
        || c->n_workers > SLOTS_MAX / c->slots)
        return err_set(err, -EINVAL, "%u workers of %u slots are not 1 to %u slots",
                       c->n_workers, c->slots, SLOTS_MAX);
    e->config = *c;
    if (c->reset_limit > RESETS_MAX)
        e->config.reset_limit = RESETS_MAX;
    e->n_slots = c->n_workers * c->slots;
    e->slots = mem_calloc(e->n_slots, sizeof(*e->slots));
    e->members = mem_calloc(e->n_slots, sizeof(*e->members));
    e->candidates = mem_calloc(e->n_slots, sizeof(*e->candidates));
    e->wait_ns = now_ns + c->wait_ns;
    if (e->slots && e->members && e->candidates)
        return 0;
    elastic_release(e);
    return err_set(err, -ENOMEM, "out of memory for %u workers", c->n_workers);
}

void elastic_release(struct elastic *e)
{
    mem_free(e->slots);
    mem_free(e->members);
    mem_free(e->candidates);
    memset(e, 0, sizeof(*e));
}

int elastic_resize(struct elastic *e,
                   uint32_t min_ranks,
                   uint32_t max_ranks,
                   struct err *err)
{
    struct elastic_config c = e->config;
    int rc;

    c.min_ranks = c.start_ranks = min_ranks;
    c.max_ranks = max_ranks;
    rc = elastic_check_bounds(&c, err);
    if (rc == 0)
        e->config = c;
    return rc;
}

void elastic_set_max(struct elastic *e, uint32_t max_ranks)
{
    const uint32_t need = elastic_need(e);

    e->config.max_ranks = max_ranks > need ? max_ranks : need;
}

/* --- worlds ----------------------------------------------------------------------- */

static void elastic_break(struct elastic *e, uint64_t now_ns)
{
    if (e->state != ELASTIC_RUNNING)
        return;
    e->state = ELASTIC_WAITING;
    e->is_break_due = true;
    e->wait_ns = now_ns + e->config.wait_ns;
    e->leave_ns = now_ns + e->config.leave_ns;
}

/* A member waits for the next world. When all leave at a commit nothing is broken: the
 * others may still complete that commit. */
static void elastic_leave(struct elastic *e, uint64_t now_ns)
{
    const bool is_running = e->state == ELASTIC_RUNNING;

    elastic_break(e, now_ns);
    if (is_running && e->has_notified)
        e->is_break_due = false;
}

/* Ready processes. Returns how many. */
static uint32_t elastic_list_ready(struct elastic *e)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct elastic_slot *s = &e->slots[i];

        if (s->state != SLOT_READY || s->is_stopping)
            continue;
        e->candidates[n++] = (struct elastic_candidate){
            .since = s->since,
            .rank = s->generation == e->generation ? s->rank : RANK_NONE,
            .slot = i};
    }
    return n;
}

static void elastic_form(struct elastic *e, uint32_t n_ready)
{
    e->n_members =
        elastic_ranks(e->candidates, n_ready, e->config.max_ranks, e->members);
    e->n_resets += e->generation > 0;
    e->generation = (e->term << ELASTIC_TERM_BITS) + ++e->n_formed;
    for (uint32_t r = 0; r < e->n_members; r++) {
        struct elastic_slot *s = &e->slots[e->members[r]];

        s->state = SLOT_MEMBER;
        s->rank = r;
        s->generation = e->generation;
        if (s->since == 0)
            s->since = e->generation;
    }
    e->state = ELASTIC_RUNNING;
    e->world_cause = 0;
    e->is_break_due = e->has_notified = e->has_counted = false;
    e->join_ns = 0;
    elastic_restart_handover(e);
}

uint32_t elastic_count_new(const struct elastic *e)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < e->n_members; r++)
        n += e->slots[e->members[r]].since == e->generation;
    return n;
}

/* --- workers ---------------------------------------------------------------------- */

void elastic_lose_worker(struct elastic *e, uint32_t worker, uint64_t now_ns)
{
    struct elastic_slot *v = elastic_worker_slots(e, worker);

    for (uint32_t i = 0; v && i < e->config.slots; i++) {
        if (v[i].state == SLOT_DONE)
            continue;
        if (v[i].state == SLOT_MEMBER)
            elastic_break(e, now_ns);
        /* its successor may be on another node */
        v[i] = (struct elastic_slot){.state = SLOT_ABSENT,
                                     .incarnation = v[i].incarnation};
    }
}

/* --- processes -------------------------------------------------------------------- */

void elastic_take_ready(struct elastic *e,
                        uint32_t slot,
                        uint32_t incarnation,
                        uint32_t generation,
                        uint64_t now_ns)
{
    struct elastic_slot *s = elastic_find(e, slot, incarnation);

    if (!s || (s->state == SLOT_MEMBER && generation < s->generation))
        return; /* sent before its present world */
    if (s->state == SLOT_MEMBER)
        elastic_leave(e, now_ns);
    s->state = SLOT_READY;
}

void elastic_take_ending(struct elastic *e,
                         uint32_t slot,
                         uint32_t incarnation,
                         uint32_t generation,
                         uint64_t now_ns)
{
    struct elastic_slot *s = elastic_find(e, slot, incarnation);

    if (!s || s->state != SLOT_MEMBER || s->generation != generation || s->is_stopping)
        return;
    elastic_break(e, now_ns);
    s->state = SLOT_ENDING;
    s->until_ns = now_ns + e->config.leave_ns;
}

void elastic_take_failure(struct elastic *e,
                          uint32_t slot,
                          uint32_t incarnation,
                          uint64_t cause,
                          uint64_t now_ns)
{
    struct elastic_slot *s = elastic_find(e, slot, incarnation);
    bool is_loop, is_past;

    if (!s)
        return;
    is_past = s->state == SLOT_ENDING && s->generation != e->generation;
    if (s->is_stopping)
        cause = 0;
    if (s->state == SLOT_MEMBER)
        elastic_break(e, now_ns);
    slot_empty(s);
    if (cause == 0 || e->state == ELASTIC_ENDED)
        return;
    if (e->state == ELASTIC_FINISHING) {
        if (!is_past)
            (void)snprintf(e->why, sizeof(e->why),
                           "a rank failed after another one had ended with success");
        return;
    }
    is_loop = elastic_count_cause(e, s, cause, now_ns);
    if (is_loop)
        (void)snprintf(e->why, sizeof(e->why),
                       "the same failure %d times, without a commit in between",
                       ELASTIC_LOOPS_MAX);
    else if (s->state == SLOT_IDLE && s->n_failures >= SLOT_FAILURES
             && elastic_has_other(e, cause))
        slot_exclude(s, &e->config, now_ns);
}

void elastic_take_done(struct elastic *e,
                       uint32_t slot,
                       uint32_t incarnation,
                       uint64_t now_ns)
{
    struct elastic_slot *s = elastic_find(e, slot, incarnation);

    if (!s)
        return;
    s->state = SLOT_DONE;
    if (e->state == ELASTIC_FINISHING || e->state == ELASTIC_ENDED)
        return;
    e->state = ELASTIC_FINISHING;
    e->wait_ns = now_ns + e->config.wait_ns;
}

void elastic_take_commit(struct elastic *e, uint32_t generation)
{
    if (generation != e->generation)
        return;
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].generation == generation)
            e->slots[i].has_committed = true;
    elastic_forget_loops(e);
}

/* --- a new leader (elastic_take_over.c) -------------------------------------------- */

/* The workers have had their time. */
static void elastic_end_adoption(struct elastic *e, uint64_t now_ns)
{
    uint32_t n = 0;
    bool is_whole = true;

    e->is_adopting = false;
    if (e->generation == 0 && e->n_formed > 0) /* of this leader, and none is left */
        e->generation = (e->term << ELASTIC_TERM_BITS) + e->n_formed;
    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct elastic_slot *s = &e->slots[i];

        if (s->state != SLOT_MEMBER)
            continue;
        n++;
        is_whole = is_whole && s->generation == e->generation && s->rank < e->n_slots;
        if (is_whole)
            e->members[s->rank] = i;
    }
    if (elastic_count(e, SLOT_DONE) > 0) {
        e->state = ELASTIC_FINISHING;
        e->wait_ns = now_ns + e->config.wait_ns;
        return;
    }
    if (n == 0)
        return; /* WAITING, as at the start */
    e->state = ELASTIC_RUNNING;
    if (!is_whole || n != e->n_members)
        elastic_break(e, now_ns);
}

/* --- actions ---------------------------------------------------------------------- */

static bool elastic_act(struct elastic *e,
                        enum elastic_act act,
                        uint32_t slot,
                        struct elastic_action *ret)
{
    *ret = (struct elastic_action){.act = act, .slot = slot};
    if (act == ELASTIC_STOP)
        e->slots[slot].is_stopping = true;
    if (act == ELASTIC_START) {
        e->slots[slot].expected = elastic_free_rank(e);
        e->slots[slot].state = SLOT_STARTING;
        e->slots[slot].incarnation++;
    }
    if (act == ELASTIC_STOP || act == ELASTIC_START)
        ret->incarnation = e->slots[slot].incarnation;
    return true;
}

static bool elastic_end(struct elastic *e, bool is_well, struct elastic_action *ret)
{
    e->state = ELASTIC_ENDED;
    e->has_ended_well = is_well;
    return elastic_act(e, ELASTIC_END, 0, ret);
}

/* A process that has no use any more. */
static bool elastic_must_stop(const struct elastic *e,
                              uint32_t slot,
                              uint32_t n_live,
                              uint64_t now_ns)
{
    const struct elastic_slot *s = &e->slots[slot];

    if (!slot_is_live(s) || s->is_stopping)
        return false;
    if (s->state == SLOT_ENDING)
        return now_ns >= s->until_ns;
    if (e->state == ELASTIC_FINISHING && e->generation == 0)
        return s->state == SLOT_READY; /* the rest may be programs without worlds */
    if (e->state == ELASTIC_FINISHING)
        return s->state != SLOT_MEMBER || now_ns >= e->wait_ns;
    if (s->state == SLOT_MEMBER)
        return e->state == ELASTIC_WAITING && now_ns >= e->leave_ns;
    if (s->is_drained)
        return !elastic_keeps(e, s);
    if (s->since > 0) /* it misses what the world does that left it out */
        return s->state == SLOT_READY && e->state == ELASTIC_RUNNING;
    return n_live > (uint64_t)e->config.max_ranks + e->config.n_spares;
}

static bool
elastic_stop_one(struct elastic *e, uint64_t now_ns, struct elastic_action *ret)
{
    const uint32_t n_live = elastic_count_live(e, SLOT_MEMBER);

    for (uint32_t i = e->n_slots; i-- > 0;)
        if (elastic_must_stop(e, i, n_live, now_ns))
            return elastic_act(e, ELASTIC_STOP, i, ret);
    return false;
}

static bool elastic_start_one(struct elastic *e, struct elastic_action *ret)
{
    if (elastic_count_live(e, SLOT_ENDING)
        >= (uint64_t)e->config.max_ranks + e->config.n_spares)
        return false;
    for (uint32_t i = 0; i < e->n_slots; i++)
        if (e->slots[i].state == SLOT_IDLE)
            return elastic_act(e, ELASTIC_START, i, ret);
    return false;
}

uint32_t elastic_need(const struct elastic *e)
{
    return e->generation == 0 ? e->config.start_ranks : e->config.min_ranks;
}

/* WAITING */
static bool elastic_wait(struct elastic *e, uint64_t now_ns, struct elastic_action *ret)
{
    CLEANUP(strbuf_release) struct strbuf why = {0};
    uint32_t n_ready;

    if (e->is_break_due && elastic_has_member(e)) {
        e->is_break_due = false;
        return elastic_act(e, ELASTIC_BREAK, 0, ret);
    }
    n_ready = elastic_list_ready(e);
    if (!elastic_has_member(e) && n_ready >= elastic_need(e)) {
        if (e->generation > 0 && e->n_resets >= e->config.reset_limit) {
            (void)snprintf(e->why, sizeof(e->why),
                           "the world was reset %u times, the limit is %u", e->n_resets,
                           e->config.reset_limit);
            return elastic_end(e, false, ret);
        }
        if (elastic_count_total_loss(e, n_ready, now_ns)) {
            (void)snprintf(e->why, sizeof(e->why),
                           "the same failure has ended all processes %d times",
                           ELASTIC_LOOPS_MAX);
            return elastic_end(e, false, ret);
        }
        elastic_form(e, n_ready);
        e->formed_ns = now_ns;
        return elastic_act(e, ELASTIC_FORM, 0, ret);
    }
    if (now_ns < e->wait_ns)
        return false;
    strbuf_init(&why, sizeof(e->why));
    elastic_explain(e, &why);
    (void)snprintf(e->why, sizeof(e->why), "%s", strbuf_str(&why));
    return elastic_end(e, false, ret);
}

/* Why the current world is to end at a commit: bits of enum member_change; 0: it stays. */
static uint32_t elastic_change(const struct elastic *e)
{
    uint32_t n_stay = 0, change = 0;

    for (uint32_t i = 0; i < e->n_slots; i++)
        n_stay += e->slots[i].state == SLOT_MEMBER && !e->slots[i].is_drained;
    if (n_stay < e->n_members || n_stay > e->config.max_ranks)
        change |= MEMBER_CHANGE_REMOVED;
    if (n_stay < e->config.max_ranks && elastic_count(e, SLOT_READY) > 0)
        change |= MEMBER_CHANGE_ADDED;
    return change;
}

/* Those that are ready wait, because others that can join too have been started. */
static bool elastic_wait_to_join(struct elastic *e, uint32_t change, uint64_t now_ns)
{
    const uint32_t n = elastic_count(e, SLOT_MEMBER) + elastic_count(e, SLOT_READY);

    if (change != MEMBER_CHANGE_ADDED || n >= e->config.max_ranks
        || elastic_count(e, SLOT_STARTING) == 0) {
        e->join_ns = 0;
        return false;
    }
    if (e->join_ns == 0)
        e->join_ns = now_ns + JOIN_MAX_NS;
    return now_ns < e->join_ns;
}

/* FINISHING */
static bool
elastic_end_all(struct elastic *e, uint64_t now_ns, struct elastic_action *ret)
{
    uint32_t slot;

    switch (elastic_finish(e, now_ns, &slot)) {
    case FINISH_WAIT:
        return false;
    case FINISH_START:
        return elastic_act(e, ELASTIC_START, slot, ret);
    case FINISH_END:
        break;
    }
    return elastic_end(e, e->why[0] == '\0', ret);
}

bool elastic_next(struct elastic *e, uint64_t now_ns, struct elastic_action *ret)
{
    uint32_t change;

    if (e->state == ELASTIC_ENDED)
        return false;
    if (e->is_adopting && now_ns < e->leave_ns)
        return false;
    if (e->is_adopting)
        elastic_end_adoption(e, now_ns);
    if (e->state != ELASTIC_FINISHING && e->why[0])
        return elastic_end(e, false, ret);
    elastic_expire(e, now_ns);
    elastic_serve_handover(e, now_ns);
    if (elastic_stop_one(e, now_ns, ret))
        return true;
    if (e->state == ELASTIC_FINISHING)
        return elastic_end_all(e, now_ns, ret);
    if (elastic_start_one(e, ret))
        return true;
    if (e->state == ELASTIC_WAITING)
        return elastic_wait(e, now_ns, ret);
    if (e->has_notified || elastic_waits_for_successor(e))
        return false;
    change = elastic_change(e);
    if (elastic_wait_to_join(e, change, now_ns) || change == 0)
        return false;
    e->has_notified = true;
    (void)elastic_act(e, ELASTIC_NOTIFY, 0, ret);
    ret->change = change;
    return true;
}

uint64_t elastic_next_ns(const struct elastic *e)
{
    uint64_t next = UINT64_MAX;

    if (e->state == ELASTIC_ENDED)
        return next;
    if (e->state != ELASTIC_RUNNING)
        next = e->wait_ns;
    if ((e->is_adopting || (e->state == ELASTIC_WAITING && elastic_has_member(e)))
        && e->leave_ns < next)
        next = e->leave_ns;
    if (e->state == ELASTIC_RUNNING && !e->has_notified && e->join_ns > 0
        && e->join_ns < next)
        next = e->join_ns;
    if (e->handover_ns > 0 && e->handover_ns < next)
        next = e->handover_ns;
    for (uint32_t i = 0; i < e->n_slots; i++)
        if ((e->slots[i].state == SLOT_EXCLUDED
             || (e->slots[i].state == SLOT_ENDING && !e->slots[i].is_stopping))
            && e->slots[i].until_ns < next)
            next = e->slots[i].until_ns;
    return next;
}

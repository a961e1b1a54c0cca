/* SPDX-License-Identifier: Apache-2.0 */
/*   READY, COMMIT, exits, lost workers -> core/elastic.c -> actions
 *     START, STOP  -> the owner's spawn and kill
 *     FORM         -> a rendezvous server of the new generation; FORM to each member
 *     BREAK        -> those that still form the world learn it in the rendezvous; BREAK
 *     NOTIFY       -> NOTIFY to each member
 *
 * A world has its own server: its generation is part of every handshake, so that a
 * process of an earlier world cannot get in. Called by elastic_job.c. */
#include "runtime/launch/elastic_lead.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/elastic_cause.h"
#include "runtime/launch/core/elastic_places.h"
#include "runtime/launch/core/elastic_slots.h"

int elastic_lead_open(struct elastic_lead *l,
                      const struct elastic_lead_config *c,
                      struct err *err)
{
    int rc;

    memset(l, 0, sizeof(*l));
    l->c = *c;
    rc = elastic_init(&l->e, &c->policy, clock_now_ns(), err);
    if (rc < 0)
        return rc;
    l->places = mem_calloc(l->e.n_slots, sizeof(*l->places));
    l->cause = mem_zalloc(sizeof(*l->cause));
    return l->places && l->cause ? 0 : err_set(err, -ENOMEM, "out of memory");
}

void elastic_lead_close(struct elastic_lead *l)
{
    rdv_server_stop(l->server);
    elastic_release(&l->e);
    mem_free(l->places);
    mem_free(l->cause);
    memset(l, 0, sizeof(*l));
}

bool elastic_lead_has_ended(const struct elastic_lead *l)
{
    return l->e.state == ELASTIC_ENDED || l->failure.code != 0;
}

static uint32_t lead_worker_of(const struct elastic_lead *l, uint32_t slot)
{
    return slot / l->c.policy.slots;
}

static const char *lead_name_of(const struct elastic_lead *l, uint32_t slot)
{
    return l->c.name_of(l->c.arg, lead_worker_of(l, slot));
}

/* --- events ----------------------------------------------------------------------- */

/* The world cannot form or continue: those that wait in its rendezvous learn why. */
static void lead_fail_server(struct elastic_lead *l, const char *why)
{
    if (l->server)
        rdv_server_fail(l->server, why);
    if (l->broken_ns == 0)
        l->broken_ns = clock_now_ns();
}

static void lead_keep_cause(struct elastic_lead *l, const struct report *r)
{
    *l->cause = *r;
    l->has_cause = true;
}

/* The failure that breaks a world; its report follows at the exit of the process. */
static void lead_take_ending(struct elastic_lead *l,
                             uint32_t slot,
                             uint32_t incarnation,
                             const struct member_message *m)
{
    const struct elastic_slot *s = slot < l->e.n_slots ? &l->e.slots[slot] : NULL;
    AUTOFREE struct report *r = mem_alloc(sizeof(*r));

    if (r && s && s->state == SLOT_MEMBER && s->incarnation == incarnation
        && l->e.state == ELASTIC_RUNNING && l->e.generation == m->generation) {
        report_init(r, lead_name_of(l, slot), 125, clock_wall_us());
        (void)snprintf(r->f.why, sizeof(r->f.why), "rank %u on %.60s %.120s", s->rank,
                       lead_name_of(l, slot), m->why);
        lead_fail_server(l, r->f.why);
        lead_keep_cause(l, r);
    }
    elastic_take_ending(&l->e, slot, incarnation, m->generation, clock_now_ns());
}

void elastic_lead_take_message(struct elastic_lead *l,
                               uint32_t slot,
                               uint32_t incarnation,
                               const uint8_t *p,
                               size_t n)
{
    struct member_message m;
    struct err err = ERR_INIT;

    if (member_message_read(p, n, &m, &err) < 0) {
        log_warn("a message of a process is ignored", "slot=%u cause=\"%s\"", slot,
                 err.text);
        return;
    }
    if (m.type == MEMBER_COMMIT)
        elastic_take_commit(&l->e, m.generation);
    if (m.type == MEMBER_READY)
        elastic_take_ready(&l->e, slot, incarnation, m.generation, clock_now_ns());
    if (m.type == MEMBER_ENDING)
        lead_take_ending(l, slot, incarnation, &m);
}

void elastic_lead_take_exit(struct elastic_lead *l,
                            uint32_t slot,
                            uint32_t incarnation,
                            struct report *r)
{
    const struct elastic_slot *s = slot < l->e.n_slots ? &l->e.slots[slot] : NULL;
    const uint64_t now_ns = clock_now_ns();
    char sentence[480];
    uint64_t cause;

    if (!s || s->incarnation != incarnation)
        return;
    if (r->f.exit_code == 0 && r->f.signal == 0) {
        log_info("a process has ended", "slot=%u rank=%u code=0", slot, s->rank);
        elastic_take_done(&l->e, slot, incarnation, clock_now_ns());
        return;
    }
    r->f.rank = (int32_t)(s->generation ? s->rank : s->expected);
    r->first_rank = (uint32_t)r->f.rank;
    r->n_ranks = 1;
    cause = elastic_cause(r);
    report_sentence(r, sentence, sizeof(sentence));
    if (!s->is_stopping && cause)
        lead_keep_cause(l, r);
    if (s->is_stopping)
        log_info("a process was stopped", "slot=%u cause=\"%s\"", slot, sentence);
    else
        log_warn("a process has failed", "slot=%u world=%u cause=\"%s\"", slot,
                 s->state == SLOT_MEMBER || s->state == SLOT_ENDING ? s->generation : 0,
                 sentence);
    if (s->state == SLOT_MEMBER)
        lead_fail_server(l, sentence);
    elastic_take_failure(&l->e, slot, incarnation, cause, now_ns);
    if (s->state != SLOT_EXCLUDED)
        return;
    log_warn("a slot is excluded after the same failure again",
             "slot=%u host=%s for_s=%llu", slot, lead_name_of(l, slot),
             (unsigned long long)((s->until_ns - now_ns) / NS_PER_S));
    if (!elastic_is_useless(&l->e, lead_worker_of(l, slot)))
        return;
    log_warn("no process works on a host", "host=%s", lead_name_of(l, slot));
    l->c.retire(l->c.arg, lead_worker_of(l, slot), r);
}

void elastic_lead_lose_worker(struct elastic_lead *l, uint32_t worker, const char *why)
{
    const uint32_t slots = l->c.policy.slots;
    bool has_member = false;

    for (uint32_t i = worker * slots; i < (worker + 1) * slots && i < l->e.n_slots; i++)
        has_member = has_member || l->e.slots[i].state == SLOT_MEMBER;
    if (has_member) {
        AUTOFREE struct report *r = mem_zalloc(sizeof(*r));

        if (r) {
            report_init(r, l->c.name_of(l->c.arg, worker), 125, clock_wall_us());
            (void)snprintf(r->f.why, sizeof(r->f.why), "host %.60s was lost: %.150s",
                           r->f.host, why);
            lead_keep_cause(l, r);
            lead_fail_server(l, r->f.why);
        }
    }
    elastic_lose_worker(&l->e, worker, clock_now_ns());
}

void elastic_lead_take_over_again(struct elastic_lead *l)
{
    elastic_take_over_again(&l->e);
    l->broken_ns = 0;
}

void elastic_lead_adopt(struct elastic_lead *l,
                        uint32_t slot,
                        const struct elastic_process *p)
{
    if (slot >= l->e.n_slots)
        return;
    if (!l->e.is_adopting) { /* its worker was not waited for any more */
        log_info("a process is too late and is stopped", "slot=%u host=%s", slot,
                 lead_name_of(l, slot));
        l->c.kill(l->c.arg, slot, p->incarnation);
        return;
    }
    log_info("a process is adopted", "slot=%u host=%s world=%u rank=%u", slot,
             lead_name_of(l, slot), p->generation, p->rank);
    elastic_adopt(&l->e, slot, p);
    l->c.on_rank(l->c.arg, slot, p->generation > 0 ? p->rank : slot);
}

/* --- actions ---------------------------------------------------------------------- */

static void
lead_send_to(struct elastic_lead *l, uint32_t rank, struct member_message *m)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    const uint32_t slot = l->e.members[rank];

    strbuf_init(&b, MEMBER_MESSAGE_MAX_BYTES);
    member_message_write(m, &b);
    if (strbuf_status(&b) == 0)
        l->c.send(l->c.arg, slot, l->e.slots[slot].incarnation, &b);
}

static void lead_send_to_all(struct elastic_lead *l, struct member_message *m)
{
    m->generation = l->e.generation;
    for (uint32_t r = 0; r < l->e.n_members; r++)
        if (l->e.slots[l->e.members[r]].state == SLOT_MEMBER)
            lead_send_to(l, r, m);
}

static int lead_start_server(struct elastic_lead *l, struct err *err)
{
    const struct auth_id id = {l->c.token, l->c.job_id, l->e.generation};
    int fd = -1, rc;

    rdv_server_stop(l->server); /* nobody waits there: all members have reported */
    l->server = NULL;
    rc = tcp_listen("::", 0, &fd, &l->port, err);
    if (rc < 0)
        return rc;
    rc = rdv_server_start(fd, &id, l->e.n_members, rdv_log_waiting, &l->server, err);
    if (rc < 0)
        fd_close(&fd);
    return rc;
}

static void lead_log_world(const struct elastic_lead *l)
{
    const uint64_t ms = l->broken_ns ? (clock_now_ns() - l->broken_ns) / NS_PER_MS : 0;

    if (l->e.n_resets > 0 && elastic_count_new(&l->e) == l->e.n_members)
        log_warn("no process of the last world is left, the job begins again from its "
                 "checkpoint",
                 "world=%u size=%u", l->e.generation, l->e.n_members);
    else if (l->e.n_resets == 0)
        log_info("the first world forms", "size=%u", l->e.n_members);
    else if (l->broken_ns)
        log_warn("the job continues in a new world",
                 "world=%u size=%u new=%u after_ms=%llu", l->e.generation,
                 l->e.n_members, elastic_count_new(&l->e), (unsigned long long)ms);
    else
        log_info("the job continues in a new world", "world=%u size=%u new=%u",
                 l->e.generation, l->e.n_members, elastic_count_new(&l->e));
}

static void lead_form(struct elastic_lead *l)
{
    struct member_message m = {.type = MEMBER_FORM, .generation = l->e.generation};

    if (lead_start_server(l, &l->failure) < 0
        || elastic_places(l->e.members, l->e.n_members, l->c.policy.slots, l->places,
                          &l->failure)
               < 0)
        return;
    lead_log_world(l);
    l->broken_ns = 0;
    m.n_new = elastic_count_new(&l->e);
    m.rdv_port = l->port;
    for (uint32_t r = 0; r < l->e.n_members; r++) {
        const uint32_t slot = l->e.members[r];

        m.place = l->places[r];
        m.place.host = 0;
        (void)snprintf(m.rdv_host, sizeof(m.rdv_host), "%s",
                       l->c.address_for(l->c.arg, lead_worker_of(l, slot)));
        l->c.on_rank(l->c.arg, slot, r);
        lead_send_to(l, r, &m);
    }
}

static void lead_break(struct elastic_lead *l)
{
    struct member_message m = {.type = MEMBER_BREAK};

    if (l->has_cause)
        report_sentence(l->cause, m.why, sizeof(m.why));
    else
        (void)snprintf(m.why, sizeof(m.why), "a member has left the world");
    lead_fail_server(l, m.why);
    lead_send_to_all(l, &m);
}

static void lead_carry_out(struct elastic_lead *l, const struct elastic_action *a)
{
    struct member_message notify = {.type = MEMBER_NOTIFY, .change = a->change};
    struct place place;

    switch (a->act) {
    case ELASTIC_START:
        log_info("a process is started", "slot=%u host=%s incarnation=%u", a->slot,
                 lead_name_of(l, a->slot), a->incarnation);
        elastic_place_new(&l->e, a->slot, &place);
        l->c.on_rank(l->c.arg, a->slot, place.rank);
        l->c.spawn(l->c.arg, a->slot, a->incarnation, &place);
        return;
    case ELASTIC_STOP:
        log_info("a process is stopped", "slot=%u host=%s", a->slot,
                 lead_name_of(l, a->slot));
        l->c.kill(l->c.arg, a->slot, a->incarnation);
        return;
    case ELASTIC_FORM:
        lead_form(l);
        return;
    case ELASTIC_BREAK:
        lead_break(l);
        return;
    case ELASTIC_NOTIFY:
        lead_send_to_all(l, &notify);
        return;
    case ELASTIC_END:
        return;
    }
}

static void lead_log_handover(struct elastic_lead *l)
{
    const bool is_handed_over = l->e.handover_ns > 0;

    if (is_handed_over && !l->is_handed_over)
        log_warn("all hosts that have the state of the job leave, one stays until "
                 "another one has it",
                 "for_s=%llu",
                 (unsigned long long)((l->e.handover_ns - clock_now_ns()) / NS_PER_S));
    if (l->e.has_handover_ended && l->is_handed_over)
        log_warn("no other host could take the state of the job", "world=%u",
                 l->e.generation);
    l->is_handed_over = is_handed_over;
}

uint64_t elastic_lead_step(struct elastic_lead *l)
{
    struct elastic_action a;

    while (!elastic_lead_has_ended(l) && elastic_next(&l->e, clock_now_ns(), &a))
        lead_carry_out(l, &a);
    lead_log_handover(l);
    return elastic_lead_has_ended(l) ? UINT64_MAX : elastic_next_ns(&l->e);
}

/* --- the end ---------------------------------------------------------------------- */

/* The failure of a process has its own text; the end of the job adds why it was the
 * last one. */
void elastic_lead_fill_end(const struct elastic_lead *l, struct report *ret)
{
    const char *why = l->failure.code ? l->failure.text : l->e.why;
    char own[sizeof(ret->f.why)];

    if (l->has_cause)
        *ret = *l->cause;
    else if (l->e.generation == 0 && !l->failure.code)
        report_init(ret, "", FAILURE_LATE, clock_wall_us());
    else
        report_init(ret, "", 125, clock_wall_us());
    (void)snprintf(own, sizeof(own), "%s", ret->f.why);
    (void)snprintf(ret->f.why, sizeof(ret->f.why), "%.110s%s%.110s", own,
                   *own ? "; " : "", why);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*   leader -- spawn, kill --> local_ranks.c -- fork, exec --> process
 *   leader <-- exit, with its report -- local_ranks.c <-- reap
 *   leader <-- messages --> member_door.c <-- socket --> process
 *
 * c.common is read in crew_open only. Called by remote_agent.c and remote_crew.c. */
#include "runtime/launch/crew.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/launch/live_host.h"

struct member_crew {
    struct crew_config c;
    struct contract *contracts;        /* [n] */
    struct contract *members;          /* [n] with the places of the present worlds */
    struct elastic_process *processes; /* [n] the present or last ones */
    bool *is_live;                     /* [n] it runs */
    uint32_t *next;                    /* [n] incarnation to start when it has ended */
    uint32_t generation;               /* of the latest world that is known here */
    struct local_ranks *ranks;
    struct member_door *door;
};

static void crew_pass_message(
    void *arg, uint32_t i, const struct member_message *m, const uint8_t *p, size_t n)
{
    struct member_crew *c = arg;

    if (m->type == MEMBER_READY) {
        c->processes[i].is_waiting = true;
        c->processes[i].is_member = false;
    }
    if (m->type == MEMBER_ENDING)
        c->processes[i].is_member = false;
    c->c.on_message(c->c.arg, c->c.first + i, c->processes[i].incarnation, p, n);
}

/* The place is the slot's number until crew_spawn gets one: output has it. */
static void crew_make_contracts(struct member_crew *c)
{
    for (uint32_t i = 0; i < c->c.n; i++) {
        struct contract *k = &c->contracts[i];

        *k = *c->c.common;
        k->place = (struct place){.rank = c->c.first + i, .host = c->c.host};
        c->members[i] = *k;
        c->members[i].place.rank = LIVE_NO_RANK;
    }
}

int crew_open(const struct crew_config *config,
              struct member_crew **ret,
              struct err *err)
{
    struct member_crew *c = mem_zalloc(sizeof(*c));
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->c = *config;
    c->contracts = mem_calloc(c->c.n, sizeof(*c->contracts));
    c->members = mem_calloc(c->c.n, sizeof(*c->members));
    c->processes = mem_calloc(c->c.n, sizeof(*c->processes));
    c->is_live = mem_calloc(c->c.n, sizeof(*c->is_live));
    c->next = mem_calloc(c->c.n, sizeof(*c->next));
    rc = c->contracts && c->members && c->processes && c->is_live && c->next
             ? member_door_open(c->c.n, crew_pass_message, c, &c->door, err)
             : err_set(err, -ENOMEM, "out of memory for %u processes", c->c.n);
    if (rc == 0) {
        crew_make_contracts(c);
        c->c.run->is_elastic = true;
        c->c.run->ranks = c->contracts;
        c->c.run->n = c->c.n;
        rc = local_ranks_new(c->c.run, c->c.signals, c->c.guard, &c->ranks, err);
    }
    if (rc < 0) {
        crew_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void crew_close(struct member_crew *c)
{
    if (!c)
        return;
    local_ranks_free(c->ranks);
    member_door_close(c->door);
    mem_free(c->contracts);
    mem_free(c->members);
    mem_free(c->processes);
    mem_free(c->is_live);
    mem_free(c->next);
    mem_free(c);
}

struct local_ranks *crew_ranks(struct member_crew *c)
{
    return c->ranks;
}

const struct contract *crew_members(const struct member_crew *c)
{
    return c->members;
}

static bool crew_has_slot(const struct member_crew *c, uint32_t slot)
{
    return slot >= c->c.first && slot - c->c.first < c->c.n;
}

static bool crew_has(const struct member_crew *c, uint32_t slot, uint32_t incarnation)
{
    return crew_has_slot(c, slot)
           && c->processes[slot - c->c.first].incarnation == incarnation;
}

static void crew_report_start_failure(struct member_crew *c,
                                      uint32_t slot,
                                      uint32_t incarnation,
                                      int code,
                                      const char *why)
{
    AUTOFREE struct report *r = mem_zalloc(sizeof(*r));

    if (!r)
        return;
    report_init(r, c->contracts[0].hostname, code, clock_wall_us());
    (void)snprintf(r->f.why, sizeof(r->f.why), "%.230s", why);
    c->c.on_exit(c->c.arg, slot, incarnation, r);
}

static void crew_start(struct member_crew *c, uint32_t slot, uint32_t incarnation)
{
    struct member_address address = {.slot = slot, .incarnation = incarnation};
    struct err err = ERR_INIT;
    uint32_t i = slot - c->c.first;
    int code = 125;

    (void)snprintf(address.name, sizeof(address.name), "%s", member_door_name(c->door));
    member_address_write(&address, c->contracts[i].elastic,
                         sizeof(c->contracts[i].elastic));
    c->processes[i] = (struct elastic_process){.incarnation = incarnation};
    c->members[i].place.rank = LIVE_NO_RANK;
    member_door_expect(c->door, i, slot, incarnation);
    c->is_live[i] = local_ranks_start_one(c->ranks, i, &code, &err) == 0;
    if (!c->is_live[i])
        crew_report_start_failure(c, slot, incarnation, code, err.text);
}

void crew_spawn(struct member_crew *c,
                uint32_t slot,
                uint32_t incarnation,
                const struct place *place)
{
    uint32_t i = slot - c->c.first;

    if (!crew_has_slot(c, slot))
        return;
    c->contracts[i].place = *place;
    c->contracts[i].place.host = c->c.host;
    if (!c->is_live[i]) {
        crew_start(c, slot, incarnation);
        return;
    }
    c->next[i] = incarnation; /* the present one is not wanted by this leader */
    local_ranks_stop_one(c->ranks, i);
}

void crew_kill(struct member_crew *c, uint32_t slot, uint32_t incarnation)
{
    if (crew_has(c, slot, incarnation)) {
        local_ranks_stop_one(c->ranks, slot - c->c.first);
    } else if (crew_has_slot(c, slot) && c->next[slot - c->c.first] == incarnation) {
        c->next[slot - c->c.first] = 0;
        crew_report_start_failure(c, slot, incarnation, 125,
                                  "stopped before it was started");
    }
}

static void
crew_note_world(struct member_crew *c, uint32_t i, const struct member_message *m)
{
    struct elastic_process *p = &c->processes[i];

    c->members[i].place = m->place;
    c->members[i].generation = m->generation;
    p->is_member = true;
    p->is_waiting = false;
    p->generation = m->generation;
    p->rank = m->place.rank;
    p->n_ranks = m->place.size;
    p->since = p->since > 0 ? p->since : m->generation;
    c->generation = m->generation;
}

void crew_send(
    struct member_crew *c, uint32_t slot, uint32_t incarnation, const void *p, size_t n)
{
    struct member_message m;

    if (!crew_has(c, slot, incarnation))
        return;
    if (member_message_read(p, n, &m, NULL) == 0 && m.type == MEMBER_FORM)
        crew_note_world(c, slot - c->c.first, &m);
    member_door_send(c->door, slot - c->c.first, p, n);
}

void crew_describe(const struct member_crew *c,
                   void (*put)(void *arg,
                               uint32_t slot,
                               const struct elastic_process *p),
                   void *arg)
{
    for (uint32_t i = 0; i < c->c.n; i++)
        if (c->is_live[i] || c->processes[i].is_done)
            put(arg, c->c.first + i, &c->processes[i]);
}

void crew_renumber(struct member_crew *c, uint32_t first)
{
    c->c.first = first;
    local_ranks_renumber(c->ranks, first);
}

uint32_t crew_generation(const struct member_crew *c)
{
    return c->generation;
}

void crew_take_event(struct member_crew *c, struct local_ranks_event *ev)
{
    uint32_t next;

    if (ev->kind != LOCAL_RANK_OK && ev->kind != LOCAL_RANK_FAILED)
        return;
    next = c->next[ev->index];
    c->next[ev->index] = 0;
    c->is_live[ev->index] = false;
    c->processes[ev->index].is_done = ev->kind == LOCAL_RANK_OK;
    if (ev->kind == LOCAL_RANK_OK)
        memset(&ev->report, 0, sizeof(ev->report));
    if (ev->is_expected)
        ev->report.blames = -1;
    c->c.on_exit(c->c.arg, c->c.first + ev->index, c->processes[ev->index].incarnation,
                 &ev->report);
    if (next > 0)
        crew_start(c, c->c.first + ev->index, next);
}

int crew_fd(const struct member_crew *c)
{
    return member_door_fd(c->door);
}

void crew_serve(struct member_crew *c)
{
    member_door_serve(c->door);
}

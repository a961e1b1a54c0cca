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

struct crew {
    struct crew_config c;
    struct contract *contracts; /* [n] */
    uint32_t *incarnations;     /* [n] of the present or last processes */
    struct local_ranks *ranks;
    struct member_door *door;
};

static void
crew_pass_message(void *arg, const struct member_message *m, const uint8_t *p, size_t n)
{
    struct crew *c = arg;

    c->c.on_message(c->c.arg, m->slot, m->incarnation, p, n);
}

/* As if all slots of all hosts were ranks: a process that chooses a GPU by its
 * variables gets that of its slot. */
static void crew_make_contracts(struct crew *c)
{
    for (uint32_t i = 0; i < c->c.n; i++) {
        struct contract *k = &c->contracts[i];

        *k = *c->c.common;
        k->place = (struct place){.rank = c->c.first + i,
                                  .size = c->c.n_hosts * c->c.n,
                                  .local_rank = i,
                                  .local_size = c->c.n,
                                  .cross_rank = c->c.host,
                                  .cross_size = c->c.n_hosts,
                                  .host = c->c.host};
    }
}

int crew_open(const struct crew_config *config, struct crew **ret, struct err *err)
{
    struct crew *c = mem_zalloc(sizeof(*c));
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->c = *config;
    c->contracts = mem_calloc(c->c.n, sizeof(*c->contracts));
    c->incarnations = mem_calloc(c->c.n, sizeof(*c->incarnations));
    rc = c->contracts && c->incarnations
             ? member_door_open(c->c.first, c->c.n, crew_pass_message, c, &c->door, err)
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

void crew_close(struct crew *c)
{
    if (!c)
        return;
    local_ranks_free(c->ranks);
    member_door_close(c->door);
    mem_free(c->contracts);
    mem_free(c->incarnations);
    mem_free(c);
}

struct local_ranks *crew_ranks(struct crew *c)
{
    return c->ranks;
}

static bool crew_has_slot(const struct crew *c, uint32_t slot)
{
    return slot >= c->c.first && slot - c->c.first < c->c.n;
}

static bool crew_has(const struct crew *c, uint32_t slot, uint32_t incarnation)
{
    return crew_has_slot(c, slot) && c->incarnations[slot - c->c.first] == incarnation;
}

static void crew_report_start_failure(
    struct crew *c, uint32_t slot, uint32_t incarnation, int code, const char *why)
{
    AUTOFREE struct report *r = mem_zalloc(sizeof(*r));

    if (!r)
        return;
    r->f.rank = r->blames = -1;
    r->f.exit_code = code;
    r->f.at_wall_us = clock_wall_us();
    (void)snprintf(r->f.host, sizeof(r->f.host), "%s", c->contracts[0].hostname);
    (void)snprintf(r->f.why, sizeof(r->f.why), "%.230s", why);
    c->c.on_exit(c->c.arg, slot, incarnation, r);
}

void crew_spawn(struct crew *c, uint32_t slot, uint32_t incarnation)
{
    struct member_address address = {.slot = slot, .incarnation = incarnation};
    struct err err = ERR_INIT;
    uint32_t i = slot - c->c.first;
    int code = 125;

    if (!crew_has_slot(c, slot) || local_ranks_pid(c->ranks, i) > 0)
        return;
    (void)snprintf(address.name, sizeof(address.name), "%s", member_door_name(c->door));
    member_address_write(&address, c->contracts[i].elastic,
                         sizeof(c->contracts[i].elastic));
    c->incarnations[i] = incarnation;
    member_door_expect(c->door, slot, incarnation);
    if (local_ranks_start_one(c->ranks, i, &code, &err) < 0)
        crew_report_start_failure(c, slot, incarnation, code, err.text);
}

void crew_kill(struct crew *c, uint32_t slot, uint32_t incarnation)
{
    if (crew_has(c, slot, incarnation))
        local_ranks_stop_one(c->ranks, slot - c->c.first);
}

void crew_send(
    struct crew *c, uint32_t slot, uint32_t incarnation, const void *p, size_t n)
{
    member_door_send(c->door, slot, incarnation, p, n);
}

void crew_take_event(struct crew *c, struct local_ranks_event *ev)
{
    if (ev->kind != LOCAL_RANK_OK && ev->kind != LOCAL_RANK_FAILED)
        return;
    if (ev->kind == LOCAL_RANK_OK)
        memset(&ev->report, 0, sizeof(ev->report));
    if (ev->is_expected)
        ev->report.blames = -1;
    c->c.on_exit(c->c.arg, c->c.first + ev->index, c->incarnations[ev->index],
                 &ev->report);
}

int crew_fd(const struct crew *c)
{
    return member_door_fd(c->door);
}

void crew_serve(struct crew *c)
{
    member_door_serve(c->door);
}

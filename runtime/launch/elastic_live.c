/* SPDX-License-Identifier: Apache-2.0 */
/* The live report of an elastic job: each world is one for live_lead.h, and between two
 * worlds the job meets. What only elastic jobs have is filled in after each poll. Called
 * by elastic_job.c. */
#include <stdio.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/launch/elastic_run.h"

static void live_examine(void *arg, uint32_t number)
{
    struct elastic_run *r = arg;
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, 16);
    bytes_put_u32(&b, number);
    run_send_to_all(r, ERRAND_EXAMINE, &b);
}

static const char *live_host_of(void *arg, uint32_t rank)
{
    const struct elastic_run *r = arg;
    const struct elastic *e = &r->lead.e;

    return rank < e->n_members ? r->hosts.v[e->members[rank] / r->hosts.slots].name
                               : "";
}

void run_open_live(struct elastic_run *r)
{
    const struct live_lead_config c = {
        .examine = live_examine, .host_of = live_host_of, .arg = r};

    live_lead_init(&r->live, &c);
    live_lead_meet(&r->live, 0, (uint32_t)r->c->job->hosts->n);
    live_door_write_token(r->c->job->dir, &r->token);
    live_door_open(&r->door, r->c->job->dir, &r->token, r->e.job_id, &r->live);
    if (r->status_port > 0)
        live_door_open_network(&r->door, r->status_port, &r->root);
}

void run_close_live(struct elastic_run *r)
{
    live_door_close(&r->door);
    live_lead_release(&r->live);
}

static void run_describe(const struct elastic_run *r, struct live_elastic *ret)
{
    const struct elastic *e = &r->lead.e;
    CLEANUP(strbuf_release) struct strbuf waits = {0};
    uint64_t now_ns = clock_now_ns(), first_ns = UINT64_MAX;

    *ret = (struct live_elastic){.min_ranks = e->config.min_ranks,
                                 .max_ranks = e->config.max_ranks,
                                 .n_resets = e->n_resets};
    for (uint32_t i = 0; i < e->n_slots; i++) {
        const struct elastic_slot *s = &e->slots[i];

        ret->n_ready += s->state == SLOT_READY;
        if (s->state != SLOT_EXCLUDED)
            continue;
        ret->n_excluded++;
        first_ns = earlier_ns(first_ns, s->until_ns);
    }
    if (ret->n_excluded > 0 && first_ns > now_ns)
        ret->excluded_ms = (first_ns - now_ns) / NS_PER_MS;
    strbuf_init(&waits, sizeof(ret->waits));
    if (e->state == ELASTIC_WAITING)
        elastic_explain(e, &waits);
    (void)snprintf(ret->waits, sizeof(ret->waits), "%s", strbuf_str(&waits));
    if (r->lead.has_cause)
        report_sentence(r->lead.cause, ret->failure, sizeof(ret->failure));
}

/* The live report follows the worlds of the job. */
static void run_follow_worlds(struct elastic_run *r)
{
    const struct elastic *e = &r->lead.e;
    const uint32_t generation = e->state == ELASTIC_WAITING ? 0 : e->generation;

    if (r->is_over)
        live_lead_end(&r->live);
    if (r->is_over || generation == r->live_generation)
        return;
    r->live_generation = generation;
    live_lead_meet(&r->live, e->generation, elastic_hosts_listed(&r->hosts));
    if (generation > 0) /* 1: hosts differ, so that slow ranks are found and no hosts */
        live_lead_start(&r->live, e->n_members, 1);
}

void run_serve_live(struct elastic_run *r)
{
    struct live_elastic elastic;

    run_follow_worlds(r);
    live_lead_set_present(&r->live, elastic_hosts_ready(&r->hosts));
    run_describe(r, &elastic);
    live_job_set_elastic(&r->live.job, &elastic);
    live_door_serve(&r->door);
}

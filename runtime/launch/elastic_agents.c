/* SPDX-License-Identifier: Apache-2.0 */
/* Each host of the list has an agent: this host's names by a child, other hosts by ssh or
 * hvd-agent serve. A host whose agent is lost is tried again, after a time that grows.
 * Called by elastic_job.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/launch/elastic_run.h"
#include "runtime/launch/hosts.h"

/* A job that outlives its horovodrun has no agents that are children of it. */
static enum link_kind run_link_kind(const struct elastic_run *r, const char *name)
{
    if (host_is_local(name) && r->e.keep_ms == 0)
        return LINK_LOCAL;
    return r->c->job->token_file ? LINK_SERVE : LINK_SSH;
}

static void run_connect(struct elastic_run *r, uint32_t host)
{
    const char *name = r->hosts.v[host].name;

    links_renew(&r->links, host, run_link_kind(r, name), name,
                clock_now_ns() + r->start_ns);
}

/* JOB: the hosts by their numbers, as far as they are used. */
static int run_list_hosts(struct elastic_run *r, uint32_t host, struct err *err)
{
    int rc = 0;

    hostlist_release(&r->e.hosts);
    for (uint32_t h = 0; rc == 0 && h < r->hosts.n; h++) {
        const struct elastic_host *v = &r->hosts.v[h];

        if (!v->name[0])
            break; /* numbers are taken in order */
        rc = hostlist_append(&r->e.hosts, v->name, v->slots > 0 ? v->slots : 1, err);
    }
    return rc == 0 && host >= r->e.hosts.n ? err_set(err, -EINVAL, "no such host") : rc;
}

void run_on_open(void *arg, struct link *l)
{
    struct elastic_run *r = arg;
    struct err err = ERR_INIT;
    CLEANUP(strbuf_release) struct strbuf b = {0};

    if (run_list_hosts(r, l->first, &err) < 0) {
        log_warn("a host is not used", "host=%s cause=\"%s\"", l->host, err.text);
        return;
    }
    strbuf_init(&b, ERRAND_TO_AGENT_MAX_BYTES);
    bytes_put_u32(&b, l->end);
    errand_write(&r->e, &b);
    log_info("agent connected", "host=%s", l->host);
    links_send(&r->links, ERRAND_JOB, l->first, &b);
}

/* This host was cut off, or all others were. Their agents keep the processes. */
static void run_lose_all(struct elastic_run *r)
{
    if (r->e.keep_ms == 0 || r->lead.e.generation == 0
        || elastic_hosts_ready(&r->hosts) > 0)
        return;
    log_warn("all hosts are lost, their processes are adopted if they come back",
             "world=%u", r->lead.e.generation);
    elastic_lead_take_over_again(&r->lead);
}

void run_on_lost(void *arg, struct link *l)
{
    struct elastic_run *r = arg;
    const uint32_t host = l->first;
    const struct remote_host range = run_slots_of(r, host);
    const uint64_t now_ns = clock_now_ns();
    struct elastic_host *v = &r->hosts.v[host];
    const bool has_left = v->is_leaving;

    if (!v->is_connected)
        return;
    remote_output_end(&r->output, &range);
    elastic_hosts_lose(&r->hosts, host, now_ns);
    if (r->is_over || r->forwarded_signal)
        return;
    if (has_left)
        log_info("a host has left", "host=%s", v->name);
    else
        log_warn(
            "a host is lost", "host=%s cause=\"%s\" retry_s=%llu", v->name, l->why,
            (unsigned long long)(v->slots > 0 ? (v->retry_ns - now_ns) / NS_PER_S : 0));
    elastic_lead_lose_worker(&r->lead, host, l->why);
    if (!has_left)
        run_lose_all(r);
}

void run_offer_slots(struct elastic_run *r, uint32_t host)
{
    struct elastic_host *v = &r->hosts.v[host];

    v->has_changed = false;
    if (v->is_ready)
        elastic_offer_slots(&r->lead.e, host, v->is_leaving ? 0 : v->slots);
}

/* The spares are as many slots of the list as --spares says. */
static void run_set_max(struct elastic_run *r, const struct hostlist *list)
{
    const struct elastic_options *o = r->c->options;
    const uint64_t slots = hostlist_slots(list);
    uint64_t max = slots > o->spares ? slots - o->spares : 0;

    if (o->spares == 0)
        return; /* as many as there are, or --max-np */
    if (o->max > 0 && max > o->max)
        max = o->max;
    elastic_set_max(&r->lead.e,
                    max < WORLD_MAX_RANKS ? (uint32_t)max : WORLD_MAX_RANKS);
}

void run_apply_list(struct elastic_run *r, const struct hostlist *list)
{
    uint32_t n_left = elastic_hosts_apply(&r->hosts, list);

    run_set_max(r, list);

    if (n_left > 0 && !r->has_warned_room)
        log_warn("hosts are not used, there are too many", "hosts=%u limit=%u", n_left,
                 r->hosts.n);
    r->has_warned_room = n_left > 0;
    for (uint32_t h = 0; h < r->hosts.n; h++) {
        if (!r->hosts.v[h].has_changed)
            continue;
        log_info("the host list has changed", "host=%s slots=%u", r->hosts.v[h].name,
                 r->hosts.v[h].slots);
        run_offer_slots(r, h);
    }
}

void run_discover(struct elastic_run *r)
{
    struct err err = ERR_INIT;
    struct hostlist list;
    int rc;

    hostlist_init(&list);
    rc = discovery_watch_serve(&r->discovery, clock_now_ns(), &list, &err);
    if (rc < 0
        && strcmp(err.text, r->script_err.text) != 0) { /* each second the same */
        log_warn("the host list stays as it is", "cause=\"%s\"", err.text);
        r->script_err = err;
    }
    if (rc > 0) {
        r->script_err = (struct err)ERR_INIT;
        run_apply_list(r, &list);
    }
    hostlist_release(&list);
}

void run_connect_due(struct elastic_run *r)
{
    uint32_t host;

    while (elastic_hosts_next(&r->hosts, clock_now_ns(), &host))
        run_connect(r, host);
    links_serve(&r->links); /* starts those */
}

struct remote_host run_slots_of(const struct elastic_run *r, uint32_t host)
{
    return (struct remote_host){.first_rank = host * r->hosts.slots,
                                .n_ranks = r->hosts.slots};
}

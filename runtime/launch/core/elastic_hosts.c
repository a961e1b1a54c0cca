/* SPDX-License-Identifier: Apache-2.0 */
/* Called by elastic_job.c. */
#include "runtime/launch/core/elastic_hosts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define RETRY_FIRST_NS 1000000000ull /* doubles with each loss in a row */
#define RETRY_SHIFTS   3             /* to 8 s: a pod may need a minute to start */

int elastic_hosts_init(struct elastic_hosts *h,
                       uint32_t n,
                       uint32_t slots,
                       struct err *err)
{
    *h = (struct elastic_hosts){.n = n, .slots = slots};
    h->v = mem_calloc(n, sizeof(*h->v));
    return h->v ? 0 : err_set(err, -ENOMEM, "out of memory for %u hosts", n);
}

void elastic_hosts_release(struct elastic_hosts *h)
{
    mem_free(h->v);
    memset(h, 0, sizeof(*h));
}

static struct elastic_host *hosts_find(struct elastic_hosts *h, const char *name)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (strcmp(h->v[i].name, name) == 0)
            return &h->v[i];
    return NULL;
}

/* A number that is free. One that was never used comes first: a host that comes back
 * then finds its old number. */
static struct elastic_host *hosts_take_number(struct elastic_hosts *h, const char *name)
{
    struct elastic_host *host = hosts_find(h, "");

    for (uint32_t i = 0; i < h->n && !host; i++)
        if (h->v[i].slots == 0 && !h->v[i].is_connected && !h->v[i].has_changed)
            host = &h->v[i];
    if (!host)
        return NULL;
    *host = (struct elastic_host){0};
    (void)snprintf(host->name, sizeof(host->name), "%s", name);
    return host;
}

static void host_set_slots(struct elastic_host *host, uint32_t slots)
{
    host->has_changed = host->has_changed || host->slots != slots;
    host->slots = slots;
}

static uint32_t list_slots_of(const struct hostlist *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->v[i].name, name) == 0)
            return list->v[i].slots;
    return 0;
}

uint32_t elastic_hosts_apply(struct elastic_hosts *h, const struct hostlist *list)
{
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < h->n; i++)
        if (h->v[i].name[0] && list_slots_of(list, h->v[i].name) == 0)
            host_set_slots(&h->v[i], 0);
    for (size_t i = 0; i < list->n; i++) {
        const uint32_t slots = list->v[i].slots;
        struct elastic_host *host = hosts_find(h, list->v[i].name);

        host = host ? host : hosts_take_number(h, list->v[i].name);
        if (host)
            host_set_slots(host, slots < h->slots ? slots : h->slots);
        else
            n_left++;
    }
    return n_left;
}

void elastic_hosts_lose(struct elastic_hosts *h, uint32_t host, uint64_t now_ns)
{
    struct elastic_host *v = &h->v[host];
    uint32_t shift = v->n_losses < RETRY_SHIFTS ? v->n_losses : RETRY_SHIFTS;

    v->is_connected = v->is_ready = v->is_leaving = false;
    v->n_losses++;
    v->retry_ns = now_ns + (RETRY_FIRST_NS << shift);
}

void elastic_hosts_set_ready(struct elastic_hosts *h, uint32_t host)
{
    h->v[host].is_ready = true;
    h->v[host].n_losses = 0;
}

static bool host_is_due(const struct elastic_host *host, uint64_t now_ns)
{
    return host->slots > 0 && !host->is_connected && now_ns >= host->retry_ns;
}

bool elastic_hosts_next(struct elastic_hosts *h, uint64_t now_ns, uint32_t *ret)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (!host_is_due(&h->v[i], now_ns))
            continue;
        h->v[i].is_connected = true;
        *ret = i;
        return true;
    }
    return false;
}

uint64_t elastic_hosts_next_ns(const struct elastic_hosts *h)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < h->n; i++)
        if (h->v[i].slots > 0 && !h->v[i].is_connected && h->v[i].retry_ns < next)
            next = h->v[i].retry_ns;
    return next;
}

uint32_t elastic_hosts_missing(const struct elastic_hosts *h)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->n; i++)
        n += h->v[i].slots > 0 && !h->v[i].is_ready;
    return n;
}

uint32_t elastic_hosts_listed(const struct elastic_hosts *h)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->n; i++)
        n += h->v[i].slots > 0;
    return n;
}

uint32_t elastic_hosts_ready(const struct elastic_hosts *h)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->n; i++)
        n += h->v[i].is_ready;
    return n;
}

bool elastic_hosts_are_ready(const struct elastic_hosts *h)
{
    return elastic_hosts_listed(h) > 0 && elastic_hosts_missing(h) == 0;
}

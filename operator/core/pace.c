/* SPDX-License-Identifier: Apache-2.0 */
/* A job of 8 workers starts as 8 pods that become ready one after the other, and each
 * would cause a status of its own ("3/8"). Such a status is soon out of date and costs
 * the API server as much as a pod. So it is delayed until PACE_NS after the last write,
 * and PACE_BUSY_NS while hundreds of jobs start at once and the API server is busiest.
 * A status that a client may wait for (core/state.c decides) is never delayed.
 *
 * Invariant: entries are in the order of their time, and those older than PACE_BUSY_NS
 * are dropped at every look-up, so there are never more than statuses written within
 * that time. Keys are kept as hashes: two keys of the same hash delay each other, which
 * does no harm. Called by sync.c. */
#include "operator/core/pace.h"

#include <string.h>

#include "runtime/base/mem.h"

#define PACE_MAX 100000u

static uint64_t hash_of(const char *s)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h;
}

static void drop_old(struct pace *p, uint64_t now_ns)
{
    size_t k = 0;

    while (k < p->n && now_ns - p->v[k].at_ns >= PACE_BUSY_NS)
        k++;
    if (k == 0)
        return;
    memmove(p->v, p->v + k, (p->n - k) * sizeof(*p->v));
    p->n -= k;
}

void pace_release(struct pace *p)
{
    mem_free(p->v);
    *p = (struct pace){0};
}

void pace_note(struct pace *p, const char *key, uint64_t now_ns)
{
    void *v = p->v;

    drop_old(p, now_ns);
    if (mem_grow(&v, p->n, &p->cap, sizeof(*p->v), PACE_MAX) < 0)
        return;
    p->v = v;
    p->v[p->n++] = (struct pace_entry){.hash = hash_of(key), .at_ns = now_ns};
}

static uint64_t interval_ns(const struct pace *p, uint64_t now_ns)
{
    size_t n = p->n;

    if (n > PACE_BUSY && now_ns - p->v[n - 1 - PACE_BUSY].at_ns < PACE_NS)
        return PACE_BUSY_NS;
    return PACE_NS;
}

uint64_t pace_wait_ns(struct pace *p, const char *key, uint64_t now_ns)
{
    uint64_t hash = hash_of(key), due_ns;

    drop_old(p, now_ns);
    for (size_t i = p->n; i-- > 0;) { /* the last one counts */
        if (p->v[i].hash == hash) {
            due_ns = p->v[i].at_ns + interval_ns(p, now_ns);
            return due_ns > now_ns ? due_ns - now_ns : 0;
        }
    }
    return 0;
}

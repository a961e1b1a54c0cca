/* SPDX-License-Identifier: Apache-2.0 */
/* A job of 8 workers comes up by 8 pods that run one after the other, and each would be
 * a status of its own ("3/8"). What such a status tells is out of date at once, and it
 * costs the API server as much as a pod. So it waits until PACE_NS after the last
 * write, and while hundreds of jobs come up at once, when the API server has least to
 * spare, PACE_BUSY_NS; what somebody may wait for (core/status.c tells which) never
 * does.
 *
 * Invariant: entries are in the order of their time, and those older than PACE_BUSY_NS
 * are dropped whenever one looks, so there are never more than statuses written within
 * that time. Keys are kept as hashes: two of one hash wait for each other, which hurts
 * nobody. Called by sync.c. */
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

/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot of one job, from cache and memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/plan.h"
#include "operator/core/store/store_entry.h"

#define LOOK_NS (EXPECT_LOOK_MS * 1000000ull)

const struct pod *store_next_pod(const struct store *s,
                                 const struct job_meta *job,
                                 struct keyed_range *at)
{
    const struct pod *p;

    while ((p = children_next_pod(&s->children, job->ns, job->name, at))) {
        if (p->job_kind == job->kind && strcmp(p->job_name, job->name) == 0)
            return p;
    }
    return NULL;
}

/* The launcher's Job; NULL: there is none that belongs to this job. */
static const struct batch_job *store_batch(const struct store *s,
                                           const struct job_meta *job)
{
    const struct batch_job *b;
    char name[320];

    (void)snprintf(name, sizeof(name), "%s-launcher", job->name);
    b = children_batch(&s->children, job->ns, name);
    return b && strcmp(b->owner_uid, job->uid) == 0 ? b : NULL;
}

bool store_owns_pod(const struct store *s,
                    const struct job_meta *job,
                    const struct pod *p)
{
    const struct batch_job *b;
    const struct job_entry *j;
    char key[STORE_KEY_SIZE];

    if (strcmp(p->owner_uid, job->uid) == 0)
        return true;
    if (job->kind != KUBE_MPIJOB || store_key(job->kind, job->ns, job->name, key) < 0)
        return false;
    b = store_batch(s, job);
    j = store_entry(s, key, job->uid);
    if (!b && j)
        b = j->memory.gone_batch;
    return b && strcmp(p->owner_uid, b->uid) == 0;
}

/* The number of seats of each role: for the pods of the spec and all existing ones. */
static void observed_measure(const struct store *s,
                             const struct job_meta *job,
                             const struct job_shape *shape,
                             struct observed *ret)
{
    const struct pod *p;
    struct keyed_range at = {0};
    uint32_t index;

    for (int r = 0; r < ROLE_COUNT; r++)
        ret->crew[r].n = shape->n[r];
    while ((p = store_next_pod(s, job, &at))) {
        if (strcmp(p->owner_uid, job->uid) != 0)
            ret->n_batch_pods++; /* at most */
        else if (pod_replica_index(p, &index) == 0 && index >= ret->crew[p->role].n)
            ret->crew[p->role].n = index + 1u;
    }
}

static struct worker worker_unseen(const struct pod_memory *note, uint64_t now_ns)
{
    if (note && note->expected.since_ns)
        return (struct worker){.state = WORKER_EXPECTED,
                               .is_overdue =
                                   now_ns - note->expected.since_ns >= LOOK_NS};
    if (note && note->gone)
        return (struct worker){.state = WORKER_GONE, .pod = note->gone};
    return (struct worker){.state = WORKER_ABSENT};
}

/* An older pod of that name that is still in the cache does not count. */
static bool pod_is_awaited(const struct pod_memory *note, const struct pod *p)
{
    return note && note->expected.since_ns && strcmp(note->expected.uid, p->uid) != 0;
}

static void fill_batch(const struct store *s,
                       const struct job_entry *j,
                       const struct job_meta *job,
                       uint64_t now_ns,
                       struct observed *ret)
{
    const struct job_memory *m = &j->memory;
    const struct batch_job *b = store_batch(s, job);

    if (m->batch.since_ns && !(b && strcmp(b->uid, m->batch.uid) == 0)) {
        ret->batch_state = WORKER_EXPECTED;
        ret->is_batch_overdue = now_ns - m->batch.since_ns >= LOOK_NS;
    } else if (b) {
        ret->batch_state = WORKER_SEEN;
        ret->batch = b;
    } else if (m->gone_batch) {
        ret->batch_state = WORKER_GONE;
        ret->batch = m->gone_batch;
    }
}

static int observed_fill(const struct store *s,
                         const struct job_entry *j,
                         const struct job_meta *job,
                         uint64_t now_ns,
                         struct arena *a,
                         struct observed *ret)
{
    const struct pod **batch_pods =
        arena_calloc(a, ret->n_batch_pods + 1u, sizeof(const struct pod *));
    struct worker *w[ROLE_COUNT];
    const struct pod *p;
    struct keyed_range at = {0};
    uint32_t index;

    for (int r = 0; r < ROLE_COUNT; r++) {
        w[r] = arena_calloc(a, ret->crew[r].n + 1u, sizeof(*w[r]));
        if (!w[r] || !batch_pods)
            return -ENOMEM;
        for (uint32_t i = 0; i < ret->crew[r].n; i++)
            w[r][i] = worker_unseen(memory_note(&j->memory, (enum role)r, i), now_ns);
        ret->crew[r].w = w[r];
    }
    ret->n_batch_pods = 0;
    while ((p = store_next_pod(s, job, &at))) {
        if (strcmp(p->owner_uid, job->uid) == 0) {
            if (pod_replica_index(p, &index) == 0
                && !pod_is_awaited(memory_note(&j->memory, (enum role)p->role, index),
                                   p))
                w[p->role][index] = (struct worker){.state = WORKER_SEEN, .pod = p};
        } else if (ret->batch && strcmp(p->owner_uid, ret->batch->uid) == 0) {
            batch_pods[ret->n_batch_pods++] = p;
        }
    }
    ret->batch_pods = batch_pods;
    return 0;
}

int store_observe(const struct store *s,
                  const char *key,
                  const struct job_meta *job,
                  const struct job_shape *shape,
                  uint64_t now_ns,
                  struct arena *a,
                  struct observed *ret)
{
    const struct job_entry *j = store_entry(s, key, job->uid);
    struct observed o = {0};
    int rc;

    if (!j)
        return -ENOENT;
    for (int k = 0; k < KUBE_KIND_COUNT; k++)
        o.fact[k] = *memory_fact(&j->memory, (enum kube_kind)k);
    o.inquiry = memory_inquiry(&j->memory);
    observed_measure(s, job, shape, &o);
    if (job->kind == KUBE_MPIJOB)
        fill_batch(s, j, job, now_ns, &o);
    rc = observed_fill(s, j, job, now_ns, a, &o);
    if (rc == 0)
        *ret = o;
    return rc;
}

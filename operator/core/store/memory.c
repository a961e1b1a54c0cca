/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of expectations: an expectation ends only when the watch shows an object of
 * that uid (existing or deleted), or when the API server, queried for it, answers that
 * it does not exist. An older object of the same name does not end it. */
#include "operator/core/store/memory.h"

#include <stdio.h>
#include <string.h>

#include "operator/core/store/children.h"
#include "runtime/base/mem.h"

void memory_clear(struct job_memory *m)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < m->n[r]; i++)
            pod_free(m->note[r][i].gone);
        mem_free(m->note[r]);
    }
    batch_free(m->gone_batch);
    mem_free(m->inquiry);
    mem_free(m->fact);
    *m = (struct job_memory){0};
}

const struct fact *memory_fact(const struct job_memory *m, enum kube_kind kind)
{
    static const struct fact unknown = {.state = FACT_UNKNOWN};

    return m->fact ? &m->fact[kind] : &unknown;
}

void memory_set_fact(struct job_memory *m, enum kube_kind kind, const struct fact *fact)
{
    if (!m->fact)
        m->fact = mem_zalloc(KUBE_KIND_COUNT * sizeof(*m->fact));
    if (m->fact)
        m->fact[kind] = *fact;
}

void memory_forget_facts(struct job_memory *m)
{
    mem_free(m->fact);
    m->fact = NULL;
}

const struct inquiry *memory_inquiry(const struct job_memory *m)
{
    static const struct inquiry unknown = {.result = INQUIRY_UNKNOWN};

    return m->inquiry ? m->inquiry : &unknown;
}

struct inquiry *memory_inquiry_at(struct job_memory *m)
{
    if (!m->inquiry)
        m->inquiry = mem_zalloc(sizeof(*m->inquiry));
    return m->inquiry;
}

struct pod_memory *
memory_note(const struct job_memory *m, enum role role, uint32_t index)
{
    return index < m->n[role] ? &m->note[role][index] : NULL;
}

struct pod_memory *memory_note_at(struct job_memory *m, enum role role, uint32_t index)
{
    uint32_t n = m->n[role];

    if (index >= n) {
        struct pod_memory *v = mem_realloc_array(m->note[role], index + 1u, sizeof(*v));

        if (!v)
            return NULL;
        memset(v + n, 0, (index + 1u - n) * sizeof(*v));
        m->note[role] = v;
        m->n[role] = index + 1u;
    }
    return &m->note[role][index];
}

static void expectation_set(struct expectation *e, const char *uid, uint64_t now_ns)
{
    e->since_ns = now_ns ? now_ns : 1;
    (void)snprintf(e->uid, sizeof(e->uid), "%s", uid);
}

static void expectation_meet(struct expectation *e, const char *uid)
{
    if (strcmp(e->uid, uid) == 0)
        *e = (struct expectation){0};
}

void memory_expect_pod(struct job_memory *m,
                       enum role role,
                       uint32_t index,
                       const char *uid,
                       uint64_t now_ns)
{
    struct pod_memory *n = memory_note_at(m, role, index);

    if (n && !(n->gone && strcmp(n->gone->uid, uid) == 0))
        expectation_set(&n->expected, uid,
                        now_ns); /* out of memory: the object counts as absent */
}

void memory_show_pod(struct job_memory *m,
                     enum role role,
                     uint32_t index,
                     const char *uid)
{
    struct pod_memory *n = memory_note(m, role, index);

    if (n)
        expectation_meet(&n->expected, uid);
}

void memory_keep_gone_pod(struct job_memory *m,
                          enum role role,
                          uint32_t index,
                          struct pod *pod)
{
    struct pod_memory *n = memory_note_at(m, role, index);

    if (!n) {
        pod_free(pod);
        return;
    }
    expectation_meet(&n->expected, pod->uid);
    pod_free(n->gone);
    n->gone = pod;
}

void memory_miss_pod(struct job_memory *m, enum role role, uint32_t index)
{
    struct pod_memory *n = memory_note(m, role, index);

    if (n)
        n->expected = (struct expectation){0};
}

void memory_expect_batch(struct job_memory *m, const char *uid, uint64_t now_ns)
{
    if (!(m->gone_batch && strcmp(m->gone_batch->uid, uid) == 0))
        expectation_set(&m->batch, uid, now_ns);
}

void memory_show_batch(struct job_memory *m, const char *uid)
{
    expectation_meet(&m->batch, uid);
}

void memory_keep_gone_batch(struct job_memory *m, struct batch_job *batch)
{
    expectation_meet(&m->batch, batch->uid);
    batch_free(m->gone_batch);
    m->gone_batch = batch;
}

void memory_miss_batch(struct job_memory *m)
{
    m->batch = (struct expectation){0};
}

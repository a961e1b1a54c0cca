/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's memory of one job, in addition to the cache: created objects that the
 * watch has not shown yet, the last state of deleted objects, and the API server's
 * answers about objects that no watch shows. Pure. */
#ifndef OPERATOR_CORE_STORE_MEMORY_H
#define OPERATOR_CORE_STORE_MEMORY_H

#include "operator/core/observed.h"

struct expectation {
    uint64_t since_ns;  /* 0: no object is expected */
    char uid[UID_SIZE]; /* uid of the expected object */
};
struct pod_memory {
    struct expectation expected;
    struct pod *gone; /* the deleted pod as last seen; else NULL */
};

struct job_memory { /* zeroed: nothing is known */
    struct pod_memory *note[ROLE_COUNT];
    uint32_t n[ROLE_COUNT];
    struct expectation batch;
    struct batch_job *gone_batch;
    struct inquiry *inquiry; /* NULL: nothing is known */
    struct fact *fact;       /* KUBE_KIND_COUNT of them; NULL: all are FACT_UNKNOWN */
};
void memory_clear(struct job_memory *m);

/* Never NULL. */
const struct fact *memory_fact(const struct job_memory *m, enum kube_kind kind);
/* Without memory for it the fact stays FACT_UNKNOWN, and the API server is queried. */
void memory_set_fact(struct job_memory *m,
                     enum kube_kind kind,
                     const struct fact *fact);
void memory_forget_facts(struct job_memory *m);

/* Never NULL. */
const struct inquiry *memory_inquiry(const struct job_memory *m);
/* To be changed; NULL: out of memory. */
struct inquiry *memory_inquiry_at(struct job_memory *m);

/* The memory of a pod, NULL when there is none; memory_note_at creates it (NULL: out of
 * memory). */
struct pod_memory *
memory_note(const struct job_memory *m, enum role role, uint32_t index);
struct pod_memory *memory_note_at(struct job_memory *m, enum role role, uint32_t index);

/* The API server has answered that a pod of that uid exists. The pod is expected until
 * the watch shows it, unless the watch has shown its deletion already. */
void memory_expect_pod(struct job_memory *m,
                       enum role role,
                       uint32_t index,
                       const char *uid,
                       uint64_t now_ns);
/* The watch shows the pod. */
void memory_show_pod(struct job_memory *m,
                     enum role role,
                     uint32_t index,
                     const char *uid);
/* The watch has shown the pod's deletion. Takes ownership of pod, its last state. */
void memory_keep_gone_pod(struct job_memory *m,
                          enum role role,
                          uint32_t index,
                          struct pod *pod);
/* The API server has answered that the pod does not exist. */
void memory_miss_pod(struct job_memory *m, enum role role, uint32_t index);

/* The same for the launcher's Job. */
void memory_expect_batch(struct job_memory *m, const char *uid, uint64_t now_ns);
void memory_show_batch(struct job_memory *m, const char *uid);
void memory_keep_gone_batch(struct job_memory *m, struct batch_job *batch);
void memory_miss_batch(struct job_memory *m);

#endif

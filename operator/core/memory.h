/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of one job beyond what the caches show: what was created and has not
 * been shown yet, how what is gone looked last, and what the API server said of objects
 * that no watch shows. Pure. */
#ifndef OPERATOR_CORE_MEMORY_H
#define OPERATOR_CORE_MEMORY_H

#include "operator/core/observed.h"

struct expectation {
    uint64_t since_ns;  /* 0: none */
    char uid[UID_SIZE]; /* of what is expected */
};
struct pod_memory {
    struct expectation expected;
    struct pod *gone; /* last view, if it is gone */
};

struct job_memory { /* zeroed: nothing is known */
    struct pod_memory *note[ROLE_COUNT];
    uint32_t n[ROLE_COUNT];
    struct expectation batch;
    struct batch_job *gone_batch;
    struct fact fact[KUBE_KIND_COUNT];
};
void memory_clear(struct job_memory *m);

/* The note of a pod, NULL when there is none; memory_note_at makes it (NULL: out of
 * memory). */
struct pod_memory *
memory_note(const struct job_memory *m, enum role role, uint32_t index);
struct pod_memory *memory_note_at(struct job_memory *m, enum role role, uint32_t index);

/* The API server has told that a pod of that uid is there. It is expected until the
 * watch shows it, unless the watch has shown its end already. */
void memory_expect_pod(struct job_memory *m,
                       enum role role,
                       uint32_t index,
                       const char *uid,
                       uint64_t now_ns);
/* The watch shows that pod. */
void memory_show_pod(struct job_memory *m,
                     enum role role,
                     uint32_t index,
                     const char *uid);
/* The watch has shown its end. Takes ownership. */
void memory_bury_pod(struct job_memory *m,
                     enum role role,
                     uint32_t index,
                     struct pod *pod);
/* The API server does not know it. */
void memory_miss_pod(struct job_memory *m, enum role role, uint32_t index);

/* The same of the launcher's Job. */
void memory_expect_batch(struct job_memory *m, const char *uid, uint64_t now_ns);
void memory_show_batch(struct job_memory *m, const char *uid);
void memory_bury_batch(struct job_memory *m, struct batch_job *batch);
void memory_miss_batch(struct job_memory *m);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot of one job for one sync. */
#ifndef OPERATOR_CORE_OBSERVED_H
#define OPERATOR_CORE_OBSERVED_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/core/batch.h"
#include "operator/core/pod.h"
#include "operator/kube/path.h"
#include "runtime/base/sha256.h"

#define UID_SIZE 64

/* ABSENT --POST answered 201--> EXPECTED --watch--> SEEN --watch--> GONE
 *   ^ '-------------------watch-----------------------^              |
 *   '----GET answered 404---------' ^---POST answered 201------------'
 *
 * An expectation ends only when the watch shows the object or the API server, queried
 * for it, answers that it does not exist. */
enum worker_state {
    WORKER_ABSENT,   /* does not exist as far as is known */
    WORKER_EXPECTED, /* created; not yet shown by the watch */
    WORKER_SEEN,     /* exists */
    WORKER_GONE,     /* was deleted */
};

struct worker {
    enum worker_state state;
    bool is_overdue;       /* EXPECTED for so long that the API server is queried */
    const struct pod *pod; /* SEEN: now; GONE: as last seen; else NULL */
};

/* The pods of one role that the operator itself creates, by replica index: at least as
 * many as the job requires, then surplus ones of a job that was scaled down. */
struct crew {
    const struct worker *w;
    uint32_t n;
};

/* An object that no watch shows, by the API server's answers. */
enum fact_state { FACT_UNKNOWN, FACT_THERE, FACT_ABSENT };
struct fact {
    enum fact_state state;
    char
        uid[UID_SIZE]; /* THERE: of the object, which belongs to the job; ABSENT: of the
                           object whose deletion a watch has shown */
    uint8_t digest[SHA256_BYTES]; /* THERE: of the content that was written last; zeros:
                                     unknown */
};

struct observed {
    struct crew crew[ROLE_COUNT];
    struct fact fact[KUBE_KIND_COUNT];
    enum worker_state batch_state; /* the launcher's batch/v1 Job */
    bool is_batch_overdue;
    const struct batch_job *batch;       /* SEEN: now; GONE: as last seen; else NULL */
    const struct pod *const *batch_pods; /* pods of the batch Job, by name */
    uint32_t n_batch_pods;
};

/* How many pods of each role a job requires. */
struct job_shape {
    uint32_t n[ROLE_COUNT];
};

/* The failure of a sync's plan. */
enum trouble {
    TROUBLE_NONE,
    TROUBLE_REJECTED, /* permanent */
    TROUBLE_RETRY,    /* retried with back-off; shown in condition Created */
};
struct sync_outcome {
    enum trouble trouble;
    bool is_of_spec;    /* REJECTED: by the operator, because of the spec */
    const char *reason; /* CamelCase */
    const char *message;
    bool is_conflict; /* only an earlier write by somebody else */
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshot of one job for one sync. */
#ifndef OPERATOR_CORE_OBSERVED_H
#define OPERATOR_CORE_OBSERVED_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/core/batch.h"
#include "operator/core/inquiry.h"
#include "operator/core/pod.h"
#include "operator/kube/path.h"
#include "runtime/base/sha256.h"
#include "runtime/live/live_report.h"

#define UID_SIZE 64

/* ABSENT --POST answered 201--> EXPECTED --watch--> SEEN --watch--> GONE
 *   ^ '-------------------watch-----------------------^              |
 *   '----GET answered 404---------' ^---POST answered 201------------'
 *
 * An object is expected until the watch shows it, or until the API server, queried for
 * it, answers that it does not exist. */
enum worker_state {
    WORKER_ABSENT,   /* no such object is known */
    WORKER_EXPECTED, /* it was created; the watch has not shown it yet */
    WORKER_SEEN,     /* it exists */
    WORKER_GONE,     /* it was deleted */
};

struct worker {
    enum worker_state state;
    bool is_overdue;       /* EXPECTED for so long that the API server is queried */
    const struct pod *pod; /* SEEN: the pod; GONE: the pod as last seen; else NULL */
};

/* The pods of one role that the operator itself creates, by replica index: those that
 * the job requires, then the surplus pods of a job that was scaled down. */
struct crew {
    const struct worker *w;
    uint32_t n;
};

/* The state of an object that no watch shows, from the API server's answers. */
enum fact_state { FACT_UNKNOWN, FACT_THERE, FACT_ABSENT };
struct fact {
    enum fact_state state;
    /* THERE: of the object, which belongs to the job; ABSENT: of the object whose
     * deletion a watch has shown. */
    char uid[UID_SIZE];
    uint8_t digest[SHA256_BYTES]; /* THERE: of the content that was written last; zeros:
                                     unknown */
};

struct live_report; /* runtime/live/live_report.h */

struct observed {
    struct crew crew[ROLE_COUNT];
    struct fact fact[KUBE_KIND_COUNT];
    enum worker_state batch_state; /* the launcher's batch/v1 Job */
    bool is_batch_overdue;
    const struct batch_job *batch; /* SEEN: the Job; GONE: as last seen; else NULL */
    const struct pod *const *batch_pods; /* pods of the batch Job, by name */
    uint32_t n_batch_pods;
    const struct inquiry *inquiry;  /* NULL: as if nothing were known */
    const struct live_report *live; /* NULL: unknown */
    uint64_t live_wall_s;           /* when that was received */
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
    bool is_of_spec;    /* REJECTED: the operator refused the spec */
    const char *reason; /* CamelCase */
    const char *message;
    bool is_conflict; /* the only problem: another client changed the object before */
};

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The world as one sync of one job sees it: a snapshot, valid for that sync. */
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
 * Silence proves nothing: an expectation ends only when the watch shows the object or
 * the API server, asked for it, says that it is not there. */
enum worker_state {
    WORKER_ABSENT,   /* not there as far as we know */
    WORKER_EXPECTED, /* we created it; the watch has not told us yet */
    WORKER_SEEN,     /* there */
    WORKER_GONE,     /* was there and is no more */
};

struct worker {
    enum worker_state state;
    bool is_overdue;       /* EXPECTED for so long that the API server is to be asked */
    const struct pod *pod; /* SEEN: now; GONE: as last seen; else NULL */
};

/* The pods of one role that the operator itself makes, by replica index. Has at least
 * as many as are wanted; surplus ones (a job that was made smaller) follow. */
struct crew {
    const struct worker *w;
    uint32_t n;
};

/* An object that no watch shows, by what the API server answered. */
enum fact_state { FACT_UNKNOWN, FACT_THERE, FACT_ABSENT };
struct fact {
    enum fact_state state;
    char uid[UID_SIZE]; /* THERE: of that very object, which is ours; ABSENT: of the one
                           whose end a watch has shown */
    uint8_t digest[SHA256_BYTES]; /* THERE: of the content that was written last; zeros:
                                     content unknown */
};

struct observed {
    struct crew crew[ROLE_COUNT];
    struct fact fact[KUBE_KIND_COUNT];
    enum worker_state batch_state; /* the launcher's batch/v1 Job */
    bool is_batch_overdue;
    const struct batch_job *batch;       /* SEEN: now; GONE: as last seen; else NULL */
    const struct pod *const *batch_pods; /* pods that the batch Job made, by name */
    uint32_t n_batch_pods;
};

/* How many pods of each role a job wants. */
struct job_shape {
    uint32_t n[ROLE_COUNT];
};

/* What went wrong while this sync carried out its plan. */
enum trouble {
    TROUBLE_NONE,
    TROUBLE_REJECTED, /* will not get better by itself */
    TROUBLE_RETRY,    /* tried again with back-off; shown in condition Created */
};
struct sync_outcome {
    enum trouble trouble;
    bool is_of_spec;    /* REJECTED: by the operator, for what the spec says */
    const char *reason; /* CamelCase */
    const char *message;
    bool is_conflict; /* merely somebody else's write that came before ours */
};

#endif

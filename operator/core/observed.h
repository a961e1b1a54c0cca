/* SPDX-License-Identifier: Apache-2.0 */
/* The world as one sync of one job sees it: a snapshot, valid for that sync. */
#ifndef OPERATOR_CORE_OBSERVED_H
#define OPERATOR_CORE_OBSERVED_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/core/pod.h"

/* ABSENT --POST answered 201--> EXPECTED --watch--> SEEN --watch--> GONE
 *   ^ '-------------------watch-----------------------^
 *   '----GET answered 404---------'
 *
 * Silence proves nothing: an expectation ends only when the watch shows the pod or the
 * API server, asked for it, says that it is not there. */
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

struct observed {
    const struct worker *w;       /* by replica index */
    uint32_t n;                   /* the job's replicas */
    bool has_secret, has_service; /* known to exist and to be ours */
};

/* What went wrong while this sync carried out its plan. */
enum trouble {
    TROUBLE_NONE,
    TROUBLE_REJECTED, /* will not get better by itself: the job fails */
    TROUBLE_RETRY,    /* tried again with back-off; shown in condition Created */
};
struct outcome {
    enum trouble trouble;
    const char *reason; /* CamelCase */
    const char *message;
};

#endif

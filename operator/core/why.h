/* SPDX-License-Identifier: Apache-2.0 */
/* Why is the job not running? One sentence, for both kinds of job, from everything that is
 * known: the API server's refusals, Kueue, the PodGroup, the scheduler, volumes, images,
 * init containers, containers, and the agents. The obstacles are in causal order: the
 * first one is named first, another one only if it is not a consequence of it. Equal
 * reasons of several pods are named once. The sentence has no elapsed time, so that it
 * stays the same from sync to sync. Pure. */
#ifndef OPERATOR_CORE_WHY_H
#define OPERATOR_CORE_WHY_H

#include "operator/core/meta.h"
#include "operator/core/observed.h"
#include "runtime/base/arena.h"

enum obstacle { /* in the order in which a pod meets them */
                OBSTACLE_NONE,
                OBSTACLE_REFUSED,   /* the pod or another object cannot be created */
                OBSTACLE_GROUP,     /* the PodGroup of the gang */
                OBSTACLE_SCHEDULER, /* no node, or no scheduler */
                OBSTACLE_VOLUME,
                OBSTACLE_NETWORK, /* and the sandbox */
                OBSTACLE_IMAGE,
                OBSTACLE_START, /* a container is not created or not started */
                /* from here on the pod makes progress */
                OBSTACLE_INIT,     /* an init container runs */
                OBSTACLE_STARTING, /* the kubelet prepares the pod */
};

struct why_query {
    const struct job_meta *job;
    const struct observed *seen;
    const struct job_shape *shape;
    const struct sync_outcome *outcome;
    uint32_t n_pods, n_running; /* that the job requires; that run or have succeeded */
    bool is_gang;               /* its pods start together or not at all */
    uint64_t now_wall_s;
};
struct why {
    enum obstacle first;
    const char *detail; /* of the first obstacle, part of text; "" if there is none */
    const char *text;   /* "1 of 2 workers run; worker 1 (node n3) cannot pull ..." */
};

/* Of a job whose pods do not all run. -ENOMEM. */
int why_not_running(const struct why_query *q, struct arena *a, struct why *ret);
/* The wall time when a pod's wait, of which no event will tell, is worth a word; 0: none. */
uint64_t why_next_s(const struct observed *seen, uint64_t now_s);
/* Of a suspended job. since_s: when it was suspended. NULL: out of memory. */
const char *why_suspended(const struct job_meta *job,
                          const struct inquiry *known,
                          uint64_t since_s,
                          struct arena *a);
/* Of a job whose pods all run: "; 7 of 8 agents have ...", or "" if they have met. NULL:
 * out of memory. */
const char *why_not_met(const struct job_meta *job,
                        const struct live_report *live,
                        struct arena *a);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What one object says that no watch shows, about a job that waits: the PodGroup of pods
 * that stay unscheduled, or Kueue's Workload of a suspended job. It is requested when the
 * wait has lasted for a while and then ever more rarely; a job that runs costs nothing.
 * Without the right, or without the other program, the job's status says only what is
 * known otherwise. Pure. */
#ifndef OPERATOR_CORE_INQUIRY_H
#define OPERATOR_CORE_INQUIRY_H

#include <stdint.h>

#include "operator/doc/node.h"
#include "operator/kube/path.h"
#include "runtime/base/arena.h"

#define INQUIRY_AFTER_S   20u  /* since the wait began */
#define INQUIRY_AGAIN_S   30u  /* to the second request; then each wait is doubled */
#define INQUIRY_LONGEST_S 600u /* between two requests */
#define INQUIRY_TEXT_SIZE 768

enum inquiry_result {
    INQUIRY_UNKNOWN, /* not requested, or there was no answer */
    INQUIRY_FOUND,
    INQUIRY_ABSENT, /* no such object */
    INQUIRY_DENIED, /* no right, or the API server does not know the kind */
};
struct inquiry {         /* zeroed: nothing is known */
    enum kube_kind kind; /* of the object: KUBE_*_GROUP, KUBE_WORKLOAD */
    enum inquiry_result result;
    uint64_t asked_s; /* wall time of the last request; 0: none */
    uint32_t n_asked;
    char text[INQUIRY_TEXT_SIZE]; /* FOUND: what it says; "": nothing of use */
};

/* A request that a waiting job needs now or later. */
struct inquiry_need {
    enum kube_kind kind;
    const char *name; /* of the PodGroup; of the job for KUBE_WORKLOAD */
    uint64_t since_s; /* wall time when the wait began; 0: the job does not wait so */
};

struct observed;
/* Whether the pods of the job wait for their scheduler, and since when. */
struct inquiry_need
inquiry_for_group(const struct observed *seen, enum kube_kind kind, const char *name);
/* The wall time of the next request; 0: never. */
uint64_t inquiry_next_s(const struct inquiry *known, const struct inquiry_need *need);
struct job_plan;
/* Adds a VERB_EXPLAIN for the object, if it is due. -ENOMEM. */
int inquiry_add(struct job_plan *plan,
                const struct inquiry *known,
                const struct inquiry_need *need,
                uint64_t now_s,
                uint32_t stage,
                struct arena *a);

/* Takes over an answer. object: the PodGroup, or a list of Workloads; NULL unless the
 * result is INQUIRY_FOUND. */
void inquiry_take(struct inquiry *known,
                  enum kube_kind kind,
                  enum inquiry_result result,
                  const struct node *object,
                  uint64_t now_s);

#endif

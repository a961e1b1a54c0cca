/* SPDX-License-Identifier: Apache-2.0 */
/* spec.elasticPolicy.
 *
 *   spec.replicas      minReplicas to maxReplicas; it can change at any time
 *   worker pods        replicas + spares
 *   role Launcher      that of the spec, or one that the operator adds (hvd_launcher.c):
 *                      it runs horovodrun, which leads the job (runtime/launch/README.md)
 *
 * The pods of workers are replaceable: horovodrun forms a world without a lost one. The
 * end of the launcher pod is that of the job, unless the pod was removed: the agents keep
 * the processes, and the next launcher leads them (hvd_loss.c). Called by hvd_decode.c,
 * hvd_validate.c, hvd_verdict.c and hvd_plan.c. */
#include "operator/core/hvd/hvd_elastic.h"

#include <string.h>

#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_fields.h"

#define PATH        "spec.elasticPolicy"
#define REPLICAS    "spec.replicaSpecs.Worker.replicas"
#define MAX_COUNT   1000000
#define MAX_RANKS   65536 /* of an elastic job: runtime/launch/core/elastic.c */
#define SHORT_RUN_S 60
/* Reason of DisruptionTarget: by the taint of a node that is not ready. */
#define NODE_LOST   "DeletionByTaintManager"

void hvd_elastic_decode(const struct node *spec, struct hvd_job *job, struct strbuf *p)
{
    static const char *const known[] = {"minReplicas", "maxReplicas", "maxRestarts",
                                        "resetLimit",  "spares",      NULL};
    static const char *const required[] = {"minReplicas", "maxReplicas"};
    const struct node *o = field_object(spec, "spec", "elasticPolicy", false, p);
    struct hvd_elastic *e = &job->elastic;

    if (!o)
        return;
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        if (!node_get(o, required[i]))
            strbuf_printf(p, PATH ".%s: missing\n", required[i]);
    }
    e->is_set = true;
    e->min = (uint32_t)field_int(o, PATH, "minReplicas", 1, 1, JOB_MAX_REPLICAS, p);
    e->max = (uint32_t)field_int(o, PATH, "maxReplicas", JOB_MAX_REPLICAS, 1,
                                 JOB_MAX_REPLICAS, p);
    e->max_restarts = field_int(o, PATH, "maxRestarts", -1, 0, MAX_COUNT, p);
    e->reset_limit = field_int(o, PATH, "resetLimit", -1, 0, MAX_COUNT, p);
    e->spares = (uint32_t)field_int(o, PATH, "spares", 0, 0, JOB_MAX_REPLICAS, p);
    field_refuse_unknown(o, PATH, known, p);
    if (job->framework != FRAMEWORK_HOROVOD || job->role[ROLE_LAUNCHER].is_set)
        return;
    e->makes_launcher = true;
    job->role[ROLE_LAUNCHER].is_set = true;
    job->role[ROLE_LAUNCHER].n = 1;
}

uint32_t hvd_most_workers(const struct hvd_job *job)
{
    return job->elastic.is_set ? job->elastic.max + job->elastic.spares
                               : job->role[ROLE_WORKER].n;
}

void hvd_elastic_check(const struct hvd_job *job, struct strbuf *p)
{
    const struct hvd_elastic *e = &job->elastic;
    const uint32_t n = job->role[ROLE_WORKER].n, most = hvd_most_workers(job);

    if (!e->is_set)
        return;
    if (job->framework != FRAMEWORK_HOROVOD)
        strbuf_puts(p,
                    PATH ": is for framework horovod, and framework is tensorflow\n");
    if (e->min > e->max)
        strbuf_printf(p, PATH ".minReplicas: %u is above %u, maxReplicas\n", e->min,
                      e->max);
    if (n < e->min)
        strbuf_printf(p, REPLICAS ": %u is below %u, " PATH ".minReplicas\n", n,
                      e->min);
    if (n > e->max)
        strbuf_printf(p, REPLICAS ": %u is above %u, " PATH ".maxReplicas\n", n,
                      e->max);
    if (most > JOB_MAX_REPLICAS)
        strbuf_printf(p,
                      PATH ".spares: %u and maxReplicas, %u, are more than %d workers "
                           "together\n",
                      e->spares, e->max, JOB_MAX_REPLICAS);
    else if (most * job->slots > MAX_RANKS)
        strbuf_printf(p,
                      PATH ".maxReplicas: %u and spares, %u, of %u slots are more than "
                           "the %d ranks of an elastic job\n",
                      e->max, e->spares, job->slots, MAX_RANKS);
}

static bool pod_went_before(const struct pod *p, uint64_t at_s)
{
    return p->delete_wall_us != 0 && p->delete_wall_us / 1000000u <= at_s;
}

bool hvd_elastic_has_lost(const struct hvd_job *job,
                          const struct observed *seen,
                          uint32_t index,
                          bool has_all,
                          uint64_t resize_s)
{
    const struct pod *p;

    switch (crew_seat(job, seen, ROLE_WORKER, index, &p)) {
    case SEAT_COMPLETED:
    case SEAT_EXPECTED:
    case SEAT_LEAVING:
        return false;
    case SEAT_EMPTY:
        return has_all;
    case SEAT_TAKEN:
        return pod_has_succeeded(p) || pod_has_failed(p)
               || (p->is_deleting && !pod_went_before(p, resize_s));
    case SEAT_LEFT:
        return !pod_went_before(p, resize_s);
    }
    return false;
}

uint64_t hvd_elastic_again_s(const struct pod *p)
{
    const uint64_t begin_us = p->begin_wall_us ? p->begin_wall_us : p->made_wall_us;

    if (!p->exit_wall_us) /* a kubelet has rejected it, or it was evicted */
        return p->made_wall_us ? p->made_wall_us / 1000000u + HVD_ELASTIC_AGAIN_S : 0;
    if (!begin_us || p->exit_wall_us < begin_us
        || p->exit_wall_us - begin_us >= SHORT_RUN_S * 1000000ull)
        return 0;
    return p->exit_wall_us / 1000000u + HVD_ELASTIC_AGAIN_S;
}

/* Two pods of one worker may run then, but only one has ranks: those of a node that does
 * not answer lose the connection to horovodrun and end. Of two launchers the agents follow
 * the one that has connected last. */
uint64_t hvd_elastic_force_s(const struct pod *p)
{
    bool is_node_lost = p->is_disrupted && strcmp(p->reason, NODE_LOST) == 0;

    return p->is_deleting && is_node_lost && !*p->finalizer ? pod_gone_by_s(p) : 0;
}

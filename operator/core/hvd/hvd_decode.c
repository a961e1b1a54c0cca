/* SPDX-License-Identifier: Apache-2.0 */
/* API object -> struct hvd_job.
 *
 * The CRD's schema refuses most of what is refused here. This check is for objects that
 * were stored under an older or a relaxed schema, and for a CRD newer than this
 * operator: an unknown field is reported as a problem, never ignored. All problems are
 * collected, so that the user sees them at once.
 *
 * Defaults that depend on other fields are set here (slotsPerWorker from the GPUs of
 * the template, successPolicy from the roles), so that no other file repeats the rule.
 * Pure; called by hvd_front.c and the fuzz target. */
#include "operator/core/hvd/hvd_job.h"

#include <stdio.h>
#include <string.h>

#include "operator/core/hvd/hvd_devices.h"
#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_fields.h"
#include "operator/core/hvd/hvd_policy.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"

#define ROLES "spec.replicaSpecs"

void hvd_job_init(struct hvd_job *job, const struct job_meta *meta)
{
    int64_t generation = node_int(meta->status, "generation", 0);

    *job = (struct hvd_job){
        .meta = *meta,
        .slots = 1,
        .rdma_count = 1,
        .run = {.clean = CLEAN_RUNNING,
                .ttl_s = -1,
                .deadline_s = -1,
                .scheduling = {.min_available = -1,
                               .schedule_timeout_s = -1,
                               .queue = "",
                               .priority_class = ""}},
        .role[ROLE_WORKER] = {.is_set = true, .n = 1},
    };
    if (generation > 0 && generation <= UINT32_MAX)
        job->world_generation = (uint32_t)generation;
}

bool hvd_job_is_ours(const struct hvd_job *job)
{
    return !job->run.managed_by || strcmp(job->run.managed_by, JOB_MANAGED_BY) == 0;
}

static void decode_role(const struct node *sets,
                        enum role role,
                        bool is_at_rest,
                        struct hvd_role *ret,
                        struct strbuf *p)
{
    static const char *const of_many[] = {"replicas", "template", NULL};
    static const char *const of_one[] = {"template", NULL};
    bool may_be_many = role == ROLE_WORKER || role == ROLE_PS;
    const struct node *o =
        field_object(sets, ROLES, role_title(role), role == ROLE_WORKER, p);
    char path[64];

    if (!o)
        return;
    (void)snprintf(path, sizeof(path), ROLES ".%s", role_title(role));
    ret->is_set = true;
    ret->n = 1;
    if (may_be_many)
        ret->n = (uint32_t)field_int(o, path, "replicas", 1, 1, JOB_MAX_REPLICAS, p);
    ret->pod_template = field_object(o, path, "template", !is_at_rest, p);
    field_refuse_unknown(o, path, may_be_many ? of_many : of_one, p);
}

static void decode_roles(const struct node *sets, struct hvd_job *job, struct strbuf *p)
{
    const char *known[ROLE_COUNT + 1] = {NULL};

    for (int r = 0; r < ROLE_COUNT; r++) {
        decode_role(sets, (enum role)r, job->meta.is_at_rest, &job->role[r], p);
        known[r] = role_title((enum role)r);
    }
    field_refuse_unknown(sets, ROLES, known, p);
}

static void decode_rdma(const struct node *spec, struct hvd_job *job, struct strbuf *p)
{
    static const char *const known[] = {"resourceName", "count", NULL};
    const struct node *o = field_object(spec, "spec", "rdma", false, p);

    if (!o)
        return;
    if (!node_get(o, "resourceName"))
        strbuf_puts(p, "spec.rdma.resourceName: missing; the name of the node's "
                       "resource, for example rdma/hca_shared_devices_a\n");
    job->rdma_resource = field_text(o, "spec.rdma", "resourceName", NULL, p);
    job->rdma_count = (uint32_t)field_int(o, "spec.rdma", "count", 1, 1, 64, p);
    field_refuse_unknown(o, "spec.rdma", known, p);
}

/* After the roles. */
static uint32_t
decode_slots(const struct node *spec, const struct hvd_job *job, struct strbuf *p)
{
    struct devices d = devices_count(job->role[ROLE_WORKER].pod_template);
    int64_t dflt = 1;

    if (job->framework == FRAMEWORK_HOROVOD && d.n > 0 && d.n <= JOB_MAX_SLOTS)
        dflt = (int64_t)d.n;
    if (job->framework == FRAMEWORK_HOROVOD && d.n > JOB_MAX_SLOTS
        && !node_get(spec, "slotsPerWorker"))
        strbuf_printf(p,
                      "spec.slotsPerWorker: missing; a worker has %llu GPUs, and its "
                      "slots can be 1 to %d\n",
                      (unsigned long long)d.n, JOB_MAX_SLOTS);
    return (uint32_t)field_int(spec, "spec", "slotsPerWorker", dflt, 1, JOB_MAX_SLOTS,
                               p);
}

/* After runPolicy, which has the same field. */
static void
decode_manager(const struct node *spec, struct hvd_run *run, struct strbuf *p)
{
    const char *by = field_text(spec, "spec", "managedBy", NULL, p);

    if (by && run->managed_by && strcmp(by, run->managed_by) != 0)
        strbuf_printf(p,
                      "spec.managedBy: \"%s\" and spec.runPolicy.managedBy, \"%s\", "
                      "differ; set one of them\n",
                      by, run->managed_by);
    if (by)
        run->managed_by = by;
}

int hvd_decode_spec(const struct node *object,
                    struct arena *a,
                    struct hvd_job *ret,
                    struct strbuf *problems)
{
    static const char *const known[] = {"slotsPerWorker",
                                        "framework",
                                        "successPolicy",
                                        "horovod",
                                        "shmSize",
                                        "rdma",
                                        "runPolicy",
                                        "replicaSpecs",
                                        "managedBy",
                                        "elasticPolicy",
                                        NULL};
    static const char *const frameworks[] = {
        [FRAMEWORK_HOROVOD] = "horovod", [FRAMEWORK_TENSORFLOW] = "tensorflow", NULL};
    static const char *const policies[] = {[SUCCESS_ALL_WORKERS] = "AllWorkers",
                                           [SUCCESS_WORKER0] = "Worker0",
                                           [SUCCESS_LAUNCHER] = "Launcher",
                                           NULL};
    const char *flaw = node_str(object, OBJECT_UNREADABLE);
    const struct node *spec = node_get(object, "spec");
    int rc;

    if (flaw) { /* further problems would only follow from this one */
        strbuf_printf(problems, "spec: %s\n", flaw);
        return 0;
    }
    if (!spec || spec->type != NODE_OBJECT) {
        strbuf_puts(problems, spec ? "spec: must be an object, is " : "spec: missing");
        strbuf_printf(problems, "%s\n", spec ? node_type_name(spec->type) : "");
        return 0;
    }
    ret->framework = (enum hvd_framework)field_choice(
        spec, "spec", "framework", frameworks, FRAMEWORK_HOROVOD, problems);
    decode_roles(field_object(spec, "spec", "replicaSpecs", true, problems), ret,
                 problems);
    hvd_elastic_decode(spec, ret, problems);
    ret->slots = decode_slots(spec, ret, problems);
    ret->success = (enum success_policy)field_choice(
        spec, "spec", "successPolicy", policies,
        ret->role[ROLE_LAUNCHER].is_set ? SUCCESS_LAUNCHER : SUCCESS_ALL_WORKERS,
        problems);
    decode_rdma(spec, ret, problems);
    field_refuse_unknown(spec, "spec", known, problems);
    rc = field_quantity(spec, "spec", "shmSize", a, problems, &ret->shm_size);
    if (rc == 0)
        rc = hvd_knobs_decode(field_object(spec, "spec", "horovod", false, problems), a,
                              ret->knob, problems);
    if (rc == 0)
        rc = hvd_policy_decode(field_object(spec, "spec", "runPolicy", false, problems),
                               a, &ret->run, problems);
    if (rc == 0)
        decode_manager(spec, &ret->run, problems);
    return rc;
}

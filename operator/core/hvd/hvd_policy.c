/* SPDX-License-Identifier: Apache-2.0 */
/* spec.runPolicy without its failureRules (hvd_rules.c). */
#include "operator/core/hvd/hvd_policy.h"

#include "operator/core/hvd/hvd_fields.h"

#define PATH       "spec.runPolicy"
#define SCHEDULING PATH ".schedulingPolicy"

static const char *const clean_names[] = {
    [CLEAN_NONE] = "None", [CLEAN_RUNNING] = "Running", [CLEAN_ALL] = "All", NULL};
static const char *const gang_names[] = {[GANG_NONE] = "none",
                                         [GANG_VOLCANO] = "volcano",
                                         [GANG_SCHEDULER_PLUGINS] = "scheduler-plugins",
                                         NULL};

static int decode_scheduling(const struct node *o,
                             struct arena *a,
                             struct hvd_scheduling *ret,
                             struct strbuf *p)
{
    static const char *const known[] = {
        "gang",          "minAvailable",           "queue", "minResources",
        "priorityClass", "scheduleTimeoutSeconds", NULL};
    const char *ignored;
    int rc = 0;
    int gang = field_choice(o, SCHEDULING, "gang", gang_names, -1, p);

    ret->has_gang = gang >= 0;
    ret->gang = gang >= 0 ? (enum gang)gang : GANG_NONE;
    ret->min_available =
        field_int(o, SCHEDULING, "minAvailable", -1, 1, 4 * JOB_MAX_REPLICAS, p);
    ret->schedule_timeout_s =
        field_int(o, SCHEDULING, "scheduleTimeoutSeconds", -1, 1, INT32_MAX, p);
    ret->queue = field_text(o, SCHEDULING, "queue", "", p);
    ret->priority_class = field_text(o, SCHEDULING, "priorityClass", "", p);
    ret->min_resources = field_object(o, SCHEDULING, "minResources", false, p);
    for (const struct node *c = ret->min_resources ? ret->min_resources->first : NULL;
         c && rc == 0; c = c->next)
        rc = field_quantity(ret->min_resources, SCHEDULING ".minResources", c->key, a,
                            p, &ignored);
    field_refuse_unknown(o, SCHEDULING, known, p);
    return rc;
}

int hvd_policy_decode(const struct node *run,
                      struct arena *a,
                      struct hvd_run *ret,
                      struct strbuf *problems)
{
    static const char *const known[] = {"cleanPodPolicy",
                                        "ttlSecondsAfterFinished",
                                        "activeDeadlineSeconds",
                                        "backoffLimit",
                                        "suspend",
                                        "managedBy",
                                        "failureRules",
                                        "schedulingPolicy",
                                        NULL};
    int rc;

    ret->clean = (enum clean_policy)field_choice(run, PATH, "cleanPodPolicy",
                                                 clean_names, CLEAN_RUNNING, problems);
    ret->ttl_s =
        field_int(run, PATH, "ttlSecondsAfterFinished", -1, 0, INT32_MAX, problems);
    ret->deadline_s =
        field_int(run, PATH, "activeDeadlineSeconds", -1, 1, INT32_MAX, problems);
    ret->backoff_limit =
        (uint32_t)field_int(run, PATH, "backoffLimit", 0, 0, 1000, problems);
    ret->is_suspended = field_bool(run, PATH, "suspend", false, problems);
    ret->managed_by = field_text(run, PATH, "managedBy", NULL, problems);
    rc = decode_scheduling(field_object(run, PATH, "schedulingPolicy", false, problems),
                           a, &ret->scheduling, problems);
    field_refuse_unknown(run, PATH, known, problems);
    return rc < 0 ? rc : hvd_rules_decode(run, a, ret, problems);
}

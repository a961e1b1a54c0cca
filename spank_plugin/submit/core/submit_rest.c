/* SPDX-License-Identifier: Apache-2.0 */
/* Fields without counterpart: every field of the job that is in no row of this table, or
 * in a row with a reason, gets a note. So none is lost silently, whatever Kubernetes adds
 * to pods. */
#include "spank_plugin/submit/core/submit.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define PATH_SIZE 320

static const char used[] = "";
static const char inside[] = "inside"; /* its members have rows */

static const char reason_none[] = "has no counterpart in Slurm";
static const char reason_gang[] =
    "is not needed: Slurm starts all tasks of a job at once";
static const char reason_option[] =
    "has no counterpart: pass an option of sbatch, such as --constraint, after --";
static const char reason_priority[] =
    "has no counterpart: pass --qos or --priority of sbatch after --";
static const char reason_image[] =
    "is not used without --container: the program and its framework must be on the "
    "nodes";
static const char reason_user[] =
    "has no counterpart: the program runs as the user who submits it";

static const struct {
    const char *path, *reason;
} rows[] = {
    {"apiVersion", used},
    {"kind", used},
    {"status", used},
    {"metadata", inside},
    {"metadata.name", used},
    {"spec", inside},
    {"spec.slotsPerWorker", used},
    {"spec.framework", used},
    {"spec.successPolicy", used},
    {"spec.shmSize", "has no counterpart: /dev/shm is the node's"},
    {"spec.rdma",
     "is not needed: the program uses the nodes' devices, if the limits of "
     "the nodes let it lock memory"},
    {"spec.horovod", used},
    {"spec.managedBy", reason_none},
    {"spec.elasticPolicy", used},
    {"spec.runPolicy", inside},
    {"spec.runPolicy.cleanPodPolicy",
     "is not needed: Slurm stops all processes of a job that has ended"},
    {"spec.runPolicy.ttlSecondsAfterFinished",
     "is not needed: Slurm forgets a job that has ended (MinJobAge)"},
    {"spec.runPolicy.activeDeadlineSeconds", used},
    {"spec.runPolicy.backoffLimit", used},
    {"spec.runPolicy.suspend", used},
    {"spec.runPolicy.failureRules", used},
    {"spec.runPolicy.schedulingPolicy", inside},
    {"spec.runPolicy.schedulingPolicy.gang", reason_gang},
    {"spec.runPolicy.schedulingPolicy.minAvailable", reason_gang},
    {"spec.runPolicy.schedulingPolicy.queue",
     "has no counterpart: pass --partition of sbatch after --"},
    {"spec.runPolicy.schedulingPolicy.priorityClass", reason_priority},
    {"spec.replicaSpecs", inside},
    {"spec.replicaSpecs.PS", used},
    {"spec.replicaSpecs.Chief", used},
    {"spec.replicaSpecs.Evaluator", used},
    {"spec.replicaSpecs.Worker", inside},
    {"spec.replicaSpecs.Worker.replicas", used},
    {"spec.replicaSpecs.Worker.template", inside},
    {"spec.replicaSpecs.Worker.template.metadata", inside},
    {SUBMIT_POD, inside},
    {SUBMIT_POD ".volumes", used},
    {SUBMIT_POD ".nodeSelector", reason_option},
    {SUBMIT_POD ".affinity", reason_option},
    {SUBMIT_POD ".tolerations", reason_option},
    {SUBMIT_POD ".topologySpreadConstraints",
     "is not needed: each worker has a node of its own"},
    {SUBMIT_POD ".priorityClassName", reason_priority},
    {SUBMIT_POD ".hostNetwork",
     "is not needed: programs of Slurm use the node's network"},
    {SUBMIT_POD ".securityContext", reason_user},
    {SUBMIT_POD ".terminationGracePeriodSeconds",
     "has no counterpart: KillWait of slurm.conf is that time"},
    {SUBMIT_POD ".containers", inside},
    {SUBMIT_FIRST, inside},
    {SUBMIT_FIRST ".name", used},
    {SUBMIT_FIRST ".image", reason_image},
    {SUBMIT_FIRST ".command", used},
    {SUBMIT_FIRST ".args", used},
    {SUBMIT_FIRST ".workingDir", used},
    {SUBMIT_FIRST ".env", used},
    {SUBMIT_FIRST ".envFrom", used},
    {SUBMIT_FIRST ".volumeMounts", used},
    {SUBMIT_FIRST ".securityContext", reason_user},
    {SUBMIT_FIRST ".resources", inside},
    {SUBMIT_FIRST ".resources.limits", inside},
    {SUBMIT_FIRST ".resources.limits.cpu", used},
    {SUBMIT_FIRST ".resources.limits.memory", used},
    {SUBMIT_FIRST ".resources.limits.nvidia.com/gpu", used},
    {SUBMIT_FIRST ".resources.limits.amd.com/gpu", used},
    {SUBMIT_FIRST ".resources.requests", inside},
    {SUBMIT_FIRST ".resources.requests.cpu", used},
    {SUBMIT_FIRST ".resources.requests.memory", used},
    {SUBMIT_FIRST ".resources.requests.nvidia.com/gpu", used},
    {SUBMIT_FIRST ".resources.requests.amd.com/gpu", used},
};

static const char *reason_of(const struct submit *s, const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].path, path) == 0)
            return rows[i].reason == reason_image && s->uses_container ? used
                                                                       : rows[i].reason;
    }
    if (strncmp(path, SUBMIT_FIRST ".resources.", strlen(SUBMIT_FIRST ".resources."))
        == 0)
        return "has no counterpart: pass --gres of sbatch after --";
    return reason_none;
}

static void note_members(struct submit *s, const struct node *o, const char *path);

static void note_field(struct submit *s, const struct node *n, const char *path)
{
    const char *reason = n->type == NODE_NULL ? used : reason_of(s, path);

    if (reason == inside && (n->type == NODE_OBJECT || n->type == NODE_ARRAY))
        note_members(s, n, path);
    else if (reason != used)
        strbuf_printf(s->notes, "%s: %s\n", path, reason);
}

static void note_members(struct submit *s, const struct node *o, const char *path)
{
    size_t i = 0;

    for (const struct node *n = o->first; n; n = n->next, i++) {
        char at[PATH_SIZE];

        if (n->key)
            (void)snprintf(at, sizeof(at), "%s%s%.80s", path, *path ? "." : "", n->key);
        else
            (void)snprintf(at, sizeof(at), "%s[%zu]", path, i);
        note_field(s, n, at);
    }
}

/* Rules that ask for what Slurm does not report. */
static void note_rules(struct submit *s)
{
    const struct hvd_run *run = &s->job->run;

    for (size_t i = 0; i < run->n_rules; i++) {
        const char *field = NULL, *text = "has no counterpart: the rule never matches";

        switch (run->rule[i].subject) {
        case RULE_EXIT_CODES:
        case RULE_SIGNALS:
            break;
        case RULE_POD_CONDITIONS:
            field = "onPodConditions";
            break;
        case RULE_REASONS:
            field = "onReasons";
            break;
        }
        if (!field && run->rule[i].action == RULE_IGNORE) {
            field = "action";
            text = "Ignore: Slurm counts these restarts, too";
        }
        if (field)
            strbuf_printf(s->notes, "spec.runPolicy.failureRules[%zu].%s: %s\n", i,
                          field, text);
    }
}

void submit_note_rest(struct submit *s)
{
    const struct hvd_run *run = &s->job->run;

    if (s->job->knob[KNOB_METRICS_PORT])
        strbuf_puts(s->notes,
                    "spec.horovod.metricsPort: has no counterpart: agents serve "
                    "/metrics, which Slurm's tasks do not have\n");
    if (run->deadline_s > 0 && submit_has_restarts(s))
        strbuf_puts(s->notes, "spec.runPolicy.activeDeadlineSeconds: is Slurm's limit "
                              "for each start, not for all together\n");
    note_rules(s);
    note_members(s, s->object, "");
}

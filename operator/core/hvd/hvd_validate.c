/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the CRD's schema and CEL rules cannot express: fields that exclude each
 * other, names that get too long, collisions between the user's pod templates and the
 * operator's additions (hvd_validate_pod.c). The rules of the schema are checked again
 * for objects that were stored without it. Everything else about a pod is left to the
 * API server, which validates the fields strictly when the pods are created.
 *
 * Every problem is one line; the caller reports all of them. Pure. */
#include "operator/core/hvd/hvd_validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_devices.h"
#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_names.h"
#include "operator/core/hvd/hvd_tf_config.h"
#include "runtime/contract/agent_env.h"

#define MAX_VARIABLE   131072  /* NAME=VALUE with its NUL, by Linux */
#define MAX_CONFIG_MAP 1048576 /* of data, by Kubernetes */

static bool name_is_dns_label(const char *s)
{
    size_t n = strlen(s);

    if (n == 0 || n > 63 || s[0] < 'a' || s[0] > 'z' || s[n - 1] == '-')
        return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

/* The highest index that a pod of the role can have. */
static uint32_t role_last(const struct hvd_job *job, enum role role)
{
    return (role == ROLE_WORKER ? hvd_most_workers(job) : job->role[role].n) - 1;
}

static void job_check_name(const struct hvd_job *job, struct strbuf *p)
{
    const char *name = job->meta.name;
    int longest = 0, of = ROLE_WORKER;

    for (int r = 0; r < ROLE_COUNT; r++) {
        int n = 0;

        if (job->role[r].n > 0)
            n = snprintf(NULL, 0, "%s-%s-%u", name, role_name((enum role)r),
                         role_last(job, (enum role)r));
        if (n > longest) {
            longest = n;
            of = r;
        }
    }
    if (longest > 63)
        strbuf_printf(p,
                      "metadata.name: \"%s\" is too long: the last %s would be "
                      "named %s-%s-%u, %d characters, where Kubernetes allows 63\n",
                      name, role_name((enum role)of), name, role_name((enum role)of),
                      role_last(job, (enum role)of), longest);
    else if (!name_is_dns_label(name))
        strbuf_printf(p,
                      "metadata.name: \"%s\" must be lower-case letters, digits and "
                      "'-', starting with a letter and not ending with '-'\n",
                      name);
}

static void check_roles(const struct hvd_job *job, struct strbuf *p)
{
    bool is_tf = job->framework == FRAMEWORK_TENSORFLOW;

    for (int r = ROLE_PS; r < ROLE_COUNT && !is_tf; r++) {
        if (job->role[r].is_set)
            strbuf_printf(p,
                          "spec.replicaSpecs.%s: is for framework tensorflow, and "
                          "framework is horovod\n",
                          role_title((enum role)r));
    }
    if (is_tf && job->role[ROLE_LAUNCHER].is_set)
        strbuf_puts(p, "spec.replicaSpecs.Launcher: is for framework horovod, and "
                       "framework is tensorflow\n");
}

static void check_tensorflow(const struct hvd_job *job, struct strbuf *p)
{
    bool has_knob = false;

    if (job->framework != FRAMEWORK_TENSORFLOW)
        return;
    for (int k = 0; k < KNOB_COUNT; k++)
        has_knob |= job->knob[k] != NULL;
    if (has_knob)
        strbuf_puts(p, "spec.horovod: has no effect with framework tensorflow; remove "
                       "it\n");
    if (job->slots != 1)
        strbuf_printf(p,
                      "spec.slotsPerWorker: %u is not 1: with framework tensorflow "
                      "each pod runs its command once, with all its GPUs\n",
                      job->slots);
}

static void check_success(const struct hvd_job *job, struct strbuf *p)
{
    bool has_launcher = job->role[ROLE_LAUNCHER].is_set;

    if (job->elastic.makes_launcher && job->success != SUCCESS_LAUNCHER)
        strbuf_puts(p, "spec.successPolicy: must be Launcher with elasticPolicy: the "
                       "job ends with the launcher pod that the operator adds\n");
    else if (has_launcher && job->success != SUCCESS_LAUNCHER)
        strbuf_puts(p, "spec.successPolicy: must be Launcher with a Launcher: the "
                       "workers finish only with the job\n");
    else if (!has_launcher && job->success == SUCCESS_LAUNCHER)
        strbuf_puts(p, "spec.successPolicy: \"Launcher\" needs "
                       "spec.replicaSpecs.Launcher\n");
    else if (job->success == SUCCESS_WORKER0 && job->framework != FRAMEWORK_TENSORFLOW)
        strbuf_puts(p, "spec.successPolicy: \"Worker0\" needs framework tensorflow: "
                       "with horovod all ranks finish together; write AllWorkers\n");
}

static void check_metrics(const struct hvd_job *job, struct strbuf *p)
{
    const char *port = job->knob[KNOB_METRICS_PORT];
    unsigned long n = port ? strtoul(port, NULL, 10) : 0;

    if (n == AGENT_DEFAULT_PORT || n == AGENT_SERVE_PORT)
        strbuf_printf(p,
                      "spec.horovod.metricsPort: %lu is a port of the agents; choose "
                      "another than %d and %d\n",
                      n, AGENT_DEFAULT_PORT, AGENT_SERVE_PORT);
    if (port && job->role[ROLE_LAUNCHER].is_set)
        strbuf_puts(p, "spec.horovod.metricsPort: has no effect with a Launcher: the "
                       "agents do not run what it starts; remove it\n");
}

/* A claim may be of several devices; how many is not known here. */
static void check_devices(const struct hvd_job *job, struct strbuf *p)
{
    struct devices d = devices_count(job->role[ROLE_WORKER].pod_template);

    if (job->framework == FRAMEWORK_HOROVOD && d.n > 0 && d.n_claims == 0
        && job->slots > d.n)
        strbuf_printf(p,
                      "spec.slotsPerWorker: %u is above %llu, the GPUs that a worker's "
                      "first container requests\n",
                      job->slots, (unsigned long long)d.n);
}

/* Texts whose size depends on the number of pods must fit. The operator's cluster
 * domain is not known here, so the API server may still refuse them. */
static void check_sizes(const struct hvd_job *job, struct strbuf *p)
{
    static const struct object_config cfg = {.cluster_domain = ""};
    uint32_t last = role_last(job, ROLE_WORKER);
    char host[HOST_SIZE];
    struct strbuf text;
    size_t lines;

    object_host(job, &cfg, ROLE_WORKER, last, host);
    lines = 2 * (size_t)(last + 1) * (strlen(host) + strlen(" slots=99"));
    if (job->role[ROLE_LAUNCHER].is_set && lines > MAX_CONFIG_MAP)
        strbuf_printf(p,
                      "spec.replicaSpecs.Worker.replicas: %u is too many with a "
                      "Launcher: their names do not fit into a ConfigMap\n",
                      last + 1);
    if (job->framework != FRAMEWORK_TENSORFLOW)
        return;
    strbuf_init(&text, MAX_VARIABLE);
    strbuf_puts(&text, "TF_CONFIG=");
    tf_config(job, &cfg, ROLE_WORKER, last, &text);
    if (strbuf_status(&text) || text.n >= MAX_VARIABLE)
        strbuf_printf(p,
                      "spec.replicaSpecs: has too many pods: their names do not fit "
                      "into TF_CONFIG, which Linux limits to %d bytes\n",
                      MAX_VARIABLE);
    strbuf_release(&text);
}

void hvd_validate(const struct hvd_job *job, struct strbuf *problems)
{
    job_check_name(job, problems);
    check_roles(job, problems);
    hvd_elastic_check(job, problems);
    check_tensorflow(job, problems);
    check_success(job, problems);
    check_metrics(job, problems);
    check_devices(job, problems);
    check_sizes(job, problems);
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (job->role[r].pod_template)
            hvd_validate_pod(job, (enum role)r, problems);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher pod of an elastic job whose spec has no Launcher.
 *
 *   of the Worker's spec    kept: node selection, tolerations, accounts, security, volumes,
 *                           and of the first container image, environment, mounts
 *                           dropped: other containers, rules that place pods beside or
 *                           away from each other, probes, hooks, ports
 *                           replaced: resources, command
 *
 * horovodrun needs little: it connects the agents and prints the output of the ranks.
 * Its environment is that of the ranks, therefore the image and the variables are the
 * Worker's. Called by hvd_pod.c. */
#include <stdio.h>

#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_pod.h"
#include "runtime/base/mem.h"

#define LAUNCHER_CPU    "100m"
#define LAUNCHER_MEMORY "128Mi"
#define HOSTS_COMMAND   AGENT_COMMAND " hosts"

static void
put_option(struct build *b, struct node *command, const char *name, uint64_t n)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    node_add_str(b, command, name);
    node_add_str(b, command, text);
}

static struct node *
launcher_command(struct build *b, const struct hvd_job *job, const struct node *words)
{
    const struct hvd_elastic *e = &job->elastic;
    const char *timeout = job->knob[KNOB_START_TIMEOUT];
    const uint64_t slots = job->slots, spares = e->spares;
    struct node *command = node_array(b);

    node_add_str(b, command, MOUNT_RUNTIME "/bin/horovodrun");
    node_add_str(b, command, "--verbose");
    put_option(b, command, "-np", (job->role[ROLE_WORKER].n - spares) * slots);
    put_option(b, command, "--min-np", e->min * slots);
    put_option(b, command, "--max-np", e->max * slots);
    if (spares > 0)
        put_option(b, command, "--spares", spares * slots);
    if (e->reset_limit >= 0)
        put_option(b, command, "--reset-limit", (uint64_t)e->reset_limit);
    if (timeout) {
        node_add_str(b, command, "--elastic-timeout");
        node_add_str(b, command, timeout);
    }
    node_add_str(b, command, "--token-file");
    node_add_str(b, command, AGENT_TOKEN_PATH);
    node_add_str(b, command, "--host-discovery-script");
    node_add_str(b, command, HOSTS_COMMAND);
    node_add_str(b, command, "--");
    for (const struct node *c = words ? words->first : NULL; c; c = c->next)
        node_add(b, command, node_copy(b, c));
    return command;
}

static struct node *launcher_resources(struct build *b)
{
    struct node *resources = node_object(b);
    struct node *requests = node_child(b, resources, "requests", NODE_OBJECT);

    node_set_str(b, requests, "cpu", LAUNCHER_CPU);
    node_set_str(b, requests, "memory", LAUNCHER_MEMORY);
    return resources;
}

struct node *hvd_launcher_spec(struct build *b, const struct hvd_job *job)
{
    static const char *const of_pod[] = {"initContainers", "resourceClaims",
                                         "resources", "topologySpreadConstraints"};
    static const char *const of_affinity[] = {"podAffinity", "podAntiAffinity"};
    static const char *const of_container[] = {"livenessProbe", "readinessProbe",
                                               "startupProbe", "lifecycle", "ports"};
    struct node *spec =
        node_copy(b, node_get(job->role[ROLE_WORKER].pod_template, "spec"));
    struct node *first = node_copy(b, node_item(node_get(spec, "containers"), 0));
    struct node *containers = node_array(b);

    for (size_t i = 0; i < ARRAY_LEN(of_pod); i++)
        node_drop(spec, of_pod[i]);
    for (size_t i = 0; i < ARRAY_LEN(of_affinity) && node_get(spec, "affinity"); i++)
        node_drop(node_child(b, spec, "affinity", NODE_OBJECT), of_affinity[i]);
    for (size_t i = 0; i < ARRAY_LEN(of_container); i++)
        node_drop(first, of_container[i]);
    node_set(b, first, "resources", launcher_resources(b));
    node_set(b, first, "command", launcher_command(b, job, node_get(first, "command")));
    node_add(b, containers, first);
    node_set(b, spec, "containers", containers);
    return spec;
}

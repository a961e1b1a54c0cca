/* SPDX-License-Identifier: Apache-2.0 */
/* The pod template of a role: no collisions with the operator's additions, and the
 * fields that these require. Every problem is one line. Pure; called by
 * hvd_validate.c. */
#include "operator/core/hvd/hvd_validate.h"

#include <stdio.h>
#include <string.h>

#include "operator/core/hvd/hvd_pod.h"
#include "runtime/base/mem.h"

#define PATH_SIZE 96

struct pod_check { /* of one template */
    const struct hvd_job *job;
    enum pod_part part;
    enum role role;
    char spec[PATH_SIZE];  /* path of the pod's spec */
    char first[PATH_SIZE]; /* of its first container */
    const struct node *container;
    struct strbuf *p;
};

/* No element of o's array of that name may have key == taken. */
static void check_taken(const struct pod_check *c,
                        const char *path,
                        const struct node *o,
                        const char *array,
                        const char *key,
                        const char *taken)
{
    const struct node *list = node_get(o, array);
    size_t i = 0;

    for (const struct node *e = list ? list->first : NULL; e; e = e->next, i++) {
        const char *s = node_str(e, key);

        if (s && strcmp(s, taken) == 0)
            strbuf_printf(c->p,
                          "%s.%s[%zu].%s: \"%s\" is used by Ringmaster itself; "
                          "choose another\n",
                          path, array, i, key, s);
    }
}

static void check_volume(const struct pod_check *c,
                         const struct node *spec,
                         const char *volume,
                         const char *path)
{
    check_taken(c, c->spec, spec, "volumes", "name", volume);
    check_taken(c, c->first, c->container, "volumeMounts", "mountPath", path);
}

static void check_env(const struct pod_check *c)
{
    const struct node *env = node_get(c->container, "env");
    size_t i = 0;

    for (const struct node *e = env ? env->first : NULL; e; e = e->next, i++) {
        const char *name = node_str(e, "name");

        if (name && inject_env_is_reserved(name))
            strbuf_printf(c->p,
                          "%s.env[%zu].name: %s is set by the operator; remove it\n",
                          c->first, i, name);
    }
}

static void check_command(const struct pod_check *c)
{
    const struct node *command = node_get(c->container, "command");
    size_t i = 0;

    if (!command || command->type != NODE_ARRAY || command->n == 0) {
        strbuf_printf(
            c->p,
            "%s.command: missing: Kubernetes does not report which program an "
            "image starts by itself, so write it here, for example "
            "[\"python\", \"train.py\"]\n",
            c->first);
        return;
    }
    for (const struct node *e = command->first; e; e = e->next, i++) {
        if (e->type != NODE_STRING)
            strbuf_printf(c->p, "%s.command[%zu]: must be a string, is %s\n", c->first,
                          i, node_type_name(e->type));
    }
}

static void check_no_command(const struct pod_check *c)
{
    static const char *const names[] = {"command", "args"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (node_get(c->container, names[i]))
            strbuf_printf(c->p,
                          "%s.%s: with a Launcher the workers run hvd-agent serve, "
                          "and the launcher starts programs in them; remove it\n",
                          c->first, names[i]);
    }
}

static void check_array(const struct pod_check *c,
                        const struct node *o,
                        const char *key,
                        const char *path)
{
    const struct node *n = node_get(o, key);

    if (n && n->type != NODE_ARRAY)
        strbuf_printf(c->p, "%s.%s: must be an array, is %s\n", path, key,
                      node_type_name(n->type));
}

static void check_rdma(const struct pod_check *c)
{
    static const char *const sides[] = {"requests", "limits"};
    const struct node *resources = node_get(c->container, "resources");

    if (!c->job->rdma_resource || c->role != ROLE_WORKER)
        return;
    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        if (node_get(node_get(resources, sides[i]), c->job->rdma_resource))
            strbuf_printf(
                c->p,
                "%s.resources.%s: %s is also added by spec.rdma; remove one of "
                "the two\n",
                c->first, sides[i], c->job->rdma_resource);
    }
}

/* True if hvd-agent runs in the pods of this part. */
static void check_runtime(const struct pod_check *c, const struct node *spec)
{
    bool is_launch = c->part == PART_LAUNCH || c->job->elastic.makes_launcher;

    if (c->part != PART_LAUNCH || c->job->elastic.is_set)
        check_env(c);
    check_taken(c, c->spec, spec, "initContainers", "name", INIT_CONTAINER);
    check_taken(c, c->spec, spec, "containers", "name", INIT_CONTAINER);
    check_volume(c, spec, VOLUME_RUNTIME, MOUNT_RUNTIME);
    check_volume(c, spec, VOLUME_TOKEN, MOUNT_TOKEN);
    if (c->part == PART_RANKS || (is_launch && c->job->elastic.is_set))
        check_volume(c, spec, VOLUME_WORLD, MOUNT_WORLD);
    if (is_launch)
        check_volume(c, spec, VOLUME_HOSTS, MOUNT_HOSTS);
}

static void hvd_check_pod(struct pod_check *c, const struct node *spec)
{
    static const char *const of_pod[] = {"initContainers", "volumes"};
    static const char *const of_container[] = {"args", "env", "ports", "volumeMounts"};

    c->container = node_item(node_get(spec, "containers"), 0);
    for (size_t i = 0; i < ARRAY_LEN(of_pod); i++)
        check_array(c, spec, of_pod[i], c->spec);
    if (!c->container || c->container->type != NODE_OBJECT) {
        strbuf_printf(c->p, "%s.containers: must hold at least one container\n",
                      c->spec);
        return;
    }
    if (!node_str(c->container, "image"))
        strbuf_printf(c->p, "%s.image: missing\n", c->first);
    for (size_t i = 0; i < ARRAY_LEN(of_container); i++)
        check_array(c, c->container, of_container[i], c->first);
    if (c->part == PART_SERVE && !c->job->elastic.makes_launcher)
        check_no_command(c);
    else if (c->part != PART_TENSORFLOW) /* the image determines the command */
        check_command(c);
    if (c->part != PART_TENSORFLOW)
        check_runtime(c, spec);
    if (c->job->shm_size && c->role != ROLE_LAUNCHER)
        check_volume(c, spec, VOLUME_SHM, MOUNT_SHM);
    check_rdma(c);
}

static void check_labels(const struct pod_check *c, const struct node *meta)
{
    static const char *const names[] = {"labels", "annotations"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct node *o = node_get(meta, names[i]);

        if (o && o->type != NODE_OBJECT)
            strbuf_printf(c->p,
                          "spec.replicaSpecs.%s.template.metadata.%s: must be an "
                          "object, is %s\n",
                          role_title(c->role), names[i], node_type_name(o->type));
    }
}

void hvd_validate_pod(const struct hvd_job *job,
                      enum role role,
                      struct strbuf *problems)
{
    const struct node *spec = node_get(job->role[role].pod_template, "spec");
    struct pod_check c = {
        .job = job, .role = role, .part = pod_part(job, role), .p = problems};

    (void)snprintf(c.spec, sizeof(c.spec), "spec.replicaSpecs.%s.template.spec",
                   role_title(role));
    (void)snprintf(c.first, sizeof(c.first),
                   "spec.replicaSpecs.%s.template.spec.containers[0]",
                   role_title(role));
    check_labels(&c, node_get(job->role[role].pod_template, "metadata"));
    if (!spec || spec->type != NODE_OBJECT)
        strbuf_printf(problems, "%s: missing\n", c.spec);
    else
        hvd_check_pod(&c, spec);
}

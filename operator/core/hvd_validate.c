/* SPDX-License-Identifier: Apache-2.0 */
/* What the CRD's schema and CEL rules cannot see: collisions between the user's pod
 * template and what the operator adds to it, and the rules of the schema once more for
 * objects that were stored without it. Everything else about a pod is left to the API
 * server, which is asked with strict field validation when the pods are created.
 *
 * Every problem is one line; the caller shows them all. Pure. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/hvd_job.h"
#include "operator/core/inject.h"
#include "runtime/base/mem.h"

#define SPEC "spec.replicaSpecs.Worker.template.spec"

static bool is_dns_label(const char *s)
{
    size_t n = strlen(s);

    if (n == 0 || n > 63 || s[0] < 'a' || s[0] > 'z' || s[n - 1] == '-')
        return false;
    return strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static void check_name(const struct hvd_job *job, struct strbuf *p)
{
    char last[512];
    int n = snprintf(last, sizeof(last), "%s-worker-%u", job->meta.name,
                     job->role[ROLE_WORKER].n - 1);

    if (n > 63)
        strbuf_printf(p,
                      "metadata.name: \"%s\" is too long: the last worker would be "
                      "named %s-worker-%u, %d characters, where Kubernetes allows 63\n",
                      job->meta.name, job->meta.name, job->role[ROLE_WORKER].n - 1, n);
    else if (!is_dns_label(job->meta.name))
        strbuf_printf(p,
                      "metadata.name: \"%s\" must be lower-case letters, digits and "
                      "'-', starting with a letter and not ending with '-'\n",
                      job->meta.name);
}

/* No element of array may have key == taken. */
static void check_taken(const struct node *array,
                        const char *path,
                        const char *key,
                        const char *taken,
                        struct strbuf *p)
{
    size_t i = 0;

    for (const struct node *c = array ? array->first : NULL; c; c = c->next, i++) {
        const char *s = node_str(c, key);

        if (s && strcmp(s, taken) == 0)
            strbuf_printf(p,
                          "%s[%zu].%s: \"%s\" is what Ringmaster itself adds; choose "
                          "another\n",
                          path, i, key, s);
    }
}

static void check_env(const struct node *container, struct strbuf *p)
{
    const struct node *env = node_get(container, "env");
    size_t i = 0;

    for (const struct node *c = env ? env->first : NULL; c; c = c->next, i++) {
        const char *name = node_str(c, "name");

        if (name && inject_env_is_reserved(name))
            strbuf_printf(p,
                          SPEC ".containers[0].env[%zu].name: %s is set by the "
                               "operator; remove it\n",
                          i, name);
    }
}

static void check_command(const struct node *container, struct strbuf *p)
{
    const struct node *command = node_get(container, "command");
    size_t i = 0;

    if (!command || command->type != NODE_ARRAY || command->n == 0) {
        strbuf_puts(p, SPEC ".containers[0].command: missing: Kubernetes does not "
                            "tell which program an image starts by itself, so write "
                            "it here, for example [\"python\", \"train.py\"]\n");
        return;
    }
    for (const struct node *c = command->first; c; c = c->next, i++) {
        if (c->type != NODE_STRING)
            strbuf_printf(p,
                          SPEC ".containers[0].command[%zu]: must be a string, is "
                               "%s\n",
                          i, node_type_name(c->type));
    }
}

static void
check_array(const struct node *o, const char *key, const char *path, struct strbuf *p)
{
    const struct node *n = node_get(o, key);

    if (n && n->type != NODE_ARRAY)
        strbuf_printf(p, "%s.%s: must be an array, is %s\n", path, key,
                      node_type_name(n->type));
}

static void check_pod(const struct node *spec, struct strbuf *p)
{
    const struct node *containers = node_get(spec, "containers");
    const struct node *first = node_item(containers, 0);

    check_array(spec, "initContainers", SPEC, p);
    check_array(spec, "volumes", SPEC, p);
    if (!first || first->type != NODE_OBJECT) {
        strbuf_puts(p, SPEC ".containers: must hold at least one container\n");
        return;
    }
    if (!node_str(first, "image"))
        strbuf_puts(p, SPEC ".containers[0].image: missing\n");
    check_array(first, "args", SPEC ".containers[0]", p);
    check_array(first, "env", SPEC ".containers[0]", p);
    check_array(first, "volumeMounts", SPEC ".containers[0]", p);
    check_command(first, p);
    check_env(first, p);
    check_taken(node_get(spec, "volumes"), SPEC ".volumes", "name", VOLUME_RUNTIME, p);
    check_taken(node_get(spec, "volumes"), SPEC ".volumes", "name", VOLUME_TOKEN, p);
    check_taken(node_get(spec, "initContainers"), SPEC ".initContainers", "name",
                INIT_CONTAINER, p);
    check_taken(containers, SPEC ".containers", "name", INIT_CONTAINER, p);
    check_taken(node_get(first, "volumeMounts"), SPEC ".containers[0].volumeMounts",
                "mountPath", MOUNT_RUNTIME, p);
    check_taken(node_get(first, "volumeMounts"), SPEC ".containers[0].volumeMounts",
                "mountPath", MOUNT_TOKEN, p);
}

static void check_labels(const struct node *meta, struct strbuf *p)
{
    static const char *const names[] = {"labels", "annotations"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct node *o = node_get(meta, names[i]);

        if (o && o->type != NODE_OBJECT)
            strbuf_printf(p,
                          "spec.replicaSpecs.Worker.template.metadata.%s: must be "
                          "an object, is %s\n",
                          names[i], node_type_name(o->type));
    }
}

void hvd_validate(const struct hvd_job *job, struct strbuf *problems)
{
    const struct node *spec = node_get(job->role[ROLE_WORKER].pod_template, "spec");

    check_name(job, problems);
    if (!job->role[ROLE_WORKER].pod_template)
        return; /* hvd_decode_spec has said so */
    check_labels(node_get(job->role[ROLE_WORKER].pod_template, "metadata"), problems);
    if (!spec || spec->type != NODE_OBJECT)
        strbuf_puts(problems, SPEC ": missing\n");
    else
        check_pod(spec, problems);
}

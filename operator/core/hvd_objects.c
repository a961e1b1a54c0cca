/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of what a HorovodJob owns: Secret, headless Service, worker pods.
 *
 * Invariants
 *  1. Every object carries the controller's owner reference with the job's uid: garbage
 * collection removes it with the job, and adoption compares this uid.
 *  2. The user's pod template passes through; we add to it and change only
 * restartPolicy, hostname and subdomain, and the command of container 0, which we put
 * behind `hvd-agent run --`.
 * The names are fixed by the job's name, so that a second creation is seen by the API
 * server. */
#include "operator/core/hvd_objects.h"

#include <stdio.h>

#include "operator/core/inject.h"

#define DEFAULT_TERMINATION_LOG "/dev/termination-log"

void object_worker_name(const struct hvd_job *job,
                        uint32_t index,
                        char ret[OBJECT_NAME_SIZE])
{
    (void)snprintf(ret, OBJECT_NAME_SIZE, "%.63s-worker-%u", job->meta.name, index);
}

void object_secret_name(const struct hvd_job *job, char ret[OBJECT_NAME_SIZE])
{
    (void)snprintf(ret, OBJECT_NAME_SIZE, "%.63s-token", job->meta.name);
}

static void set_labels(struct build *b, struct node *meta, const struct hvd_job *job)
{
    struct node *labels = node_child(b, meta, "labels", NODE_OBJECT);

    node_set_str(b, labels, LABEL_JOB_NAME, job->meta.name);
}

static struct node *object_new(struct build *b,
                               const char *kind,
                               const struct hvd_job *job,
                               const char *name,
                               struct node *meta)
{
    struct node *o = node_object(b);
    struct node *owners = node_array(b), *owner = node_object(b);

    node_set_str(b, o, "apiVersion", "v1");
    node_set_str(b, o, "kind", kind);
    node_set_str(b, meta, "name", name);
    node_set_str(b, meta, "namespace", job->meta.ns);
    set_labels(b, meta, job);
    node_set_str(b, owner, "apiVersion", JOB_API_VERSION);
    node_set_str(b, owner, "kind", JOB_KIND);
    node_set_str(b, owner, "name", job->meta.name);
    node_set_str(b, owner, "uid", job->meta.uid);
    node_set_bool(b, owner, "controller", true);
    node_add(b, owners, owner);
    node_set(b, meta, "ownerReferences", owners);
    node_set(b, o, "metadata", meta);
    return o;
}

struct node *
object_secret(struct build *b, const struct hvd_job *job, const uint8_t token[32])
{
    char name[OBJECT_NAME_SIZE];
    struct node *o;

    object_secret_name(job, name);
    o = object_new(b, "Secret", job, name, node_object(b));
    inject_token(b, o, token);
    return o;
}

struct node *object_service(struct build *b, const struct hvd_job *job)
{
    struct node *o = object_new(b, "Service", job, job->meta.name, node_object(b));
    struct node *spec = node_object(b), *selector = node_object(b);
    struct node *ports = node_array(b), *port = node_object(b);

    node_set_str(b, selector, LABEL_JOB_NAME, job->meta.name);
    node_set_str(b, selector, LABEL_JOB_ROLE, role_name(ROLE_WORKER));
    node_set_str(b, port, "name", "checkin");
    node_set_int(b, port, "port", AGENT_DEFAULT_PORT);
    node_add(b, ports, port);
    node_set_str(b, spec, "clusterIP", "None");
    node_set_bool(b, spec, "publishNotReadyAddresses", true);
    node_set(b, spec, "selector", selector);
    node_set(b, spec, "ports", ports);
    node_set(b, o, "spec", spec);
    return o;
}

/* --- the worker pod ----------------------------------------------------------------
 */

static void fill_agent_env(struct agent_env *a,
                           const struct hvd_job *job,
                           const struct object_config *cfg,
                           uint32_t index,
                           const struct node *container)
{
    const char *log = node_str(container, "terminationMessagePath");
    bool has_domain = cfg->cluster_domain && *cfg->cluster_domain;

    *a = (struct agent_env){
        .worker_index = index,
        .num_workers = job->role[ROLE_WORKER].n,
        .slots = job->slots,
        .np = job->role[ROLE_WORKER].n
              * job->slots, /* said, lest the image or envFrom does */
        .checkin_port = AGENT_DEFAULT_PORT,
        .start_timeout_s = AGENT_DEFAULT_START_TIMEOUT_S,
    };
    (void)snprintf(a->job_id, sizeof(a->job_id), "%s/%s/%s", job->meta.ns,
                   job->meta.name, job->meta.uid);
    (void)snprintf(a->checkin_addr, sizeof(a->checkin_addr),
                   "%s-worker-0.%s.%s.svc%s%s", job->meta.name, job->meta.name,
                   job->meta.ns, has_domain ? "." : "",
                   has_domain ? cfg->cluster_domain : "");
    (void)snprintf(a->token_file, sizeof(a->token_file), "%s", AGENT_TOKEN_PATH);
    (void)snprintf(a->dir, sizeof(a->dir), "%s", MOUNT_RUNTIME);
    (void)snprintf(a->termination_log, sizeof(a->termination_log), "%s",
                   log ? log : DEFAULT_TERMINATION_LOG);
}

static struct node *
pod_metadata(struct build *b, const struct hvd_job *job, uint32_t index)
{
    const struct node *tm = node_get(job->role[ROLE_WORKER].pod_template, "metadata");
    struct node *meta = node_object(b), *labels;
    char text[16];

    if (node_get(tm, "annotations"))
        node_set(b, meta, "annotations", node_copy(b, node_get(tm, "annotations")));
    if (node_get(tm, "labels"))
        node_set(b, meta, "labels", node_copy(b, node_get(tm, "labels")));
    labels = node_child(b, meta, "labels", NODE_OBJECT);
    (void)snprintf(text, sizeof(text), "%u", index);
    node_set_str(b, labels, LABEL_JOB_ROLE, role_name(ROLE_WORKER));
    node_set_str(b, labels, LABEL_REPLICA_INDEX, text);
    return meta;
}

struct node *object_worker(struct build *b,
                           const struct hvd_job *job,
                           const struct object_config *cfg,
                           uint32_t index,
                           struct err *err)
{
    char name[OBJECT_NAME_SIZE], secret[OBJECT_NAME_SIZE];
    struct node *spec =
        node_copy(b, node_get(job->role[ROLE_WORKER].pod_template, "spec"));
    struct node *containers = node_child(b, spec, "containers", NODE_ARRAY);
    struct node *first = containers ? containers->first : NULL;
    struct agent_env a;
    struct node *o;

    object_worker_name(job, index, name);
    o = object_new(b, "Pod", job, name, pod_metadata(b, job, index));
    node_set_str(b, spec, "restartPolicy", "Never");
    node_set_str(b, spec, "hostname", name);
    node_set_str(b, spec, "subdomain", job->meta.name);
    if (node_bool(spec, "hostNetwork", false) && !node_get(spec, "dnsPolicy"))
        node_set_str(b, spec, "dnsPolicy", "ClusterFirstWithHostNet");
    object_secret_name(job, secret);
    inject_init(b, spec, cfg->runtime_image);
    inject_volumes(b, spec, secret);
    fill_agent_env(&a, job, cfg, index, first);
    if (b->status || inject_env(b, first, &a, err) < 0) {
        if (b->status)
            (void)err_set(err, b->status, "pod %s: does not fit in memory", name);
        return NULL;
    }
    inject_command(b, first);
    inject_mounts(b, first);
    node_set(b, o, "spec", spec);
    return b->status ? NULL : o;
}

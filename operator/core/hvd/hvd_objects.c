/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of the objects of a HorovodJob other than its pods (hvd_pod.c) and its
 * PodGroup (hvd_podgroup.c): Secret, headless Service, ConfigMap with the hosts.
 *
 * Every object has an owner reference with the job's uid: garbage collection deletes it
 * with the job, and the check for a name that is taken compares this uid. Called by
 * hvd_front.c and by hvd_plan.c. */
#include "operator/core/hvd/hvd_objects.h"

#include <errno.h>
#include <stdio.h>

#include "operator/core/hvd/hvd_pod.h"
#include "operator/core/hvd/hvd_tf_config.h"
#include "operator/core/inject.h"

#define HOSTS_MAX (4u << 20)

enum gang object_gang(const struct hvd_job *job, const struct object_config *cfg)
{
    return job->run.scheduling.has_gang ? job->run.scheduling.gang : cfg->gang;
}

const char *object_scheduler(const struct hvd_job *job, const struct object_config *cfg)
{
    enum gang gang = object_gang(job, cfg);

    if (gang == cfg->gang && cfg->gang_scheduler)
        return cfg->gang_scheduler;
    return gang == GANG_VOLCANO             ? "volcano"
           : gang == GANG_SCHEDULER_PLUGINS ? "scheduler-plugins-scheduler"
                                            : "";
}

bool object_is_required(const struct hvd_job *job,
                        const struct object_config *cfg,
                        enum kube_kind kind)
{
    enum gang gang = object_gang(job, cfg);

    return kind == KUBE_SERVICE
           || (kind == KUBE_SECRET && job->framework == FRAMEWORK_HOROVOD)
           || (kind == KUBE_CONFIGMAP && job->role[ROLE_LAUNCHER].is_set)
           || (kind == KUBE_VOLCANO_GROUP && gang == GANG_VOLCANO)
           || (kind == KUBE_SCHEDULER_GROUP && gang == GANG_SCHEDULER_PLUGINS);
}

struct node *hvd_object_new(struct build *b,
                            const struct hvd_job *job,
                            const char *api_version,
                            const char *kind,
                            const char *name,
                            struct node *meta)
{
    struct node *o = meta_object_new(b, &job->meta, api_version, kind, name, meta);

    node_set_str(b, node_child(b, meta, "labels", NODE_OBJECT), LABEL_JOB_NAME,
                 job->meta.name);
    return o;
}

struct node *
object_secret(struct build *b, const struct hvd_job *job, const uint8_t token[32])
{
    char name[OBJECT_NAME_SIZE];
    struct node *o;

    object_name(job, KUBE_SECRET, name);
    o = hvd_object_new(b, job, "v1", "Secret", name, node_object(b));
    inject_token(b, o, token);
    return o;
}

static void add_port(struct build *b, struct node *ports, const char *name, int number)
{
    struct node *port = node_object(b);

    node_set_str(b, port, "name", name);
    node_set_int(b, port, "port", number);
    /* otherwise a service mesh would guess the protocol */
    node_set_str(b, port, "appProtocol", "tcp");
    node_add(b, ports, port);
}

struct node *object_service(struct build *b, const struct hvd_job *job)
{
    struct node *o =
        hvd_object_new(b, job, "v1", "Service", job->meta.name, node_object(b));
    struct node *spec = node_object(b), *selector = node_object(b);
    struct node *ports = node_array(b);

    node_set_str(b, selector, LABEL_JOB_NAME, job->meta.name);
    if (job->framework == FRAMEWORK_TENSORFLOW)
        add_port(b, ports, "tensorflow", TF_PORT);
    else if (job->role[ROLE_LAUNCHER].is_set)
        add_port(b, ports, "agent", AGENT_SERVE_PORT);
    else
        add_port(b, ports, "checkin", AGENT_DEFAULT_PORT);
    node_set_str(b, spec, "clusterIP", "None");
    node_set_bool(b, spec, "publishNotReadyAddresses", true);
    node_set(b, spec, "selector", selector);
    node_set(b, spec, "ports", ports);
    node_set(b, o, "spec", spec);
    return o;
}

/* One line for each worker. */
static void set_hosts(struct build *b,
                      struct node *data,
                      const struct hvd_job *job,
                      const struct object_config *cfg,
                      const char *key,
                      const char *between)
{
    char host[HOST_SIZE];
    struct strbuf text;

    strbuf_init(&text, HOSTS_MAX);
    for (uint32_t i = 0; i < job->role[ROLE_WORKER].n; i++) {
        object_host(job, cfg, ROLE_WORKER, i, host);
        strbuf_printf(&text, "%s%s%u\n", host, between, job->slots);
    }
    if (strbuf_status(&text))
        b->status = -ENOMEM;
    else
        node_set_str(b, data, key, strbuf_str(&text));
    strbuf_release(&text);
}

struct node *object_hosts(struct build *b,
                          const struct hvd_job *job,
                          const struct object_config *cfg)
{
    char name[OBJECT_NAME_SIZE];
    struct node *o, *data = node_object(b);

    object_name(job, KUBE_CONFIGMAP, name);
    o = hvd_object_new(b, job, "v1", "ConfigMap", name, node_object(b));
    set_hosts(b, data, job, cfg, HOSTFILE_KEY, " slots=");
    set_hosts(b, data, job, cfg, MACHINEFILE_KEY, ":");
    node_set(b, o, "data", data);
    return b->status ? NULL : o;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of Service, ConfigMap and Secret, as mpi-operator creates them. mpi_pods.c has
 * worker pods and launcher Job. Pure; called by mpi_front.c, mpi_ensure.c, mpi_podgroup.c
 * and mpi_pods.c. */
#include "operator/core/mpi/mpi_objects.h"

#include <string.h>

#include "operator/core/inject.h"
#include "operator/core/labels.h"
#include "operator/doc/base64.h"

struct node *mpi_owned(struct build *b,
                       const struct mpi_job *job,
                       const char *api_version,
                       const char *kind,
                       const char *name)
{
    struct node *meta = node_object(b);
    struct node *labels = node_child(b, meta, "labels", NODE_OBJECT);

    if (strcmp(kind, "PodGroup") != 0)
        node_set_str(b, labels, "app", job->meta.name);
    if (strcmp(kind, "Secret") != 0) /* for the label selector of the watches */
        node_set_str(b, labels, LABEL_JOB_NAME, job->meta.name);
    return meta_object_new(b, &job->meta, api_version, kind, name, meta);
}

/* --- Service, ConfigMap, Secret -------------------------------------------------- */

struct node *mpi_service(struct build *b, const struct mpi_job *job)
{
    struct node *o = mpi_owned(b, job, "v1", "Service", job->meta.name);
    struct node *spec = node_child(b, o, "spec", NODE_OBJECT);
    struct node *selector = node_child(b, spec, "selector", NODE_OBJECT);

    node_set_str(b, spec, "clusterIP", "None");
    node_set_str(b, selector, MPI_LABEL_OPERATOR_NAME, MPI_OPERATOR_NAME);
    node_set_str(b, selector, MPI_LABEL_JOB_NAME, job->meta.name);
    /* agents connect to workers that are not ready yet, and wait for them */
    node_set_bool(b, spec, "publishNotReadyAddresses",
                  job->launcher_is_worker || job->is_agent);
    return b->status ? NULL : o;
}

struct node *mpi_config_map(struct build *b,
                            const struct mpi_job *job,
                            const char *hostfile,
                            const char *discover_hosts)
{
    char name[MPI_NAME_SIZE];
    struct node *o, *data;

    mpi_object_name(job, "config", name);
    o = mpi_owned(b, job, "v1", "ConfigMap", name);
    data = node_child(b, o, "data", NODE_OBJECT);
    node_set_str(b, data, "hostfile", hostfile);
    node_set_str(b, data, "discover_hosts.sh", discover_hosts);
    return b->status ? NULL : o;
}

static void
set_base64(struct build *b, struct node *o, const char *key, const char *value)
{
    size_t n = strlen(value);
    char *text = arena_alloc(b->arena, BASE64_SIZE(n));

    if (!text)
        return; /* mpi_secret detects the missing key */
    base64_encode(value, n, text);
    node_set_str(b, o, key, text);
}

void mpi_secret_name(const struct mpi_job *job, char ret[MPI_NAME_SIZE])
{
    mpi_object_name(job, job->is_agent ? "token" : "ssh", ret);
}

struct node *
mpi_secret(struct build *b, const struct mpi_job *job, const struct secrets *s)
{
    char name[MPI_NAME_SIZE];
    struct node *o, *data;

    mpi_secret_name(job, name);
    o = mpi_owned(b, job, "v1", "Secret", name);
    if (job->is_agent) {
        inject_token(b, o, s->token);
        return b->status ? NULL : o;
    }
    node_set_str(b, o, "type", "kubernetes.io/ssh-auth");
    data = node_child(b, o, "data", NODE_OBJECT);
    set_base64(b, data, "ssh-privatekey", s->ssh_private);
    set_base64(b, data, "ssh-publickey", s->ssh_public);
    return b->status || !data || data->n != 2 ? NULL : o;
}

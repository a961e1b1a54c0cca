/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of worker pods and launcher Job.
 *
 * Invariants
 *  1. The additions to a user's template are those of mpi-operator, in its order and
 *     with its values: its variables override those of the user because they are later.
 *  2. The first container of a template is the one that is changed.
 *  3. With annotation ringmaster.dev/launch: agent there is no ssh: no key, no mount of
 *     a key, and a worker that would run sshd runs hvd-agent.
 *
 * One difference: the DNS search path of the workers uses --cluster-domain if it is
 * set; mpi-operator always uses cluster.local. Pure; called by mpi_front.c and
 * mpi_plan.c. */
#include "operator/core/mpi/mpi_pods.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/inject.h"
#include "operator/core/labels.h"
#include "operator/core/mpi/mpi_objects.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define CONFIG_VOLUME   "mpi-job-config"
#define CONFIG_MOUNT    "/etc/mpi"
#define SSH_VOLUME      "ssh-auth"
#define DEFAULT_DOMAIN  "cluster.local"
#define HVD_RSH         MOUNT_RUNTIME "/bin/hvd-rsh"
#define PORT_VARIABLE   "HVD_AGENT_PORT"
#define FIRST_HOST_PORT 20000u
#define N_HOST_PORTS    10000u

/* --- common to both roles -------------------------------------------------------- */

static struct node *array_add_object(struct build *b,
                                     struct node *array,
                                     const char *key,
                                     const char *value)
{
    struct node *o = node_object(b);

    node_set_str(b, o, key, value);
    node_add(b, array, o);
    return o;
}

static void add_item(
    struct build *b, struct node *items, const char *key, const char *path, int mode)
{
    struct node *item = array_add_object(b, items, "key", key);

    node_set_str(b, item, "path", path);
    if (mode)
        node_set_int(b, item, "mode", mode);
}

/* value NULL: empty */
static void
add_env(struct build *b, struct node *container, const char *name, const char *value)
{
    struct node *env = node_child(b, container, "env", NODE_ARRAY);
    struct node *e = array_add_object(b, env, "name", name);

    if (value)
        node_set_str(b, e, "value", value);
}

static void add_ssh(struct build *b,
                    struct node *spec,
                    struct node *container,
                    const struct mpi_job *job)
{
    struct node *volumes = node_child(b, spec, "volumes", NODE_ARRAY);
    struct node *secret = node_child(
        b, array_add_object(b, volumes, "name", SSH_VOLUME), "secret", NODE_OBJECT);
    struct node *items;
    char name[MPI_NAME_SIZE];

    mpi_secret_name(job, name);
    if (strcmp(job->ssh_path, MPI_ROOT_SSH_PATH) == 0)
        node_set_int(b, secret, "defaultMode", 0600);
    node_set_str(b, secret, "secretName", name);
    items = node_child(b, secret, "items", NODE_ARRAY);
    add_item(b, items, "ssh-privatekey", "id_rsa", 0);
    add_item(b, items, "ssh-publickey", "id_rsa.pub", 0);
    add_item(b, items, "ssh-publickey", "authorized_keys", 0);
    inject_mount(b, container, SSH_VOLUME, job->ssh_path, false);
}

static const struct node *mpi_own_port(const struct node *container)
{
    return node_with(node_get(container, "env"), "name", PORT_VARIABLE);
}

static uint16_t mpi_agent_port(const struct node *container)
{
    const char *own = node_str(mpi_own_port(container), "value");

    return own ? (uint16_t)strtoul(own, NULL, 10) : AGENT_SERVE_PORT;
}

/* On the host's network the agents of two jobs may meet on one node: each job has a
 * port of its own, below those that Kubernetes and the kernel give out. If the workers'
 * template sets a port, the launcher gets the same one, because it connects to that
 * port. */
static void
add_agent_port(struct build *b, struct node *container, const struct mpi_job *job)
{
    const struct node *worker =
        node_item(node_at(job->worker.pod_template, "spec.containers"), 0);
    uint8_t sum[SHA256_BYTES];
    char text[16];

    if (mpi_own_port(container))
        return;
    if (mpi_own_port(worker)) {
        node_add(b, node_child(b, container, "env", NODE_ARRAY),
                 node_copy(b, mpi_own_port(worker)));
        return;
    }
    if (!node_bool(job->worker.pod_template, "spec.hostNetwork", false))
        return;
    sha256_digest(job->meta.uid, strlen(job->meta.uid), sum);
    (void)snprintf(text, sizeof(text), "%u",
                   FIRST_HOST_PORT + (sum[0] * 256u + sum[1]) % N_HOST_PORTS);
    add_env(b, container, PORT_VARIABLE, text);
}

/* By the declaration the scheduler keeps workers apart that would listen on one port of
 * one node. */
static void
declare_agent_port(struct build *b, const struct node *spec, struct node *container)
{
    const char *value = node_str(mpi_own_port(container), "value");
    unsigned long port = value ? strtoul(value, NULL, 10) : 0;
    const struct node *list = node_get(container, "ports");
    struct node *o;

    if (port == 0 || port > UINT16_MAX || !node_bool(spec, "hostNetwork", false))
        return;
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        if (node_int(c, "containerPort", 0) == (int64_t)port)
            return;
    }
    o = node_object(b);
    node_set_int(b, o, "containerPort", (int64_t)port);
    node_set_int(b, o, "hostPort", (int64_t)port);
    node_add(b, node_child(b, container, "ports", NODE_ARRAY), o);
}

static void add_access(struct build *b,
                       struct node *spec,
                       struct node *container,
                       const struct mpi_job *job,
                       const struct object_config *cfg)
{
    char name[MPI_NAME_SIZE];

    if (!job->is_agent) {
        add_ssh(b, spec, container, job);
        return;
    }
    mpi_secret_name(job, name);
    inject_init(b, spec, cfg->runtime_image);
    inject_volumes(b, spec, name);
    inject_mounts(b, container);
    add_agent_port(b, container, job);
}

static void set_identity(struct build *b,
                         struct node *spec,
                         const struct mpi_job *job,
                         const char *hostname)
{
    node_set_str(b, spec, "hostname", hostname);
    node_set_str(b, spec, "subdomain", job->meta.name); /* the Service's name */
    if (node_bool(spec, "hostNetwork", false))
        node_set_str(b, spec, "dnsPolicy", "ClusterFirstWithHostNet");
}

/* Labels and annotations of the template and of the operator; no other metadata. */
static struct node *pod_metadata(struct build *b,
                                 const struct mpi_job *job,
                                 const struct object_config *cfg,
                                 const struct mpi_replicas *r,
                                 const char *role)
{
    const struct node *tm = node_get(r->pod_template, "metadata");
    struct node *meta = node_object(b), *labels;

    if (node_get(tm, "labels"))
        node_set(b, meta, "labels", node_copy(b, node_get(tm, "labels")));
    if (node_get(tm, "annotations"))
        node_set(b, meta, "annotations", node_copy(b, node_get(tm, "annotations")));
    labels = node_child(b, meta, "labels", NODE_OBJECT);
    node_set_str(b, labels, MPI_LABEL_OPERATOR_NAME, MPI_OPERATOR_NAME);
    node_set_str(b, labels, MPI_LABEL_JOB_NAME, job->meta.name);
    node_set_str(b, labels, MPI_LABEL_JOB_ROLE, role);
    switch (cfg->gang) {
    case GANG_NONE:
        break;
    case GANG_VOLCANO:
        node_set_str(b, node_child(b, meta, "annotations", NODE_OBJECT),
                     "scheduling.k8s.io/group-name", job->meta.name);
        break;
    case GANG_SCHEDULER_PLUGINS:
        node_set_str(b, labels, "scheduling.x-k8s.io/pod-group", job->meta.name);
        break;
    }
    return meta;
}

static struct node *pod_spec(struct build *b,
                             const struct mpi_replicas *r,
                             const struct object_config *cfg,
                             struct node **ret_container)
{
    struct node *spec = node_copy(b, node_get(r->pod_template, "spec"));
    struct node *containers = node_child(b, spec, "containers", NODE_ARRAY);

    node_set_str(b, spec, "restartPolicy", r->restart_policy);
    if (cfg->gang != GANG_NONE)
        node_set_str(b, spec, "schedulerName", cfg->gang_scheduler);
    *ret_container = containers ? containers->first : NULL;
    return spec;
}

/* --- the worker ------------------------------------------------------------------ */

static const char *first_word(const struct node *container)
{
    static const char *const lists[] = {"command", "args"};

    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        const struct node *n = node_item(node_get(container, lists[i]), 0);

        if (n)
            return n->type == NODE_STRING ? n->u.s : "";
    }
    return NULL;
}

static bool command_is_sshd(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strcmp(slash ? slash + 1 : path, "sshd") == 0;
}

/* A container without command and args runs sshd. With agents, that one and a container
 * that runs sshd explicitly run hvd-agent. True if it does now. */
static bool
set_command(struct build *b, struct node *container, const struct mpi_job *job)
{
    const char *word = first_word(container);
    struct node *command;

    if (word && !(job->is_agent && command_is_sshd(word)))
        return false;
    command = node_array(b);
    node_add_str(b, command, job->is_agent ? AGENT_COMMAND : "/usr/sbin/sshd");
    node_add_str(b, command, job->is_agent ? "serve" : "-De");
    node_set(b, container, "command", command);
    node_drop(container, "args");
    return job->is_agent;
}

static void add_search(struct build *b,
                       struct node *spec,
                       const struct mpi_job *job,
                       const struct object_config *cfg)
{
    struct node *dns = node_child(b, spec, "dnsConfig", NODE_OBJECT);
    struct node *searches = node_child(b, dns, "searches", NODE_ARRAY);
    bool has_domain = cfg->cluster_domain && *cfg->cluster_domain;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s.%s.svc.%s", job->meta.name, job->meta.ns,
                   has_domain ? cfg->cluster_domain : DEFAULT_DOMAIN);
    node_add_str(b, searches, path);
}

struct node *mpi_worker(struct build *b,
                        const struct mpi_job *job,
                        const struct object_config *cfg,
                        uint32_t index)
{
    struct node *meta = pod_metadata(b, job, cfg, &job->worker, "worker"), *first;
    struct node *spec = pod_spec(b, &job->worker, cfg, &first), *o;
    char name[MPI_NAME_SIZE], label[16];
    bool runs_agent;

    /* a launcher that is a worker has index 0, so that all indexes differ */
    (void)snprintf(label, sizeof(label), "%u", index + job->launcher_is_worker);
    node_set_str(b, node_child(b, meta, "labels", NODE_OBJECT), MPI_LABEL_REPLICA_INDEX,
                 label);
    mpi_worker_name(job, index, name);
    o = meta_object_new(b, &job->meta, "v1", "Pod", name, meta);
    set_identity(b, spec, job, name);
    add_search(b, spec, job, cfg);
    runs_agent = set_command(b, first, job);
    add_env(b, first, "K_MPI_JOB_ROLE", "worker");
    add_access(b, spec, first, job, cfg);
    if (job->is_agent)
        declare_agent_port(b, spec, first);
    if (runs_agent)
        inject_probes(b, first, mpi_agent_port(first));
    node_set(b, o, "spec", spec);
    return b->status ? NULL : o;
}

/* --- the launcher ---------------------------------------------------------------- */

static void
add_mpi_env(struct build *b, struct node *container, const struct mpi_job *job)
{
    char slots[16];

    (void)snprintf(slots, sizeof(slots), "%u", job->slots);
    switch (job->implementation) {
    case MPI_OPENMPI:
        add_env(b, container, "OMPI_MCA_orte_keep_fqdn_hostnames", "true");
        add_env(b, container, "OMPI_MCA_orte_default_hostfile",
                CONFIG_MOUNT "/hostfile");
        add_env(b, container, "OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10");
        add_env(b, container, "OMPI_MCA_orte_set_default_slots", slots);
        return;
    case MPI_INTEL:
        add_env(b, container, "I_MPI_HYDRA_HOST_FILE", CONFIG_MOUNT "/hostfile");
        add_env(b, container, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS",
                "-o ConnectionAttempts=10");
        add_env(b, container, "I_MPI_PERHOST", slots);
        return;
    case MPI_MPICH:
        add_env(b, container, "HYDRA_HOST_FILE", CONFIG_MOUNT "/hostfile");
        add_env(b, container, "HYDRA_LAUNCH_EXTRA_ARGS", "-o ConnectionAttempts=10");
        return;
    }
}

/* The variable by which each mpirun selects another remote shell. */
static void
add_agent_env(struct build *b, struct node *container, const struct mpi_job *job)
{
    switch (job->implementation) {
    case MPI_OPENMPI:
        add_env(b, container, "OMPI_MCA_plm_rsh_agent", HVD_RSH); /* up to 4.x */
        add_env(b, container, "PRTE_MCA_plm_ssh_agent", HVD_RSH); /* 5.x */
        return;
    case MPI_INTEL:
        add_env(b, container, "I_MPI_HYDRA_BOOTSTRAP", "ssh");
        add_env(b, container, "I_MPI_HYDRA_BOOTSTRAP_EXEC", HVD_RSH);
        return;
    case MPI_MPICH:
        add_env(b, container, "HYDRA_LAUNCHER", "ssh");
        add_env(b, container, "HYDRA_LAUNCHER_EXEC", HVD_RSH);
        return;
    }
}

static void add_config(struct build *b,
                       struct node *spec,
                       struct node *container,
                       const struct mpi_job *job)
{
    struct node *volumes = node_child(b, spec, "volumes", NODE_ARRAY);
    struct node *map =
        node_child(b, array_add_object(b, volumes, "name", CONFIG_VOLUME), "configMap",
                   NODE_OBJECT);
    struct node *items = node_child(b, map, "items", NODE_ARRAY);
    char name[MPI_NAME_SIZE];

    mpi_object_name(job, "config", name);
    node_set_str(b, map, "name", name);
    add_item(b, items, "hostfile", "hostfile", 0444);
    add_item(b, items, "discover_hosts.sh", "discover_hosts.sh", 0555);
    inject_mount(b, container, CONFIG_VOLUME, CONFIG_MOUNT, false);
}

static struct node *launcher_template(struct build *b,
                                      const struct mpi_job *job,
                                      const struct object_config *cfg)
{
    struct node *meta = pod_metadata(b, job, cfg, &job->launcher, "launcher"), *first;
    struct node *spec = pod_spec(b, &job->launcher, cfg, &first), *o = node_object(b);
    char name[MPI_NAME_SIZE];

    if (job->launcher_is_worker)
        node_set_str(b, node_child(b, meta, "labels", NODE_OBJECT),
                     MPI_LABEL_REPLICA_INDEX, "0");
    meta_add_owner(b, meta, &job->meta);
    mpi_object_name(job, "launcher", name);
    set_identity(b, spec, job, name);
    add_env(b, first, "K_MPI_JOB_ROLE", "launcher");
    add_mpi_env(b, first, job);
    if (!job->launcher_is_worker) { /* the launcher must not use GPUs by mistake */
        add_env(b, first, "NVIDIA_VISIBLE_DEVICES", NULL);
        add_env(b, first, "NVIDIA_DRIVER_CAPABILITIES", NULL);
    }
    if (job->is_agent) {
        add_agent_env(b, first, job);
        add_env(b, first, ENV_ELASTIC_JOB, job->meta.uid);
    }
    if (first
        && !node_get(first, "terminationMessagePolicy")) /* mpi_status.c shows it */
        node_set_str(b, first, "terminationMessagePolicy", "FallbackToLogsOnError");
    add_access(b, spec, first, job, cfg);
    add_config(b, spec, first, job);
    node_set(b, o, "metadata", meta);
    node_set(b, o, "spec", spec);
    return o;
}

struct node *mpi_launcher(struct build *b,
                          const struct mpi_job *job,
                          const struct object_config *cfg)
{
    char name[MPI_NAME_SIZE];
    struct node *o, *spec;

    mpi_object_name(job, "launcher", name);
    o = mpi_owned(b, job, "batch/v1", "Job", name);
    spec = node_child(b, o, "spec", NODE_OBJECT);
    if (job->deadline_s >= 0)
        node_set_int(b, spec, "activeDeadlineSeconds", job->deadline_s);
    if (job->backoff_limit >= 0)
        node_set_int(b, spec, "backoffLimit", job->backoff_limit);
    node_set_str(b, spec, "podReplacementPolicy", "Failed");
    if (job->is_suspended)
        node_set_bool(b, spec, "suspend", true);
    node_set(b, spec, "template", launcher_template(b, job, cfg));
    return b->status ? NULL : o;
}

/* --- resuming -------------------------------------------------------------------- */

/* Scheduling directives that may change while a Job is suspended; labels and
 * annotations are merged, these replaced. */
static const char *const replaced[] = {"nodeSelector", "tolerations",
                                       "schedulingGates"};

struct node *mpi_launcher_resume(struct build *b,
                                 const struct mpi_job *job,
                                 const struct object_config *cfg,
                                 bool *ret_must_clear)
{
    struct node *tmpl = launcher_template(b, job, cfg), *o = node_object(b);
    struct node *spec = node_child(b, o, "spec", NODE_OBJECT);
    struct node *to = node_child(b, spec, "template", NODE_OBJECT);
    struct node *meta = node_child(b, to, "metadata", NODE_OBJECT);
    struct node *pod = node_child(b, to, "spec", NODE_OBJECT);
    static const char *const merged[] = {"labels", "annotations"};

    if (b->status)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(merged); i++) {
        const struct node *n = node_get(node_get(tmpl, "metadata"), merged[i]);

        if (n)
            node_set(b, meta, merged[i], node_copy(b, n));
    }
    for (size_t i = 0; i < ARRAY_LEN(replaced); i++) {
        const struct node *n = node_get(node_get(tmpl, "spec"), replaced[i]);

        node_set(b, pod, replaced[i], n ? node_copy(b, n) : node_null(b));
    }
    /* a merge patch would keep its keys */
    *ret_must_clear = node_get(pod, "nodeSelector") != NULL;
    node_set_bool(b, spec, "suspend", false);
    return b->status ? NULL : o;
}

struct node *mpi_launcher_clear(struct build *b)
{
    struct node *o = node_object(b);
    struct node *spec = node_child(b, o, "spec", NODE_OBJECT);
    struct node *tmpl = node_child(b, spec, "template", NODE_OBJECT);

    node_set(b, node_child(b, tmpl, "spec", NODE_OBJECT), "nodeSelector", node_null(b));
    return b->status ? NULL : o;
}

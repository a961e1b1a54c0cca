/* SPDX-License-Identifier: Apache-2.0 */
/* Builder of the pods of a HorovodJob.
 *
 *   role        part         its first container runs
 *   Worker      RANKS        hvd-agent run -- COMMAND: the agents form the world
 *   Worker      SERVE        hvd-agent serve, where there is a Launcher
 *   Launcher    LAUNCH       hvd-agent await -- COMMAND, which starts when all workers
 *                            serve, with their hosts and hvd-rsh; of an elastic job
 *                            COMMAND itself, at once
 *   any         TENSORFLOW   COMMAND, with TF_CONFIG. No agent: it would remove
 *                            TF_CONFIG from its ranks as that of an outer launcher
 *
 * The user's template is kept. The operator adds to it and changes only restartPolicy,
 * hostname, subdomain and the command of container 0. The container's own env has
 * priority over other fields of the job. Called by hvd_front.c and hvd_podgroup.c. */
#include "operator/core/hvd/hvd_pod.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_elastic.h"
#include "operator/core/hvd/hvd_objects.h"
#include "operator/core/hvd/hvd_tf_config.h"
#include "runtime/base/mem.h"
#include "runtime/contract/job_world.h"

#define DEFAULT_TERMINATION_LOG "/dev/termination-log"
#define WORLD_KEY               "world"
#define TF_CONFIG_MAX           (2u << 20)

struct pod_build { /* one pod */
    struct build *b;
    const struct hvd_job *job;
    const struct object_config *cfg;
    enum role role;
    uint32_t index;
    struct node *spec, *first; /* the first container */
};

enum pod_part pod_part(const struct hvd_job *job, enum role role)
{
    if (job->framework == FRAMEWORK_TENSORFLOW)
        return PART_TENSORFLOW;
    if (role == ROLE_LAUNCHER)
        return PART_LAUNCH;
    return job->role[ROLE_LAUNCHER].is_set ? PART_SERVE : PART_RANKS;
}

/* --- metadata -------------------------------------------------------------------- */

static void set_number(struct build *b, struct node *o, const char *key, uint32_t n)
{
    char text[16];

    (void)snprintf(text, sizeof(text), "%u", n);
    node_set_str(b, o, key, text);
}

static void set_gang(struct pod_build *m, struct node *meta, struct node *labels)
{
    char name[OBJECT_NAME_SIZE];

    object_name(m->job, KUBE_POD, name);
    switch (object_gang(m->job, m->cfg)) {
    case GANG_NONE:
        return;
    case GANG_VOLCANO:
        node_set_str(m->b, node_child(m->b, meta, "annotations", NODE_OBJECT),
                     "scheduling.k8s.io/group-name", name);
        return;
    case GANG_SCHEDULER_PLUGINS:
        node_set_str(m->b, labels, "scheduling.x-k8s.io/pod-group", name);
        return;
    }
}

static const struct node *pod_template_of(const struct pod_build *m)
{
    bool is_added = m->role == ROLE_LAUNCHER && m->job->elastic.makes_launcher;

    return m->job->role[is_added ? ROLE_WORKER : m->role].pod_template;
}

/* True if a file in the pod has the number of workers. */
static bool pod_has_world(const struct pod_build *m)
{
    enum pod_part part = pod_part(m->job, m->role);

    return part == PART_RANKS || (part == PART_LAUNCH && m->job->elastic.is_set);
}

static struct node *pod_build_metadata(struct pod_build *m)
{
    static const char *const copied[] = {"annotations", "labels"};
    const struct node *tm = node_get(pod_template_of(m), "metadata");
    const struct job_world w = {m->job->world_generation, m->job->role[ROLE_WORKER].n};
    struct node *meta = node_object(m->b), *labels;
    char text[JOB_WORLD_TEXT_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(copied); i++) {
        if (node_get(tm, copied[i]))
            node_set(m->b, meta, copied[i], node_copy(m->b, node_get(tm, copied[i])));
    }
    if (pod_has_world(m)) {
        job_world_render(&w, text);
        node_set_str(m->b, node_child(m->b, meta, "annotations", NODE_OBJECT),
                     ANNOTATION_WORLD, text);
    }
    labels = node_child(m->b, meta, "labels", NODE_OBJECT);
    node_set_str(m->b, labels, LABEL_JOB_ROLE, role_name(m->role));
    set_number(m->b, labels, LABEL_REPLICA_INDEX, m->index);
    set_number(m->b, labels, LABEL_GENERATION, m->job->world_generation);
    set_gang(m, meta, labels);
    if (crew_is_tracked(m->job, m->role, m->index))
        node_add_str(m->b, node_child(m->b, meta, "finalizers", NODE_ARRAY),
                     FINALIZER_TRACKING);
    return meta;
}

/* --- parts of the spec ----------------------------------------------------------- */

static void
add_volume(struct pod_build *m, const char *name, const char *kind, struct node *source)
{
    struct node *v = node_object(m->b);

    node_set_str(m->b, v, "name", name);
    node_set(m->b, v, kind, source);
    node_add(m->b, node_child(m->b, m->spec, "volumes", NODE_ARRAY), v);
}

static void add_world(struct pod_build *m)
{
    struct node *source = node_object(m->b), *items = node_array(m->b);
    struct node *item = node_object(m->b), *ref = node_object(m->b);

    node_set_str(m->b, ref, "fieldPath",
                 "metadata.annotations['" ANNOTATION_WORLD "']");
    node_set_str(m->b, item, "path", WORLD_KEY);
    node_set(m->b, item, "fieldRef", ref);
    node_add(m->b, items, item);
    node_set(m->b, source, "items", items);
    add_volume(m, VOLUME_WORLD, "downwardAPI", source);
    inject_mount(m->b, m->first, VOLUME_WORLD, MOUNT_WORLD, true);
}

static void add_shm(struct pod_build *m)
{
    struct node *source = node_object(m->b);

    node_set_str(m->b, source, "medium", "Memory");
    node_set_str(m->b, source, "sizeLimit", m->job->shm_size);
    add_volume(m, VOLUME_SHM, "emptyDir", source);
    inject_mount(m->b, m->first, VOLUME_SHM, MOUNT_SHM, false);
}

/* A resource of a node that is not its own must be in limits; requests are equal. */
static void add_rdma(struct pod_build *m)
{
    static const char *const sides[] = {"requests", "limits"};
    struct node *resources = node_child(m->b, m->first, "resources", NODE_OBJECT);
    struct node *context = node_child(m->b, m->first, "securityContext", NODE_OBJECT);
    struct node *caps = node_child(m->b, context, "capabilities", NODE_OBJECT);
    struct node *add = node_child(m->b, caps, "add", NODE_ARRAY);
    bool has_lock = false;

    for (size_t i = 0; i < ARRAY_LEN(sides); i++)
        set_number(m->b, node_child(m->b, resources, sides[i], NODE_OBJECT),
                   m->job->rdma_resource, m->job->rdma_count);
    for (const struct node *c = add ? add->first : NULL; c; c = c->next)
        has_lock |= c->type == NODE_STRING && strcmp(c->u.s, "IPC_LOCK") == 0;
    if (!has_lock) /* memory that is registered with the adapter must stay locked */
        node_add_str(m->b, add, "IPC_LOCK");
}

static void add_knobs(struct pod_build *m)
{
    for (int k = KNOB_COUNT - 1; k >= 0; k--)
        inject_variable(m->b, m->first, hvd_knob_variable((enum hvd_knob)k),
                        m->job->knob[k]);
}

/* By the declaration the scheduler keeps pods apart that would listen on one port of
 * one node, and a monitor finds the port by its name. */
static void declare_port(struct pod_build *m, const char *name, uint32_t port)
{
    struct node *ports = node_child(m->b, m->first, "ports", NODE_ARRAY);
    struct node *o = node_object(m->b);

    for (const struct node *c = ports ? ports->first : NULL; c; c = c->next) {
        if (node_int(c, "containerPort", 0) == (int64_t)port)
            return;
    }
    node_set_str(m->b, o, "name", name);
    node_set_int(m->b, o, "containerPort", port);
    if (node_bool(m->spec, "hostNetwork", false))
        node_set_int(m->b, o, "hostPort", port);
    node_add(m->b, ports, o);
}

/* The container's own value of a variable that is a port. */
static uint32_t
hvd_own_port(const struct node *container, const char *name, uint32_t dflt)
{
    const struct node *env = node_get(container, "env");

    for (const struct node *c = env ? env->first : NULL; c; c = c->next) {
        const char *s = node_str(c, "name"), *value = node_str(c, "value");
        unsigned long v =
            s && value && strcmp(s, name) == 0 ? strtoul(value, NULL, 10) : 0;

        if (v > 0 && v < 65536)
            return (uint32_t)v;
    }
    return dflt;
}

static void declare_ports(struct pod_build *m)
{
    bool on_host = node_bool(m->spec, "hostNetwork", false);
    enum pod_part part = pod_part(m->job, m->role);
    const char *metrics = m->job->knob[KNOB_METRICS_PORT];

    if (on_host && part == PART_RANKS && m->index == 0)
        declare_port(m, "hvd-checkin", AGENT_DEFAULT_PORT);
    if (on_host && part == PART_LAUNCH && m->job->elastic.is_set)
        declare_port(m, "hvd-status", AGENT_DEFAULT_PORT);
    if (on_host && part == PART_SERVE)
        declare_port(m, "hvd-agent",
                     hvd_own_port(m->first, "HVD_AGENT_PORT", AGENT_SERVE_PORT));
    if (on_host && part == PART_TENSORFLOW && m->role != ROLE_EVALUATOR)
        declare_port(m, "tensorflow", TF_PORT);
    if (part == PART_RANKS && metrics)
        declare_port(m, "hvd-metrics",
                     hvd_own_port(m->first, "HVD_METRICS_PORT",
                                  (uint32_t)strtoul(metrics, NULL, 10)));
}

/* --- parts of a job -------------------------------------------------------------- */

static const char *termination_log(const struct pod_build *m)
{
    const char *path = node_str(m->first, "terminationMessagePath");

    return path ? path : DEFAULT_TERMINATION_LOG;
}

static void fill_agent_env(struct agent_env *a, const struct pod_build *m)
{
    const struct hvd_job *job = m->job;
    const char *timeout = job->knob[KNOB_START_TIMEOUT];
    char host[HOST_SIZE];

    *a = (struct agent_env){
        .generation = job->world_generation,
        .worker_index = m->index,
        .num_workers = job->role[ROLE_WORKER].n,
        .slots = job->slots,
        .np = job->role[ROLE_WORKER].n
              * job->slots, /* set, so that the image or envFrom does not */
        .checkin_port = AGENT_DEFAULT_PORT,
        .start_timeout_s = timeout ? (uint32_t)strtoul(timeout, NULL, 10)
                                   : AGENT_DEFAULT_START_TIMEOUT_S,
    };
    object_host(job, m->cfg, ROLE_WORKER, 0, host);
    object_job_id(job, a->job_id);
    (void)snprintf(a->checkin_addr, sizeof(a->checkin_addr), "%s", host);
    (void)snprintf(a->token_file, sizeof(a->token_file), "%s", AGENT_TOKEN_PATH);
    (void)snprintf(a->dir, sizeof(a->dir), "%s", MOUNT_RUNTIME);
    (void)snprintf(a->termination_log, sizeof(a->termination_log), "%s",
                   termination_log(m));
    (void)snprintf(a->world_file, sizeof(a->world_file), "%s", AGENT_WORLD_PATH);
}

static void add_runtime(struct pod_build *m)
{
    char secret[OBJECT_NAME_SIZE];

    object_name(m->job, KUBE_SECRET, secret);
    inject_init(m->b, m->spec, m->cfg->runtime_image);
    inject_volumes(m->b, m->spec, secret);
}

static void make_ranks(struct pod_build *m, struct err *err)
{
    static const char *const words[] = {"run"};
    struct agent_env a;

    add_runtime(m);
    fill_agent_env(&a, m);
    add_knobs(m);
    if (m->b->status == 0)
        m->b->status = inject_env(m->b, m->first, &a, err);
    inject_command(m->b, m->first, words, ARRAY_LEN(words));
    inject_mounts(m->b, m->first);
    add_world(m);
}

/* The agent exits when horovodrun retires the pod, and the next pod may avoid its node. */
static void add_retirement(struct pod_build *m)
{
    const char *node = hvd_retired_node(&m->job->elastic.retired, m->index);

    inject_leave_time(m->b, m->spec, m->first);
    inject_variable(m->b, m->first, "HVD_TERMINATION_LOG", termination_log(m));
    if (node)
        hvd_retired_avoid(m->b, m->spec, node);
}

static void make_serve(struct pod_build *m)
{
    struct node *command = node_array(m->b);

    add_runtime(m);
    add_knobs(m); /* the ranks inherit the launcher's environment */
    if (m->job->elastic.is_set)
        add_retirement(m);
    node_add_str(m->b, command, AGENT_COMMAND);
    node_add_str(m->b, command, "serve");
    node_set(m->b, m->first, "command", command);
    node_drop(m->first, "args");
    inject_mounts(m->b, m->first);
}

/* The variables by which mpirun and horovodrun find the workers and start programs on
 * them. Variables of an MPI implementation that is not installed have no effect. */
static void add_launch_env(struct pod_build *m)
{
    static const struct {
        const char *name, *value;
    } env[] = {
        {"HVD_HOSTFILE", MOUNT_HOSTS "/" HOSTFILE_KEY},
        {"HVD_SSH", RSH_COMMAND},
        {"OMPI_MCA_plm_rsh_agent", RSH_COMMAND},
        {"OMPI_MCA_orte_default_hostfile", MOUNT_HOSTS "/" HOSTFILE_KEY},
        {"PRTE_MCA_plm_ssh_agent", RSH_COMMAND},
        {"PRTE_MCA_prte_default_hostfile", MOUNT_HOSTS "/" HOSTFILE_KEY},
        {"HYDRA_LAUNCHER", "ssh"},
        {"HYDRA_LAUNCHER_EXEC", RSH_COMMAND},
        {"HYDRA_HOST_FILE", MOUNT_HOSTS "/" MACHINEFILE_KEY},
        {"I_MPI_HYDRA_BOOTSTRAP", "ssh"},
        {"I_MPI_HYDRA_BOOTSTRAP_EXEC", RSH_COMMAND},
        {"I_MPI_HYDRA_HOST_FILE", MOUNT_HOSTS "/" MACHINEFILE_KEY},
    };

    for (size_t i = ARRAY_LEN(env); i-- > 0;)
        inject_variable(m->b, m->first, env[i].name, env[i].value);
    inject_variable(m->b, m->first, "HOROVOD_START_TIMEOUT",
                    m->job->knob[KNOB_START_TIMEOUT]);
}

/* Once the command runs, only horovodrun writes the termination message. For other
 * commands Kubernetes uses the end of the log. */
static void pod_fall_back_to_log(struct pod_build *m)
{
    if (!node_get(m->first, "terminationMessagePolicy"))
        node_set_str(m->b, m->first, "terminationMessagePolicy",
                     "FallbackToLogsOnError");
}

/* horovodrun does not need all workers, and hvd-agent hosts prints which there are. The
 * name lets the next launcher pod lead the processes of this one. It is the same for all
 * generations: a change of size keeps pods, and after a restart none is left. */
static void add_elastic(struct pod_build *m, struct err *err)
{
    struct agent_env a;

    fill_agent_env(&a, m);
    if (m->b->status == 0)
        m->b->status = inject_env(m->b, m->first, &a, err);
    inject_variable(m->b, m->first, ENV_ELASTIC_JOB, m->job->meta.uid);
    inject_variable(m->b, m->first, ENV_STATUS_PORT,
                    arena_printf(m->b->arena, "%d", AGENT_DEFAULT_PORT));
    add_world(m);
}

static void make_launch(struct pod_build *m, struct err *err)
{
    static const char hostfile[] = MOUNT_HOSTS "/" HOSTFILE_KEY;
    const char *const words[] = {"await", "--hostfile", hostfile, "--termination-log",
                                 termination_log(m)};
    struct node *source = node_object(m->b);
    char name[OBJECT_NAME_SIZE];

    add_runtime(m);
    add_knobs(m);
    add_launch_env(m);
    if (m->job->elastic.is_set)
        add_elastic(m, err);
    else
        inject_command(m->b, m->first, words, ARRAY_LEN(words));
    inject_mounts(m->b, m->first);
    object_name(m->job, KUBE_CONFIGMAP, name);
    node_set_str(m->b, source, "name", name);
    add_volume(m, VOLUME_HOSTS, "configMap", source);
    inject_mount(m->b, m->first, VOLUME_HOSTS, MOUNT_HOSTS, true);
    pod_fall_back_to_log(m);
}

static void make_tensorflow(struct pod_build *m)
{
    struct strbuf text;

    strbuf_init(&text, TF_CONFIG_MAX);
    tf_config(m->job, m->cfg, m->role, m->index, &text);
    if (strbuf_status(&text))
        m->b->status = -ENOMEM;
    else
        inject_variable(m->b, m->first, "TF_CONFIG", strbuf_str(&text));
    strbuf_release(&text);
    pod_fall_back_to_log(m);
}

static void make_spec(struct pod_build *m, const char *name, struct err *err)
{
    struct node *spec = m->spec;

    node_set_str(m->b, spec, "restartPolicy", "Never");
    node_set_str(m->b, spec, "hostname", name);
    node_set_str(m->b, spec, "subdomain", m->job->meta.name);
    if (node_bool(spec, "hostNetwork", false) && !node_get(spec, "dnsPolicy"))
        node_set_str(m->b, spec, "dnsPolicy", "ClusterFirstWithHostNet");
    if (object_gang(m->job, m->cfg) != GANG_NONE && !node_get(spec, "schedulerName"))
        node_set_str(m->b, spec, "schedulerName", object_scheduler(m->job, m->cfg));
    declare_ports(m);
    switch (pod_part(m->job, m->role)) {
    case PART_RANKS:
        make_ranks(m, err);
        break;
    case PART_SERVE:
        make_serve(m);
        break;
    case PART_LAUNCH:
        make_launch(m, err);
        break;
    case PART_TENSORFLOW:
        make_tensorflow(m);
        break;
    }
    if (m->job->shm_size && m->role != ROLE_LAUNCHER)
        add_shm(m);
    if (m->job->rdma_resource && m->role == ROLE_WORKER)
        add_rdma(m);
}

struct node *object_pod(struct build *b,
                        const struct hvd_job *job,
                        const struct object_config *cfg,
                        enum role role,
                        uint32_t index,
                        struct err *err)
{
    struct pod_build m = {.b = b, .job = job, .cfg = cfg, .role = role, .index = index};
    struct node *containers, *o;
    char name[OBJECT_NAME_SIZE];

    m.spec = role == ROLE_LAUNCHER && job->elastic.makes_launcher
                 ? hvd_launcher_spec(b, job)
                 : node_copy(b, node_get(job->role[role].pod_template, "spec"));
    containers = node_child(b, m.spec, "containers", NODE_ARRAY);
    m.first = containers ? containers->first : NULL;
    object_pod_name(job, role, index, name);
    o = hvd_object_new(b, job, "v1", "Pod", name, pod_build_metadata(&m));
    make_spec(&m, name, err);
    node_set(b, o, "spec", m.spec);
    if (b->status == -ENOMEM)
        (void)err_set(err, -ENOMEM, "pod %s: does not fit in memory", name);
    return b->status ? NULL : o;
}

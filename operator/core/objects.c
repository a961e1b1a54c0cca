/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of what a HorovodJob owns: Secret, headless Service, worker pods.
 *
 * Invariants
 *  1. Every object carries the controller's owner reference with the job's uid: garbage
 * collection removes it with the job, and adoption compares this uid.
 *  2. The user's pod template passes through; we add to it and change only
 * restartPolicy, hostname and subdomain, and the command of container 0, which we put
 * behind `hvd-agent run --`.
 *  3. What we add satisfies the `restricted` pod security standard by itself.
 *  4. The token is in the Secret's data and nowhere else.
 * The names are fixed by the job's name, so that a second creation is seen by the API
 * server. */
#include "operator/core/objects.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/base64.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/agent_env.h"
#include "runtime/contract/env_table.h"

#define DEFAULT_TERMINATION_LOG "/dev/termination-log"
#define INSTALL_UID             65532 /* where the pod does not choose one */

void object_worker_name(const struct job *job,
                        uint32_t index,
                        char ret[OBJECT_NAME_SIZE])
{
    (void)snprintf(ret, OBJECT_NAME_SIZE, "%.63s-worker-%u", job->name, index);
}

void object_secret_name(const struct job *job, char ret[OBJECT_NAME_SIZE])
{
    (void)snprintf(ret, OBJECT_NAME_SIZE, "%.63s-token", job->name);
}

static void set_labels(struct build *b, struct node *meta, const struct job *job)
{
    struct node *labels = node_child(b, meta, "labels", NODE_OBJECT);

    node_set_str(b, labels, LABEL_JOB_NAME, job->name);
}

static struct node *object_new(struct build *b,
                               const char *kind,
                               const struct job *job,
                               const char *name,
                               struct node *meta)
{
    struct node *o = node_object(b);
    struct node *owners = node_array(b), *owner = node_object(b);

    node_set_str(b, o, "apiVersion", "v1");
    node_set_str(b, o, "kind", kind);
    node_set_str(b, meta, "name", name);
    node_set_str(b, meta, "namespace", job->ns);
    set_labels(b, meta, job);
    node_set_str(b, owner, "apiVersion", JOB_API_VERSION);
    node_set_str(b, owner, "kind", JOB_KIND);
    node_set_str(b, owner, "name", job->name);
    node_set_str(b, owner, "uid", job->uid);
    node_set_bool(b, owner, "controller", true);
    node_add(b, owners, owner);
    node_set(b, meta, "ownerReferences", owners);
    node_set(b, o, "metadata", meta);
    return o;
}

struct node *
object_secret(struct build *b, const struct job *job, const uint8_t token[32])
{
    char name[OBJECT_NAME_SIZE], text[2 * 32 + 2], encoded[BASE64_SIZE(sizeof(text))];
    struct node *o, *data = node_object(b);

    object_secret_name(job, name);
    o = object_new(b, "Secret", job, name, node_object(b));
    hex_encode(token, 32, text);
    text[64] = '\n';
    base64_encode(text, 65, encoded);
    node_set_str(b, data, TOKEN_KEY, encoded);
    node_set_str(b, o, "type", "Opaque");
    node_set_bool(b, o, "immutable", true);
    node_set(b, o, "data", data);
    explicit_bzero(text, sizeof(text));
    explicit_bzero(encoded, sizeof(encoded));
    return o;
}

struct node *object_service(struct build *b, const struct job *job)
{
    struct node *o = object_new(b, "Service", job, job->name, node_object(b));
    struct node *spec = node_object(b), *selector = node_object(b);
    struct node *ports = node_array(b), *port = node_object(b);

    node_set_str(b, selector, LABEL_JOB_NAME, job->name);
    node_set_str(b, selector, LABEL_JOB_ROLE, ROLE_WORKER);
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

bool object_env_is_reserved(const char *name)
{
#define NAME(name, who, what) #name,
    static const char *const set[] = {AGENT_ENV(NAME)};
#undef NAME

    if (strcmp(name, "HVD_START_TIMEOUT") == 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(set); i++) {
        if (strcmp(set[i], name) == 0)
            return true;
    }
    return false;
}

static bool has_env(const struct node *container, const char *name)
{
    const struct node *env = node_get(container, "env");

    for (const struct node *c = env ? env->first : NULL; c; c = c->next) {
        const char *s = node_str(c, "name");

        if (s && strcmp(s, name) == 0)
            return true;
    }
    return false;
}

static void fill_agent_env(struct agent_env *a,
                           const struct job *job,
                           const struct object_config *cfg,
                           uint32_t index,
                           const struct node *container)
{
    const char *log = node_str(container, "terminationMessagePath");
    bool has_domain = cfg->cluster_domain && *cfg->cluster_domain;

    *a = (struct agent_env){
        .worker_index = index,
        .num_workers = job->replicas,
        .slots = job->slots,
        .np = job->replicas * job->slots, /* said, lest the image or envFrom does */
        .checkin_port = AGENT_DEFAULT_PORT,
        .start_timeout_s = AGENT_DEFAULT_START_TIMEOUT_S,
    };
    (void)snprintf(a->job_id, sizeof(a->job_id), "%s/%s/%s", job->ns, job->name,
                   job->uid);
    (void)snprintf(a->checkin_addr, sizeof(a->checkin_addr),
                   "%s-worker-0.%s.%s.svc%s%s", job->name, job->name, job->ns,
                   has_domain ? "." : "", has_domain ? cfg->cluster_domain : "");
    (void)snprintf(a->token_file, sizeof(a->token_file), "%s", AGENT_TOKEN_PATH);
    (void)snprintf(a->dir, sizeof(a->dir), "%s", MOUNT_RUNTIME);
    (void)snprintf(a->termination_log, sizeof(a->termination_log), "%s",
                   log ? log : DEFAULT_TERMINATION_LOG);
}

/* Ours come first, so that the user's own may refer to them as $(NAME). */
static int add_env(struct build *b,
                   struct node *container,
                   const struct agent_env *a,
                   struct err *err)
{
    AUTOFREE struct env_pair *pair = mem_calloc(CONTRACT_MAX_ENV, sizeof(*pair));
    struct node *env = node_child(b, container, "env", NODE_ARRAY);
    size_t n = 0;
    int rc;

    if (!pair)
        return err_set(err, -ENOMEM, "out of memory");
    rc = agent_env_render(a, pair, &n, err);
    if (rc < 0)
        return rc;
    while (n-- > 0) {
        struct node *e = node_object(b);

        if (has_env(container, pair[n].name))
            continue;
        node_set_str(b, e, "name", pair[n].name);
        node_set_str(b, e, "value", pair[n].value);
        node_add_first(b, env, e);
    }
    return b->status;
}

static void wrap_command(struct build *b, struct node *container)
{
    struct node *command = node_array(b);
    const struct node *old = node_get(container, "command");

    node_add_str(b, command, MOUNT_RUNTIME "/bin/hvd-agent");
    node_add_str(b, command, "run");
    node_add_str(b, command, "--");
    for (const struct node *c = old ? old->first : NULL; c; c = c->next)
        node_add(b, command, node_copy(b, c));
    node_set(b, container, "command", command);
}

static void add_mount(struct build *b,
                      struct node *container,
                      const char *name,
                      const char *path,
                      bool read_only)
{
    struct node *m = node_object(b);

    node_set_str(b, m, "name", name);
    node_set_str(b, m, "mountPath", path);
    if (read_only)
        node_set_bool(b, m, "readOnly", true);
    node_add(b, node_child(b, container, "volumeMounts", NODE_ARRAY), m);
}

/* A Secret's files belong to root and to the pod's fsGroup. With an fsGroup the group
 * may read and nobody else; without one a process that is not root could only read what
 * everybody in the container may read. The volume is a read-only tmpfs that only this
 * pod mounts. */
static void add_volumes(struct build *b, struct node *spec, const struct job *job)
{
    bool has_group = node_at(spec, "securityContext.fsGroup") != NULL;
    struct node *volumes = node_child(b, spec, "volumes", NODE_ARRAY);
    struct node *runtime = node_object(b), *token = node_object(b);
    struct node *secret = node_object(b);
    char name[OBJECT_NAME_SIZE];

    node_set_str(b, runtime, "name", VOLUME_RUNTIME);
    node_set(b, runtime, "emptyDir", node_object(b));
    node_add(b, volumes, runtime);
    object_secret_name(job, name);
    node_set_str(b, secret, "secretName", name);
    node_set_int(b, secret, "defaultMode", has_group ? 0440 : 0444);
    node_set_str(b, token, "name", VOLUME_TOKEN);
    node_set(b, token, "secret", secret);
    node_add(b, volumes, token);
}

static void set_quantities(struct build *b,
                           struct node *resources,
                           const char *key,
                           const char *cpu,
                           const char *memory)
{
    struct node *q = node_object(b);

    node_set_str(b, q, "cpu", cpu);
    node_set_str(b, q, "memory", memory);
    node_set(b, resources, key, q);
}

static struct node *restricted_context(struct build *b, const struct node *spec)
{
    struct node *c = node_object(b), *caps = node_object(b), *drop = node_array(b);
    struct node *seccomp = node_object(b);

    node_set_bool(b, c, "allowPrivilegeEscalation", false);
    node_add_str(b, drop, "ALL");
    node_set(b, caps, "drop", drop);
    node_set(b, c, "capabilities", caps);
    node_set_bool(b, c, "readOnlyRootFilesystem", true);
    node_set_bool(b, c, "runAsNonRoot", true);
    if (node_int(spec, "securityContext.runAsUser", 0) == 0)
        node_set_int(b, c, "runAsUser", INSTALL_UID);
    node_set_str(b, seccomp, "type", "RuntimeDefault");
    node_set(b, c, "seccompProfile", seccomp);
    return c;
}

static void
add_init(struct build *b, struct node *spec, const struct object_config *cfg)
{
    struct node *c = node_object(b), *command = node_array(b);
    struct node *resources = node_object(b);

    node_set_str(b, c, "name", INIT_CONTAINER);
    node_set_str(b, c, "image", cfg->runtime_image);
    node_set_str(b, c, "imagePullPolicy", "IfNotPresent");
    node_add_str(b, command, MOUNT_RUNTIME "/bin/hvd-agent");
    node_add_str(b, command, "install");
    node_add_str(b, command, "/ringmaster");
    node_set(b, c, "command", command);
    set_quantities(b, resources, "requests", "10m", "32Mi");
    set_quantities(b, resources, "limits", "1", "128Mi");
    node_set(b, c, "resources", resources);
    node_set(b, c, "securityContext", restricted_context(b, spec));
    add_mount(b, c, VOLUME_RUNTIME, "/ringmaster", false);
    node_set_str(b, c, "terminationMessagePolicy", "FallbackToLogsOnError");
    node_add_first(b, node_child(b, spec, "initContainers", NODE_ARRAY), c);
}

static struct node *pod_metadata(struct build *b, const struct job *job, uint32_t index)
{
    const struct node *tm = node_get(job->pod_template, "metadata");
    struct node *meta = node_object(b), *labels;
    char text[16];

    if (node_get(tm, "annotations"))
        node_set(b, meta, "annotations", node_copy(b, node_get(tm, "annotations")));
    if (node_get(tm, "labels"))
        node_set(b, meta, "labels", node_copy(b, node_get(tm, "labels")));
    labels = node_child(b, meta, "labels", NODE_OBJECT);
    (void)snprintf(text, sizeof(text), "%u", index);
    node_set_str(b, labels, LABEL_JOB_ROLE, ROLE_WORKER);
    node_set_str(b, labels, LABEL_REPLICA_INDEX, text);
    return meta;
}

struct node *object_worker(struct build *b,
                           const struct job *job,
                           const struct object_config *cfg,
                           uint32_t index,
                           struct err *err)
{
    char name[OBJECT_NAME_SIZE];
    struct node *spec = node_copy(b, node_get(job->pod_template, "spec"));
    struct node *containers = node_child(b, spec, "containers", NODE_ARRAY);
    struct node *first = containers ? containers->first : NULL;
    struct agent_env a;
    struct node *o;

    object_worker_name(job, index, name);
    o = object_new(b, "Pod", job, name, pod_metadata(b, job, index));
    node_set_str(b, spec, "restartPolicy", "Never");
    node_set_str(b, spec, "hostname", name);
    node_set_str(b, spec, "subdomain", job->name);
    if (node_bool(spec, "hostNetwork", false) && !node_get(spec, "dnsPolicy"))
        node_set_str(b, spec, "dnsPolicy", "ClusterFirstWithHostNet");
    add_init(b, spec, cfg);
    add_volumes(b, spec, job);
    fill_agent_env(&a, job, cfg, index, first);
    if (b->status || add_env(b, first, &a, err) < 0) {
        if (b->status)
            (void)err_set(err, b->status, "pod %s: does not fit in memory", name);
        return NULL;
    }
    wrap_command(b, first);
    add_mount(b, first, VOLUME_RUNTIME, MOUNT_RUNTIME, false);
    add_mount(b, first, VOLUME_TOKEN, MOUNT_TOKEN, true);
    node_set(b, o, "spec", spec);
    return b->status ? NULL : o;
}

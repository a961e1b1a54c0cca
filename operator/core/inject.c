/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of the additions to a pod.
 *
 * Invariants
 *  1. The user's template is kept: the operator adds to it and changes only the command
 *     of the container that the agent runs in.
 *  2. The additions satisfy the `restricted` pod security standard.
 *  3. The token is in the Secret's data and nowhere else.
 * Called by the builders of objects, for every kind of job. */
#include "operator/core/inject.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/base64.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/env_table.h"

#define INSTALL_UID     65532 /* where the pod does not choose one */
#define DEFAULT_GRACE_S 30    /* Kubernetes' */
#define END_S           5     /* SIGTERM until SIGKILL, of ranks that did not leave */
#define MAX_LEAVE_S     86400 /* of hvd-agent serve */

void inject_token(struct build *b, struct node *secret, const uint8_t token[32])
{
    char text[2 * 32 + 2], encoded[BASE64_SIZE(sizeof(text))];
    struct node *data = node_object(b);

    hex_encode(token, 32, text);
    text[64] = '\n';
    base64_encode(text, 65, encoded);
    node_set_str(b, data, TOKEN_KEY, encoded);
    node_set_str(b, secret, "type", "Opaque");
    node_set_bool(b, secret, "immutable", true);
    node_set(b, secret, "data", data);
    explicit_bzero(text, sizeof(text));
    explicit_bzero(encoded, sizeof(encoded));
}

bool inject_env_is_reserved(const char *name)
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

/* The operator's variables come first, so that those of the user can refer to them as
 * $(NAME). */
void inject_variable(struct build *b,
                     struct node *container,
                     const char *name,
                     const char *value)
{
    struct node *e;

    if (!value || node_with(node_get(container, "env"), "name", name))
        return;
    e = node_object(b);
    node_set_str(b, e, "name", name);
    node_set_str(b, e, "value", value);
    node_add_first(b, node_child(b, container, "env", NODE_ARRAY), e);
}

int inject_env(struct build *b,
               struct node *container,
               const struct agent_env *a,
               struct err *err)
{
    AUTOFREE struct env_pair *pair = mem_calloc(CONTRACT_MAX_ENV, sizeof(*pair));
    size_t n = 0;
    int rc;

    if (!pair)
        return err_set(err, -ENOMEM, "out of memory");
    rc = agent_env_render(a, pair, &n, err);
    if (rc < 0)
        return rc;
    while (n-- > 0)
        inject_variable(b, container, pair[n].name, pair[n].value);
    return b->status;
}

void inject_command(struct build *b,
                    struct node *container,
                    const char *const *words,
                    size_t n)
{
    struct node *command = node_array(b);
    const struct node *old = node_get(container, "command");

    node_add_str(b, command, AGENT_COMMAND);
    for (size_t i = 0; i < n; i++)
        node_add_str(b, command, words[i]);
    node_add_str(b, command, "--");
    for (const struct node *c = old ? old->first : NULL; c; c = c->next)
        node_add(b, command, node_copy(b, c));
    node_set(b, container, "command", command);
}

void inject_mount(struct build *b,
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

/* A Secret's files belong to root and to the pod's fsGroup. With an fsGroup only that
 * group may read; without one, a process that is not root can only read files that are
 * readable for everybody in the container. The volume is a read-only tmpfs that only
 * this pod mounts. */
void inject_volumes(struct build *b, struct node *spec, const char *token_secret)
{
    bool has_group = node_at(spec, "securityContext.fsGroup") != NULL;
    struct node *volumes = node_child(b, spec, "volumes", NODE_ARRAY);
    struct node *runtime = node_object(b), *token = node_object(b);
    struct node *secret = node_object(b);

    node_set_str(b, runtime, "name", VOLUME_RUNTIME);
    node_set(b, runtime, "emptyDir", node_object(b));
    node_add(b, volumes, runtime);
    node_set_str(b, secret, "secretName", token_secret);
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

void inject_init(struct build *b, struct node *spec, const char *runtime_image)
{
    struct node *c = node_object(b), *command = node_array(b);
    struct node *resources = node_object(b);

    node_set_str(b, c, "name", INIT_CONTAINER);
    node_set_str(b, c, "image", runtime_image);
    node_set_str(b, c, "imagePullPolicy", "IfNotPresent");
    node_add_str(b, command, AGENT_COMMAND);
    node_add_str(b, command, "install");
    node_add_str(b, command, "/ringmaster");
    node_set(b, c, "command", command);
    set_quantities(b, resources, "requests", "10m", "32Mi");
    set_quantities(b, resources, "limits", "1", "128Mi");
    node_set(b, c, "resources", resources);
    node_set(b, c, "securityContext", restricted_context(b, spec));
    inject_mount(b, c, VOLUME_RUNTIME, "/ringmaster", false);
    node_set_str(b, c, "terminationMessagePolicy", "FallbackToLogsOnError");
    node_add_first(b, node_child(b, spec, "initContainers", NODE_ARRAY), c);
}

void inject_mounts(struct build *b, struct node *container)
{
    inject_mount(b, container, VOLUME_RUNTIME, MOUNT_RUNTIME, false);
    inject_mount(b, container, VOLUME_TOKEN, MOUNT_TOKEN, true);
}

void inject_leave_time(struct build *b, struct node *spec, struct node *container)
{
    int64_t s = node_int(spec, "terminationGracePeriodSeconds", DEFAULT_GRACE_S);
    char text[24];

    s = s > END_S ? s - END_S : 0;
    (void)snprintf(text, sizeof(text), "%lld",
                   (long long)(s < MAX_LEAVE_S ? s : MAX_LEAVE_S));
    inject_variable(b, container, "HVD_LEAVE_TIME", text);
}

static bool probe_runs_ssh(const struct node *probe)
{
    const struct node *words = node_at(probe, "exec.command");

    for (const struct node *c = words ? words->first : NULL; c; c = c->next) {
        if (c->type == NODE_STRING && strstr(c->u.s, "ssh"))
            return true;
    }
    return false;
}

void inject_probes(struct build *b, struct node *container, uint16_t port)
{
    static const char *const keys[] = {"startupProbe", "readinessProbe",
                                       "livenessProbe"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const struct node *was = node_get(container, keys[i]);
        struct node *probe;

        if (!was || (!node_get(was, "tcpSocket") && !probe_runs_ssh(was)))
            continue;
        probe = node_child(b, container, keys[i], NODE_OBJECT);
        node_drop(probe, "exec");
        node_drop(probe, "tcpSocket");
        node_set_int(b, node_child(b, probe, "tcpSocket", NODE_OBJECT), "port", port);
    }
}

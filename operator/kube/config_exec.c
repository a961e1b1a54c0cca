/* SPDX-License-Identifier: Apache-2.0 */
/* users[].user.exec of a kubeconfig: the program that provides credentials, and its
 * input. It never gets a terminal: an entry that requires one is refused. Called by
 * config_user.c. */
#include <errno.h>
#include <string.h>

#include "operator/doc/base64.h"
#include "operator/doc/json.h"
#include "operator/kube/config_parts.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define API_GROUP      "client.authentication.k8s.io/"
#define MAX_WORDS      256
#define MAX_WORD_BYTES (128u << 10)
#define INFO_ARENA     (8u << 20)
#define MAX_INFO_BYTES (1u << 20) /* with the CA */
#define EXEC_EXTENSION "client.authentication.k8s.io/exec"

static char **new_list(size_t n)
{
    return mem_calloc(n + 1, sizeof(char *));
}

static int read_version(const struct node *o, struct exec_spec *x, struct err *err)
{
    int rc = config_text(o, "apiVersion", &x->api_version, err);

    if (rc < 0)
        return rc;
    if (!x->api_version
        || (strcmp(x->api_version, API_GROUP "v1") != 0
            && strcmp(x->api_version, API_GROUP "v1beta1") != 0))
        return err_set(err, -EINVAL,
                       "kubeconfig: exec.apiVersion: \"%.100s\" is not " API_GROUP
                       "v1 or " API_GROUP "v1beta1",
                       x->api_version ? x->api_version : "");
    return 0;
}

static int check_mode(const struct node *o, struct err *err)
{
    const char *mode = node_str(o, "interactiveMode");

    if (!mode || strcmp(mode, "Never") == 0 || strcmp(mode, "IfAvailable") == 0)
        return 0;
    if (strcmp(mode, "Always") == 0)
        return err_set(err, -EINVAL,
                       "kubeconfig: exec.interactiveMode: Always needs a terminal, and "
                       "there is none");
    return err_set(err, -EINVAL,
                   "kubeconfig: exec.interactiveMode: \"%.50s\" is not one of Never, "
                   "IfAvailable, Always",
                   mode);
}

static int
read_argv(const struct node *o, const char *dir, struct exec_spec *x, struct err *err)
{
    const struct node *args = node_get(o, "args");
    AUTOFREE char *command = NULL;
    size_t n = 1;
    int rc = config_text(o, "command", &command, err);

    if (rc == 0 && !command)
        rc = err_set(err, -EINVAL, "kubeconfig: exec.command: missing");
    if (rc == 0 && args && (args->type != NODE_ARRAY || args->n > MAX_WORDS))
        rc = err_set(err, -EINVAL,
                     "kubeconfig: exec.args: must be an array of at most %d strings",
                     MAX_WORDS);
    if (rc < 0)
        return rc;
    x->argv = new_list(1 + (args ? args->n : 0));
    if (!x->argv)
        return config_no_memory(err);
    if (strchr(command, '/')) {
        rc = config_path(dir, command, &x->argv[0], err);
        if (rc < 0)
            return rc;
    } else {
        x->argv[0] = TAKE(command); /* to be found in $PATH */
    }
    for (const struct node *a = args ? args->first : NULL; a; a = a->next) {
        if (a->type != NODE_STRING || strlen(a->u.s) > MAX_WORD_BYTES)
            return err_set(err, -EINVAL, "kubeconfig: exec.args[%zu]: must be a string",
                           n - 1);
        x->argv[n] = mem_strdup(a->u.s);
        if (!x->argv[n++])
            return config_no_memory(err);
    }
    return 0;
}

static int read_variable(const struct node *v, size_t i, char **ret, struct err *err)
{
    const char *name = node_str(v, "name"), *value = node_str(v, "value");
    struct strbuf b;

    if (!name || !*name || strchr(name, '=') || !value)
        return err_set(err, -EINVAL,
                       "kubeconfig: exec.env[%zu]: must have a name and a value, both "
                       "strings",
                       i);
    strbuf_init(&b, MAX_WORD_BYTES);
    strbuf_printf(&b, "%s=%s", name, value);
    *ret = strbuf_take(&b);
    strbuf_release(&b);
    return *ret ? 0 : config_no_memory(err);
}

static int read_env(const struct node *o, struct exec_spec *x, struct err *err)
{
    const struct node *env = node_get(o, "env");
    size_t n = 0;
    int rc = 0;

    if (env && (env->type != NODE_ARRAY || env->n > MAX_WORDS))
        return err_set(err, -EINVAL,
                       "kubeconfig: exec.env: must be an array of at most %d",
                       MAX_WORDS);
    x->env = new_list(env ? env->n : 0);
    if (!x->env)
        return config_no_memory(err);
    for (const struct node *v = env ? env->first : NULL; v && rc == 0; v = v->next, n++)
        rc = read_variable(v, n, &x->env[n], err);
    return rc;
}

/* The CA goes in as base64, also where the kubeconfig names a file. */
static void add_cluster(struct build *b,
                        struct node *spec,
                        const struct node *cluster,
                        const struct kube_config *c)
{
    static const char *const same[] = {"server", "tls-server-name",
                                       "insecure-skip-tls-verify",
                                       "certificate-authority-data", "proxy-url"};
    struct node *o = node_child(b, spec, "cluster", NODE_OBJECT);
    const struct node *extensions = node_get(cluster, "extensions");

    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        const struct node *v = node_get(cluster, same[i]);

        if (v && v->type != NODE_NULL)
            node_set(b, o, same[i], node_copy(b, v));
    }
    if (c->ca_pem && !node_get(o, "certificate-authority-data")) {
        size_t n = strlen(c->ca_pem);
        char *text = arena_alloc(b->arena, BASE64_SIZE(n));

        if (text)
            base64_encode(c->ca_pem, n, text);
        else
            b->status = -ENOMEM;
        node_set_str(b, o, "certificate-authority-data", text ? text : "");
    }
    for (const struct node *e = extensions ? extensions->first : NULL; e; e = e->next) {
        const char *name = node_str(e, "name");

        if (name && strcmp(name, EXEC_EXTENSION) == 0 && node_get(e, "extension"))
            node_set(b, o, "config", node_copy(b, node_get(e, "extension")));
    }
}

static int make_info(const struct node *exec,
                     const struct node *cluster,
                     const struct kube_config *c,
                     struct exec_spec *x,
                     struct err *err)
{
    struct build b = {0};
    struct strbuf text;
    struct node *o, *spec;
    struct arena a;

    arena_init(&a, INFO_ARENA);
    strbuf_init(&text, MAX_INFO_BYTES);
    b.arena = &a;
    o = node_object(&b);
    node_set_str(&b, o, "apiVersion", x->api_version);
    node_set_str(&b, o, "kind", "ExecCredential");
    spec = node_child(&b, o, "spec", NODE_OBJECT);
    node_set_bool(&b, spec, "interactive", false);
    if (node_bool(exec, "provideClusterInfo", false))
        add_cluster(&b, spec, cluster, c);
    if (b.status == 0)
        json_write(o, &text);
    x->info = b.status ? NULL : strbuf_take(&text);
    strbuf_release(&text);
    arena_release(&a);
    return x->info ? 0 : config_no_memory(err);
}

int config_exec(const struct node *exec,
                const char *dir,
                const struct node *cluster,
                struct kube_config *c,
                struct err *err)
{
    struct exec_spec *x = mem_zalloc(sizeof(*x));
    int rc;

    if (!x)
        return config_no_memory(err);
    c->exec = x; /* released with c, also if incomplete */
    rc = read_version(exec, x, err);
    if (rc == 0)
        rc = check_mode(exec, err);
    if (rc == 0)
        rc = read_argv(exec, dir, x, err);
    if (rc == 0)
        rc = read_env(exec, x, err);
    if (rc == 0)
        rc = config_text(exec, "installHint", &x->install_hint, NULL) == -ENOMEM
                 ? config_no_memory(err)
                 : 0; /* several lines are accepted */
    if (rc == 0)
        rc = make_info(exec, cluster, c, x, err);
    return rc;
}

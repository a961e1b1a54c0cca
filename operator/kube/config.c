/* SPDX-License-Identifier: Apache-2.0 */
/* kubeconfig -> struct kube_config.
 *
 * Only what is needed to reach one API server safely: current context, its cluster and
 * its user. Certificates and keys stay in memory (libcurl takes them as blobs). What we
 * cannot do is refused with a sentence rather than skipped: a kubeconfig that means
 * more than we understand would otherwise fail later as "Unauthorized". TLS is always
 * verified; plain http is allowed to this machine only. Called once, at start, by
 * main.c. */
#include "operator/kube/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/base64.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define MAX_CONFIG_BYTES (4u << 20)
#define MAX_PEM_BYTES    (1u << 20)

void kube_config_release(struct kube_config *c)
{
    if (c->key_pem)
        explicit_bzero(c->key_pem, strlen(c->key_pem));
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    mem_free(c->server);
    mem_free(c->tls_server_name);
    mem_free(c->proxy_url);
    mem_free(c->ca_pem);
    mem_free(c->ca_file);
    mem_free(c->cert_pem);
    mem_free(c->key_pem);
    mem_free(c->token);
    mem_free(c->token_file);
    mem_free(c->ns);
    memset(c, 0, sizeof(*c));
}

static int no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "kubeconfig: out of memory");
}

/* {clusters: [{name: x, cluster: {...}}]} -> the inner object. */
static int find_entry(const struct node *root,
                      const char *list,
                      const char *inner,
                      const char *name,
                      const struct node **ret,
                      struct err *err)
{
    const struct node *array = node_get(root, list);

    for (const struct node *c = array ? array->first : NULL; c; c = c->next) {
        const char *s = node_str(c, "name");

        if (s && strcmp(s, name) == 0) {
            *ret = node_get(c, inner);
            return 0;
        }
    }
    return err_set(err, -EINVAL, "kubeconfig: %s has no entry named \"%s\"", list,
                   name);
}

static int copy_str(const struct node *o, const char *key, char **ret, struct err *err)
{
    const struct node *n = node_get(o, key);

    if (!n || n->type == NODE_NULL)
        return 0;
    if (n->type != NODE_STRING)
        return err_set(err, -EINVAL, "kubeconfig: %s: must be a string, is %s", key,
                       node_type_name(n->type));
    if (!*n->u.s)
        return 0;
    if (strpbrk(n->u.s, "\r\n"))
        return err_set(err, -EINVAL, "kubeconfig: %s: must be one line", key);
    *ret = mem_strdup(n->u.s);
    return *ret ? 0 : no_memory(err);
}

static int join_path(const char *dir, const char *path, char **ret, struct err *err)
{
    struct strbuf b;

    strbuf_init(&b, 4096);
    if (*path != '/')
        strbuf_printf(&b, "%s/", dir);
    strbuf_puts(&b, path);
    *ret = strbuf_take(&b);
    strbuf_release(&b);
    return *ret ? 0
                : err_set(err, -ENOMEM, "kubeconfig: \"%.100s\": path too long", path);
}

static int decode_data(const char *key, const char *text, char **ret, struct err *err)
{
    AUTOFREE char *out = mem_alloc(strlen(text) / 4 * 3 + 4);
    size_t n;

    if (!out)
        return no_memory(err);
    if (base64_decode(text, out, &n) < 0 || strlen(out) != n)
        return err_set(err, -EINVAL, "kubeconfig: %s: is not base64 of PEM text", key);
    *ret = TAKE(out);
    return 0;
}

/* The PEM of key-data, or else of the file that key names. */
static int load_pem(
    const struct node *o, const char *key, const char *dir, char **ret, struct err *err)
{
    AUTOFREE char *data = NULL;
    AUTOFREE char *file = NULL;
    AUTOFREE char *path = NULL;
    char data_key[64];
    size_t n;
    int rc;

    (void)snprintf(data_key, sizeof(data_key), "%s-data", key);
    rc = copy_str(o, data_key, &data, err);
    if (rc == 0 && data)
        return decode_data(data_key, data, ret, err);
    if (rc == 0)
        rc = copy_str(o, key, &file, err);
    if (rc < 0 || !file)
        return rc;
    rc = join_path(dir, file, &path, err);
    if (rc == 0)
        rc = fd_read_file(path, MAX_PEM_BYTES, ret, &n, err);
    return rc < 0 ? err_prefix(err, "kubeconfig: %s", key) : 0;
}

static int check_server(struct kube_config *c, struct err *err)
{
    static const char *const local[] = {"http://127.0.0.1", "http://localhost",
                                        "http://[::1]"};
    size_t n;

    if (!c->server)
        return err_set(err, -EINVAL, "kubeconfig: the cluster has no server");
    n = strlen(c->server);
    while (n > 0 && c->server[n - 1] == '/')
        c->server[--n] = '\0';
    if (strncmp(c->server, "https://", 8) == 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(local); i++) {
        size_t len = strlen(local[i]);

        if (strncmp(c->server, local[i], len) == 0
            && (!c->server[len] || strchr(":/", c->server[len])))
            return 0;
    }
    return err_set(err, -EINVAL,
                   "kubeconfig: server: \"%s\" must begin with https:// (http is for "
                   "this machine only)",
                   c->server);
}

int kube_config_set_server(struct kube_config *c, const char *url, struct err *err)
{
    char *copy = mem_strdup(url);

    if (!copy)
        return no_memory(err);
    mem_free(c->server);
    c->server = copy;
    return check_server(c, err);
}

static int read_cluster(const struct node *o,
                        const char *dir,
                        struct kube_config *c,
                        struct err *err)
{
    int rc;

    if (node_bool(o, "insecure-skip-tls-verify", false))
        return err_set(err, -EINVAL,
                       "kubeconfig: insecure-skip-tls-verify is not supported; give "
                       "certificate-authority instead");
    rc = copy_str(o, "server", &c->server, err);
    if (rc == 0)
        rc = copy_str(o, "tls-server-name", &c->tls_server_name, err);
    if (rc == 0)
        rc = copy_str(o, "proxy-url", &c->proxy_url, err);
    if (rc == 0)
        rc = load_pem(o, "certificate-authority", dir, &c->ca_pem, err);
    if (rc == 0)
        rc = check_server(c, err);
    return rc;
}

static int
read_user(const struct node *o, const char *dir, struct kube_config *c, struct err *err)
{
    static const char *const refused[] = {"exec", "auth-provider", "username", "as"};
    AUTOFREE char *file = NULL;
    int rc;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        if (node_get(o, refused[i]))
            return err_set(err, -EINVAL,
                           "kubeconfig: users[].user.%s is not supported; use a client "
                           "certificate, token or tokenFile",
                           refused[i]);
    }
    rc = load_pem(o, "client-certificate", dir, &c->cert_pem, err);
    if (rc == 0)
        rc = load_pem(o, "client-key", dir, &c->key_pem, err);
    if (rc == 0)
        rc = copy_str(o, "tokenFile", &file, err);
    if (rc == 0 && file)
        rc = join_path(dir, file, &c->token_file, err);
    if (rc == 0 && !file)
        rc = copy_str(o, "token", &c->token, err);
    if (rc == 0 && !c->cert_pem != !c->key_pem)
        return err_set(err, -EINVAL,
                       "kubeconfig: client-certificate and client-key belong together; "
                       "%s is missing",
                       c->cert_pem ? "client-key" : "client-certificate");
    return rc;
}

static int read_root(const struct node *root,
                     const char *dir,
                     struct kube_config *c,
                     struct err *err)
{
    const char *name = node_str(root, "current-context");
    const char *cluster_name, *user_name;
    const struct node *context, *cluster, *user = NULL;
    int rc;

    if (!name || !*name)
        return err_set(err, -EINVAL, "kubeconfig: current-context: missing");
    rc = find_entry(root, "contexts", "context", name, &context, err);
    if (rc < 0)
        return rc;
    cluster_name = node_str(context, "cluster");
    user_name = node_str(context, "user");
    if (!cluster_name)
        return err_set(err, -EINVAL, "kubeconfig: context \"%s\" names no cluster",
                       name);
    rc = find_entry(root, "clusters", "cluster", cluster_name, &cluster, err);
    if (rc == 0 && user_name && *user_name)
        rc = find_entry(root, "users", "user", user_name, &user, err);
    if (rc == 0)
        rc = copy_str(context, "namespace", &c->ns, err);
    if (rc == 0)
        rc = read_cluster(cluster, dir, c, err);
    if (rc == 0)
        rc = read_user(user, dir, c, err);
    return rc;
}

int kube_config_parse(const char *text,
                      size_t n,
                      const char *dir,
                      struct kube_config *ret,
                      struct err *err)
{
    struct kube_config c = {0};
    struct arena a;
    struct node *root;
    int rc;

    arena_init(&a, 4 * MAX_CONFIG_BYTES);
    rc = yaml_read(&a, text, n, &root, err);
    if (rc < 0)
        (void)err_prefix(err, "kubeconfig");
    else
        rc = read_root(root, dir, &c, err);
    arena_release(&a);
    if (rc < 0)
        kube_config_release(&c);
    else
        *ret = c;
    return rc;
}

int kube_config_load(const char *path,
                     const char *env_value,
                     const char *home,
                     struct kube_config *ret,
                     struct err *err)
{
    AUTOFREE char *text = NULL;
    AUTOFREE char *dir = NULL;
    char fallback[4096];
    char *slash;
    size_t n;
    int rc;

    if (!path && env_value && *env_value)
        path = env_value;
    if (!path) {
        (void)snprintf(fallback, sizeof(fallback), "%s/.kube/config", home ? home : "");
        path = fallback;
    } else if (path == env_value && strchr(path, ':')) {
        return err_set(err, -EINVAL,
                       "KUBECONFIG: \"%.200s\" is a list; name one file, for example "
                       "by --kubeconfig",
                       path);
    }
    rc = fd_read_file(path, MAX_CONFIG_BYTES, &text, &n, err);
    if (rc < 0)
        return rc;
    dir = mem_strdup(path);
    if (!dir)
        return no_memory(err);
    slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    rc = kube_config_parse(text, n, slash ? dir : ".", ret, err);
    explicit_bzero(text, n);
    return rc < 0 ? err_prefix(err, "%s", path) : 0;
}

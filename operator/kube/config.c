/* SPDX-License-Identifier: Apache-2.0 */
/* kubeconfig files -> struct kube_config.
 *
 *   files --> documents --> current-context of the first that has one
 *                      '--> its context, cluster, user: each from the first document
 *                           that has an entry of the name, whole (nothing is merged)
 *
 * Only what is needed to reach one API server: the current context, its cluster and its
 * user. Inline certificates and keys stay in memory (libcurl takes them as blobs). Of
 * files the paths are kept, since other programs renew them. What is not supported is
 * refused with an error instead of skipped; otherwise it would fail later as
 * "Unauthorized". Plain http is allowed to this machine only. Called once, at the
 * start, by main.c. */
#include "operator/kube/config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/base64.h"
#include "operator/doc/yaml.h"
#include "operator/kube/config_parts.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define MAX_CONFIG_BYTES (4u << 20)
#define MAX_PEM_BYTES    (1u << 20)
#define MAX_FILES        32

struct document {
    struct arena arena;
    struct node *root;
    char *dir;
};

static void free_list(char **list)
{
    for (char **p = list; p && *p; p++)
        mem_free_secret(p);
    mem_free((void *)list);
}

void exec_spec_free(struct exec_spec *x)
{
    if (!x)
        return;
    free_list(x->argv);
    free_list(x->env); /* may have secrets */
    mem_free(x->api_version);
    mem_free(x->info);
    mem_free(x->install_hint);
    mem_free(x);
}

void kube_config_release(struct kube_config *c)
{
    mem_free_secret(&c->key_pem);
    mem_free_secret(&c->token);
    mem_free_secret(&c->password);
    mem_free(c->server);
    mem_free(c->tls_server_name);
    mem_free_secret(&c->proxy_url); /* may have a password */
    mem_free(c->ca_pem);
    mem_free(c->ca_file);
    mem_free(c->cert_pem);
    mem_free(c->cert_file);
    mem_free(c->key_file);
    mem_free(c->token_file);
    mem_free(c->username);
    exec_spec_free(c->exec);
    mem_free(c->impersonate);
    mem_free(c->ns);
    memset(c, 0, sizeof(*c));
}

int config_no_memory(struct err *err)
{
    return err_set(err, -ENOMEM, "kubeconfig: out of memory");
}

int config_text(const struct node *o, const char *key, char **ret, struct err *err)
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
    return *ret ? 0 : config_no_memory(err);
}

int config_path(const char *dir, const char *path, char **ret, struct err *err)
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
    size_t size = strlen(text) / 4 * 3 + 4, n;
    AUTOFREE char *out = mem_zalloc(size);

    if (!out)
        return config_no_memory(err);
    if (base64_decode(text, out, &n) < 0 || strlen(out) != n) {
        explicit_bzero(out, size);
        return err_set(err, -EINVAL, "kubeconfig: %s: is not base64 of PEM text", key);
    }
    *ret = TAKE(out);
    return 0;
}

int config_pem(const struct node *o,
               const char *key,
               const char *dir,
               char **ret,
               char **ret_file,
               struct err *err)
{
    AUTOFREE char *data = NULL;
    AUTOFREE char *file = NULL;
    AUTOFREE char *path = NULL;
    char data_key[64];
    size_t n;
    int rc;

    (void)snprintf(data_key, sizeof(data_key), "%s-data", key);
    rc = config_text(o, data_key, &data, err);
    if (rc == 0 && data) {
        rc = decode_data(data_key, data, ret, err);
        explicit_bzero(data, strlen(data)); /* it may be a key */
        return rc;
    }
    if (rc == 0)
        rc = config_text(o, key, &file, err);
    if (rc < 0 || !file)
        return rc;
    rc = config_path(dir, file, &path, err);
    if (rc == 0)
        rc = fd_read_file(path, MAX_PEM_BYTES, ret, &n, err);
    if (rc < 0)
        (void)err_prefix(err, "kubeconfig: %s", key);
    else
        *ret_file = TAKE(path);
    return rc;
}

/* "https://user:password@host": errors would show it. */
static bool has_user(const char *url)
{
    const char *host = strstr(url, "://");

    host = host ? host + 3 : url;
    return memchr(host, '@', strcspn(host, "/")) != NULL;
}

static int check_server(struct kube_config *c, struct err *err)
{
    static const char *const local[] = {"http://127.0.0.1", "http://localhost",
                                        "http://[::1]"};
    size_t n;

    if (!c->server)
        return err_set(err, -EINVAL, "kubeconfig: the cluster has no server");
    if (has_user(c->server))
        return err_set(err, -EINVAL,
                       "kubeconfig: server: must not have a user or a password; set "
                       "them in users[].user");
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
        return config_no_memory(err);
    mem_free(c->server);
    c->server = copy;
    return check_server(c, err);
}

static int check_proxy(struct kube_config *c, struct err *err)
{
    static const char *const schemes[] = {"http://", "https://", "socks5://",
                                          "socks5h://"};

    if (!c->proxy_url)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        if (strncmp(c->proxy_url, schemes[i], strlen(schemes[i])) == 0)
            return 0;
    }
    /* not shown: it may have a password */
    return err_set(err, -EINVAL,
                   "kubeconfig: proxy-url: must begin with http://, https:// or "
                   "socks5://");
}

static int read_cluster(const struct node *o,
                        const char *dir,
                        struct kube_config *c,
                        struct err *err)
{
    int rc;

    c->is_insecure = node_bool(o, "insecure-skip-tls-verify", false);
    rc = config_text(o, "server", &c->server, err);
    if (rc == 0)
        rc = config_text(o, "tls-server-name", &c->tls_server_name, err);
    if (rc == 0)
        rc = config_text(o, "proxy-url", &c->proxy_url, err);
    if (rc == 0)
        rc = config_pem(o, "certificate-authority", dir, &c->ca_pem, &c->ca_file, err);
    if (rc == 0 && c->is_insecure && c->ca_pem)
        rc = err_set(err, -EINVAL,
                     "kubeconfig: insecure-skip-tls-verify and certificate-authority "
                     "contradict each other; leave one of them out");
    if (rc == 0)
        rc = check_proxy(c, err);
    if (rc == 0)
        rc = check_server(c, err);
    return rc;
}

/* --- documents -------------------------------------------------------------------- */

/* {clusters: [{name: x, cluster: {...}}]} -> the inner object and the directory of its
 * file. */
static int find_entry(const struct document *docs,
                      size_t n,
                      const char *list,
                      const char *inner,
                      const char *name,
                      const struct node **ret,
                      const char **ret_dir,
                      struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct node *array = node_get(docs[i].root, list);

        for (const struct node *c = array ? array->first : NULL; c; c = c->next) {
            const char *s = node_str(c, "name");

            if (s && strcmp(s, name) == 0) {
                *ret = node_get(c, inner);
                *ret_dir = docs[i].dir;
                return 0;
            }
        }
    }
    return err_set(err, -EINVAL, "kubeconfig: %s has no entry named \"%s\"", list,
                   name);
}

static const char *current_context(const struct document *docs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *s = node_str(docs[i].root, "current-context");

        if (s && *s)
            return s;
    }
    return NULL;
}

static int read_documents(const struct document *docs,
                          size_t n,
                          struct kube_config *c,
                          struct err *err)
{
    const char *name = current_context(docs, n), *cluster_name, *user_name;
    const char *dir, *cluster_dir, *user_dir = ".";
    const struct node *context, *cluster, *user = NULL;
    int rc;

    if (!name)
        return err_set(err, -EINVAL, "kubeconfig: current-context: missing");
    rc = find_entry(docs, n, "contexts", "context", name, &context, &dir, err);
    if (rc < 0)
        return rc;
    cluster_name = node_str(context, "cluster");
    user_name = node_str(context, "user");
    if (!cluster_name)
        return err_set(err, -EINVAL, "kubeconfig: context \"%s\" names no cluster",
                       name);
    rc = find_entry(docs, n, "clusters", "cluster", cluster_name, &cluster,
                    &cluster_dir, err);
    if (rc == 0 && user_name && *user_name)
        rc = find_entry(docs, n, "users", "user", user_name, &user, &user_dir, err);
    if (rc == 0)
        rc = config_text(context, "namespace", &c->ns, err);
    if (rc == 0)
        rc = read_cluster(cluster, cluster_dir, c, err);
    if (rc == 0)
        rc = config_user(user, user_dir, cluster, c, err);
    return rc;
}

static int config_finish(const struct document *docs,
                         size_t n,
                         struct kube_config *ret,
                         struct err *err)
{
    struct kube_config c = {0};
    int rc = read_documents(docs, n, &c, err);

    if (rc < 0)
        kube_config_release(&c);
    else
        *ret = c;
    return rc;
}

static void close_document(struct document *d)
{
    arena_wipe(&d->arena); /* tokens and keys */
    arena_release(&d->arena);
    mem_free(d->dir);
}

static int open_document(
    struct document *d, const char *text, size_t n, const char *dir, struct err *err)
{
    int rc;

    *d = (struct document){.dir = mem_strdup(dir)};
    arena_init(&d->arena, 4 * MAX_CONFIG_BYTES);
    rc = d->dir ? yaml_read(&d->arena, text, n, &d->root, err) : -ENOMEM;
    if (!d->dir)
        return config_no_memory(err);
    if (rc < 0)
        (void)err_prefix(err, "kubeconfig");
    return rc;
}

int kube_config_parse(const char *text,
                      size_t n,
                      const char *dir,
                      struct kube_config *ret,
                      struct err *err)
{
    struct document d;
    int rc = open_document(&d, text, n, dir, err);

    if (rc == 0)
        rc = config_finish(&d, 1, ret, err);
    close_document(&d);
    return rc;
}

static int open_file(struct document *d, const char *path, struct err *err)
{
    AUTOFREE char *text = NULL;
    AUTOFREE char *dir = mem_strdup(path);
    char *slash;
    size_t n;
    int rc;

    *d = (struct document){0};
    if (!dir)
        return config_no_memory(err);
    rc = fd_read_file(path, MAX_CONFIG_BYTES, &text, &n, err);
    if (rc < 0)
        return rc;
    slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    rc = open_document(d, text, n, !slash ? "." : *dir ? dir : "/", err);
    explicit_bzero(text, n);
    if (rc < 0)
        (void)err_prefix(err, "%s", path);
    return rc;
}

/* All existing files of the list. */
static int load_list(const char *list, struct kube_config *ret, struct err *err)
{
    struct document docs[MAX_FILES];
    AUTOFREE char *copy = mem_strdup(list);
    char *rest = copy, *path;
    size_t n = 0;
    int rc = copy ? 0 : config_no_memory(err);

    while (rc == 0 && (path = strsep(&rest, ":"))) {
        if (!*path)
            continue;
        if (n == MAX_FILES) {
            rc =
                err_set(err, -E2BIG, "KUBECONFIG: names more than %d files", MAX_FILES);
            break;
        }
        rc = open_file(&docs[n++], path, err);
        if (rc == -ENOENT) {
            close_document(&docs[--n]);
            rc = 0;
        }
    }
    if (rc == 0 && n == 0)
        rc = err_set(err, -ENOENT, "KUBECONFIG: no file of \"%.200s\" exists", list);
    if (rc == 0) {
        rc = config_finish(docs, n, ret, err);
        if (rc < 0)
            (void)err_prefix(err, "KUBECONFIG=%.200s", list);
    }
    while (n > 0)
        close_document(&docs[--n]);
    return rc;
}

int kube_config_load(const char *path,
                     const char *env_value,
                     const char *home,
                     struct kube_config *ret,
                     struct err *err)
{
    char fallback[4096];
    struct document d;
    int rc;

    if (!path && env_value && *env_value)
        return load_list(env_value, ret, err);
    if (!path) {
        (void)snprintf(fallback, sizeof(fallback), "%s/.kube/config", home ? home : "");
        path = fallback;
    }
    rc = open_file(&d, path, err);
    if (rc == 0) {
        rc = config_finish(&d, 1, ret, err);
        if (rc < 0)
            (void)err_prefix(err, "%s", path);
    }
    close_document(&d);
    return rc;
}

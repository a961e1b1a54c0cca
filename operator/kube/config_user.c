/* SPDX-License-Identifier: Apache-2.0 */
/* users[].user of a kubeconfig: our identity, and the identity to impersonate.
 *
 * Of several credentials the first of these is used: the file of a token, a token (also
 * while the file cannot be read), name and password, a plug-in. A client certificate is
 * used in addition to any of them. Error messages never contain secrets. Called by
 * config.c. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/kube/config_parts.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define MAX_IMPERSONATE_BYTES (64u << 10)

/* --- impersonation ---------------------------------------------------------------- */

static int user_add_header(struct strbuf *out,
                           const char *name,
                           const struct node *value,
                           struct err *err)
{
    if (value->type != NODE_STRING || strpbrk(value->u.s, "\r\n"))
        return err_set(err, -EINVAL,
                       "kubeconfig: users[].user: %s: must be strings of "
                       "one line",
                       name);
    strbuf_printf(out, "%s: %s\n", name, value->u.s);
    return 0;
}

static int add_headers(struct strbuf *out,
                       const char *name,
                       const struct node *values,
                       struct err *err)
{
    int rc = 0;

    if (!values)
        return 0;
    if (values->type != NODE_ARRAY)
        return user_add_header(out, name, values, err);
    for (const struct node *v = values->first; v && rc == 0; v = v->next)
        rc = user_add_header(out, name, v, err);
    return rc;
}

/* The key as a part of a header's name: lower case, and percent-encoded where a name
 * cannot have the character. */
static void add_key(struct strbuf *name, const char *key)
{
    for (; *key; key++) {
        unsigned char c = (unsigned char)*key;

        if (c >= 'A' && c <= 'Z')
            strbuf_putc(name, (char)(c - 'A' + 'a'));
        else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')
                 || strchr("!#$&'*+-.^_`|~", c))
            strbuf_putc(name, (char)c);
        else
            strbuf_printf(name, "%%%02X", c);
    }
}

static int add_extra(struct strbuf *out, const struct node *extra, struct err *err)
{
    struct strbuf name;
    int rc = 0;

    for (const struct node *c = extra ? extra->first : NULL; c && rc == 0;
         c = c->next) {
        if (!c->key)
            return err_set(err, -EINVAL,
                           "kubeconfig: users[].user.as-user-extra: must be an object");
        strbuf_init(&name, 4096);
        strbuf_puts(&name, "Impersonate-Extra-");
        add_key(&name, c->key);
        rc = strbuf_status(&name) ? config_no_memory(err)
                                  : add_headers(out, strbuf_str(&name), c, err);
        strbuf_release(&name);
    }
    return rc;
}

static int
read_impersonation(const struct node *o, struct kube_config *c, struct err *err)
{
    const struct node *groups = node_get(o, "as-groups");
    const struct node *extra = node_get(o, "as-user-extra");
    const char *as = node_str(o, "as");
    struct strbuf out;
    int rc;

    strbuf_init(&out, MAX_IMPERSONATE_BYTES);
    rc = add_headers(&out, "Impersonate-User", as && *as ? node_get(o, "as") : NULL,
                     err);
    if (rc == 0)
        rc = add_headers(&out, "Impersonate-Uid", node_get(o, "as-uid"), err);
    if (rc == 0)
        rc = add_headers(&out, "Impersonate-Group", groups, err);
    if (rc == 0)
        rc = add_extra(&out, extra, err);
    if (rc == 0 && strbuf_status(&out))
        rc = config_no_memory(err);
    if (rc == 0 && out.n > 0 && !(as && *as))
        rc = err_set(err, -EINVAL,
                     "kubeconfig: users[].user: as-uid, as-groups and as-user-extra "
                     "need as, the name of the user to act as");
    if (rc == 0 && out.n > 0) {
        c->impersonate = strbuf_take(&out);
        if (!c->impersonate)
            rc = config_no_memory(err);
    }
    strbuf_release(&out);
    return rc;
}

/* --- credentials ------------------------------------------------------------------ */

static int read_certificate(const struct node *o,
                            const char *dir,
                            struct kube_config *c,
                            struct err *err)
{
    int rc = config_pem(o, "client-certificate", dir, &c->cert_pem, &c->cert_file, err);

    if (rc == 0)
        rc = config_pem(o, "client-key", dir, &c->key_pem, &c->key_file, err);
    if (rc == 0 && !c->cert_pem != !c->key_pem)
        rc = err_set(err, -EINVAL,
                     "kubeconfig: client-certificate and client-key belong together; "
                     "%s is missing",
                     c->cert_pem ? "client-key" : "client-certificate");
    if (c->cert_file) /* checks that they can be read; pair.c reads them when needed */
        mem_free_secret(&c->cert_pem);
    if (c->key_file)
        mem_free_secret(&c->key_pem);
    return rc;
}

static int read_token(const struct node *o,
                      const char *dir,
                      struct kube_config *c,
                      struct err *err)
{
    AUTOFREE char *file = NULL;
    int rc = config_text(o, "tokenFile", &file, err);

    if (rc == 0 && file)
        rc = config_path(dir, file, &c->token_file, err);
    return rc < 0 ? rc : config_text(o, "token", &c->token, err);
}

static int read_basic(const struct node *o, struct kube_config *c, struct err *err)
{
    int rc = config_text(o, "username", &c->username, err);

    if (rc == 0)
        rc = config_text(o, "password", &c->password, err);
    if (rc == 0 && !c->username != !c->password)
        rc = err_set(err, -EINVAL,
                     "kubeconfig: username and password belong together; %s is missing",
                     c->username ? "password" : "username");
    if (rc == 0 && c->username && strchr(c->username, ':'))
        rc = err_set(err, -EINVAL, "kubeconfig: username: must not have a colon");
    return rc;
}

int config_user(const struct node *user,
                const char *dir,
                const struct node *cluster,
                struct kube_config *c,
                struct err *err)
{
    int rc;

    if (node_get(user, "auth-provider"))
        return err_set(err, -EINVAL,
                       "kubeconfig: users[].user.auth-provider was removed from "
                       "Kubernetes in 1.26; use the exec plug-in of your provider");
    rc = read_certificate(user, dir, c, err);
    if (rc == 0)
        rc = read_token(user, dir, c, err);
    if (rc == 0 && !c->token && !c->token_file)
        rc = read_basic(user, c, err);
    if (rc == 0 && node_get(user, "exec") && !c->token && !c->token_file
        && !c->username)
        rc = config_exec(node_get(user, "exec"), dir, cluster, c, err);
    if (rc == 0)
        rc = read_impersonation(user, c, err);
    return rc;
}

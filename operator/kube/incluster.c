/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration of a program in a pod: two variables and the directory of the
 * service account. The kubelet rotates the token and the CA, so their paths are kept
 * and the files are read again later. Called once, at the start, by main.c. */
#include <errno.h>
#include <string.h>

#include "operator/kube/config.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

static char *strbuf_finish(struct strbuf *b)
{
    char *s = strbuf_take(b);

    strbuf_release(b);
    return s;
}

static char *in_dir(const char *dir, const char *name)
{
    struct strbuf b;

    strbuf_init(&b, 4096);
    strbuf_printf(&b, "%s/%s", dir, name);
    return strbuf_finish(&b);
}

static char *server_url(const char *host, const char *port)
{
    bool is_v6 = strchr(host, ':') != NULL;
    struct strbuf b;

    strbuf_init(&b, 512);
    strbuf_printf(&b, is_v6 ? "https://[%s]:%s" : "https://%s:%s", host, port);
    return strbuf_finish(&b);
}

int kube_config_incluster(const char *host,
                          const char *port,
                          const char *dir,
                          struct kube_config *ret,
                          struct err *err)
{
    AUTOFREE char *ns_path = NULL;
    struct kube_config c = {0};
    size_t n;

    if (!host || !*host || !port || !*port)
        return err_set(err, -ENOENT,
                       "KUBERNETES_SERVICE_HOST is not set: not running in a pod; give "
                       "--kubeconfig");
    c.is_pod = true;
    c.server = server_url(host, port);
    c.ca_file = in_dir(dir, "ca.crt");
    c.token_file = in_dir(dir, "token");
    ns_path = in_dir(dir, "namespace");
    if (!c.server || !c.ca_file || !c.token_file || !ns_path) {
        kube_config_release(&c);
        return err_set(err, -ENOMEM, "out of memory");
    }
    /* absent if the projected volume leaves it out; then there is no default
     * namespace */
    if (fd_read_file(ns_path, 1024, &c.ns, &n, NULL) == 0)
        c.ns[strcspn(c.ns, " \r\n")] = '\0';
    *ret = c;
    return 0;
}

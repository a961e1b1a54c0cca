/* SPDX-License-Identifier: Apache-2.0 */
/* Where the API server is and who we are there, from a kubeconfig or from the pod we
 * run in. */
#ifndef OPERATOR_KUBE_CONFIG_H
#define OPERATOR_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

struct kube_config {       /* every string is owned; NULL when absent */
    char *server;          /* "https://10.0.0.1:6443", no slash at the end */
    char *tls_server_name; /* name in the certificate when it is not the server's */
    char *proxy_url;
    char *ca_pem;   /* PEM; NULL: the system's certificates */
    char *ca_file;  /* read again for every connection, so that a new CA is noticed */
    char *cert_pem; /* client certificate and key, both or none; never written to a file
                     */
    char *key_pem;
    char *token;      /* bearer token, or */
    char *token_file; /* a file that is read again every minute */
    char *ns;         /* namespace of the context, or of the pod */
    bool is_pod;      /* found by kube_config_incluster */
};
void kube_config_release(struct kube_config *c);

/* path: --kubeconfig, or NULL for $KUBECONFIG (env_value, a single path; lists are
 * refused) or home/.kube/config. Relative paths within it start at its folder. Refused
 * with a sentence: exec and auth-provider plugins, insecure-skip-tls-verify, http to
 * another host. */
int kube_config_load(const char *path,
                     const char *env_value,
                     const char *home,
                     struct kube_config *ret,
                     struct err *err);
/* The text of one kubeconfig; dir is for its relative paths. No file is read that it
 * does not name. Also the fuzz target. */
int kube_config_parse(const char *text,
                      size_t n,
                      const char *dir,
                      struct kube_config *ret,
                      struct err *err);
/* Another server for what was loaded, or for nothing at all. */
int kube_config_set_server(struct kube_config *c, const char *url, struct err *err);
/* Inside a pod: host and port are $KUBERNETES_SERVICE_HOST and _PORT, dir the service
 * account's folder (INCLUSTER_DIR). -ENOENT when we are in no pod. */
#define INCLUSTER_DIR "/var/run/secrets/kubernetes.io/serviceaccount"
int kube_config_incluster(const char *host,
                          const char *port,
                          const char *dir,
                          struct kube_config *ret,
                          struct err *err);

#endif

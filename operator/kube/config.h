/* SPDX-License-Identifier: Apache-2.0 */
/* The address of the API server and our identity, from kubeconfig files or from the
 * pod. */
#ifndef OPERATOR_KUBE_CONFIG_H
#define OPERATOR_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

/* A credential plug-in: a program that prints an ExecCredential. All owned. */
struct exec_spec {
    char **argv;       /* NULL at the end; [0] is the command, a path or for $PATH */
    char **env;        /* "NAME=value", NULL at the end; added to our own environment */
    char *api_version; /* "client.authentication.k8s.io/v1" or .../v1beta1 */
    char *info;        /* for $KUBERNETES_EXEC_INFO: JSON */
    char *install_hint;
};
void exec_spec_free(struct exec_spec *x); /* accepts NULL */

struct kube_config {       /* every string is owned; NULL when absent */
    char *server;          /* "https://10.0.0.1:6443", no slash at the end */
    char *tls_server_name; /* name in the certificate when it is not the server's */
    char *proxy_url; /* http, https, socks5 or socks5h; NULL: $HTTPS_PROXY, $NO_PROXY */
    bool is_insecure; /* insecure-skip-tls-verify: the server is not verified */
    char *ca_pem;     /* PEM; NULL: the system's certificates */
    char *ca_file;    /* preferred to ca_pem: read for every connection, so that
                         a new CA is used */
    char *cert_pem, *cert_file; /* client certificate, as text or as path; */
    char *key_pem, *key_file;   /* and its key. Both or none; never written to a file */
    char *token;                /* bearer token; */
    char *token_file;           /* file with the token, read again every minute; or */
    char *username, *password;  /* both or none; or */
    struct exec_spec *exec;     /* a credential plug-in */
    char *impersonate; /* header lines, each with a newline: the identity to act as */
    char *ns;          /* namespace of the context, or of the pod */
    bool is_pod;       /* found by kube_config_incluster */
};
void kube_config_release(struct kube_config *c);

/* path: --kubeconfig, or NULL for the files of $KUBECONFIG (env_value, separated by
 * colons) or home/.kube/config. An entry, or the
 * current-context, is taken from the first file that has it; missing files are skipped.
 * Relative paths start at the directory of their file. Refused with an error:
 * auth-provider, exec entries that require a terminal, http to another host. */
int kube_config_load(const char *path,
                     const char *env_value,
                     const char *home,
                     struct kube_config *ret,
                     struct err *err);
/* The text of one kubeconfig; dir is for its relative paths. Reads only files that it
 * names. Also the fuzz target. */
int kube_config_parse(const char *text,
                      size_t n,
                      const char *dir,
                      struct kube_config *ret,
                      struct err *err);
/* Replaces the server of a loaded or an empty configuration. */
int kube_config_set_server(struct kube_config *c, const char *url, struct err *err);
/* Inside a pod: host and port are $KUBERNETES_SERVICE_HOST and _PORT, dir the service
 * account's directory (INCLUSTER_DIR). -ENOENT outside a pod. */
#define INCLUSTER_DIR "/var/run/secrets/kubernetes.io/serviceaccount"
int kube_config_incluster(const char *host,
                          const char *port,
                          const char *dir,
                          struct kube_config *ret,
                          struct err *err);

#endif

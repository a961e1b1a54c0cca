/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that read a kubeconfig; for config*.c only. All error messages
 * start with "kubeconfig:". Results are owned by the caller and left unchanged where
 * the key is absent or empty. */
#ifndef OPERATOR_KUBE_CONFIG_PARTS_H
#define OPERATOR_KUBE_CONFIG_PARTS_H

#include "operator/doc/node.h"
#include "operator/kube/config.h"

int config_no_memory(struct err *err);
/* A string of one line. */
int config_text(const struct node *o, const char *key, char **ret, struct err *err);
int config_path(const char *dir, const char *path, char **ret, struct err *err);
/* The PEM of key-data, or else of the file that key names; then *ret_file is its path.
 */
int config_pem(const struct node *o,
               const char *key,
               const char *dir,
               char **ret,
               char **ret_file,
               struct err *err);
/* Our identity: config_user.c. cluster is for plug-ins with provideClusterInfo. */
int config_user(const struct node *user,
                const char *dir,
                const struct node *cluster,
                struct kube_config *c,
                struct err *err);
/* users[].user.exec: config_exec.c. */
int config_exec(const struct node *exec,
                const char *dir,
                const struct node *cluster,
                struct kube_config *c,
                struct err *err);

#endif

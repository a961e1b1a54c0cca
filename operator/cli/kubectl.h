/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kubectl. It speaks to the API server, so every kubeconfig, credential plug-in and
 * proxy that works with kubectl works here (operator/DECISIONS.md). */
#ifndef OPERATOR_CLI_KUBECTL_H
#define OPERATOR_CLI_KUBECTL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "operator/cli/cli.h"
#include "operator/doc/node.h"

#define KUBECTL_MAX_ARGS (2 * CLI_MAX_ARGS)

struct kubectl { /* one run; built by kubectl_start and kubectl_add */
    const char *argv[KUBECTL_MAX_ARGS + 1];
    size_t n;
};

/* "kubectl WORD..." with the user's options for kubectl. ns: namespace; NULL: that of
 * the user's options, or of the context. The list of words ends with NULL. NULL: out of
 * memory; every function accepts that and reports it. */
struct kubectl *kubectl_new(struct cli *c, const char *ns, const char *const *words);
void kubectl_add(struct kubectl *k, const char *word);

/* Runs it and collects what it prints. Its errors become one sentence in err
 * (kube_refusal). what: what was asked for, or NULL. */
int kubectl_read(const struct kubectl *k,
                 struct strbuf *out,
                 const char *what,
                 struct err *err);
/* The same, as JSON in the arena of c. No output: *ret is NULL. */
int kubectl_json(struct cli *c,
                 const struct kubectl *k,
                 const char *what,
                 const struct node **ret,
                 struct err *err);
/* This process becomes kubectl. Returns only on failure, with 1. */
int kubectl_become(struct cli *c, struct kubectl *k);
/* Its standard output goes to fd, its errors to ours. Its exit status. */
int kubectl_copy(const struct kubectl *k, int fd);

/* Runs it in the background; *ret_fd: its standard output. Errors go to ours, or to
 * ret_fd, too. */
int kubectl_spawn(const struct kubectl *k,
                  bool has_errors,
                  int *ret_fd,
                  pid_t *ret_pid,
                  struct err *err);
int kubectl_wait(pid_t pid); /* exit status; 128 + signal */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that need a cluster have in common. */
#ifndef OPERATOR_CLI_ONLINE_H
#define OPERATOR_CLI_ONLINE_H

#include "operator/cli/core/job_view.h"
#include "operator/cli/kubectl.h"

struct show online_show(const struct cli *c);
/* "horovodjobs.v1beta1.ringmaster.dev" */
const char *online_resource(enum kube_kind kind);

/* The job that a word names. 0; 1: it has printed why not. */
int online_job(struct cli *c, const char *word, struct job_view *ret);
/* "job NAME: TEXT" by cli_fail. */
int online_fail(const struct job_view *v, const char *text);
/* Lists of objects of the job's namespace; NULL, with a note on standard error, if they
 * cannot be read. */
const struct node *online_pods(struct cli *c, const struct job_view *v);
const struct node *online_events_of(struct cli *c, const struct job_view *v);
/* The same of a kind that the cluster may not have: NULL without a note then. */
const struct node *
online_optional(struct cli *c, const struct job_view *v, const char *resource);

/* "--output: must be ALLOWED"; returns 1. */
int online_refuse_format(const char *allowed);
/* Prints the tree as JSON, YAML or by a jsonpath; another format is refused with the
 * allowed ones. */
int online_tree(struct cli *c,
                struct build *b,
                const struct node *tree,
                const char *allowed);
/* The pod that answers for the job (worker 0's agent, or the launcher of an elastic job),
 * and its first container. 1: printed why not. */
int online_agent(const struct job_view *v,
                 char ret_pod[128],
                 const char **ret_container);

/* Runs kubectl with --watch -o json --output-watch-events (one or two of them) until they
 * end, and calls fn with each change. */
typedef int (*watch_fn)(void *arg, const char *type, const struct node *object);
int watch_run(
    struct cli *c, struct kubectl *const *k, size_t n, watch_fn fn, void *arg);
/* Before a page is drawn again: clears a terminal. */
void watch_clear(struct cli *c);

#endif

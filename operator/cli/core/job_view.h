/* SPDX-License-Identifier: Apache-2.0 */
/* A job of either kind as people read it, and the pages about it. Input is what kubectl
 * prints with -o json; output is text, or a tree for -o json and -o yaml. Pure. */
#ifndef OPERATOR_CLI_CORE_JOB_VIEW_H
#define OPERATOR_CLI_CORE_JOB_VIEW_H

#include "operator/cli/core/show_text.h"
#include "operator/core/front.h"
#include "operator/core/pod.h"

struct job_view { /* strings and trees belong to the document and the arena */
    const struct node *object, *spec, *status, *progress, *goodput; /* or NULL */
    enum kube_kind kind;
    const char *ns, *name, *uid;
    const char *state, *reason, *message; /* never NULL */
    const char *workers;                  /* "2/4" */
    const char *queue;                    /* of Kueue; NULL: none */
    uint32_t n_workers, slots;
    bool has_launcher, is_tensorflow, is_agent, is_suspended, is_final;
    bool is_elastic; /* its launcher runs horovodrun, which knows the ranks */
};

struct show { /* how to print */
    uint64_t now_s;
    bool has_colour, is_wide, has_headers, has_namespaces;
};

/* -EINVAL: not a job of a kind that we know; -ENOMEM. */
int job_view_make(struct build *b, const struct node *object, struct job_view *ret);
const char *job_kind_word(enum kube_kind kind); /* "horovodjob" */
/* The first container of the role's template; of the launcher that the operator adds to an
 * elastic job the Worker's, of which it is a copy. NULL: there is none. */
const char *job_container(const struct job_view *v, enum role role);
/* The label selector of its pods. */
const char *job_pod_selector(struct arena *a, const struct job_view *v);
/* True if the Event is about the job, one of its objects or its pods. */
bool job_has_event(const struct job_view *v, const struct node *event);
const char *event_time(const struct node *event); /* of the last one; "" if unknown */
int64_t event_count(const struct node *event);
/* The scalar at the path as text; NULL: absent. */
const char *node_text(struct arena *a, const struct node *o, const char *path);

void list_head(struct show_table *t, const struct show *s);
void list_row(struct show_table *t, const struct show *s, const struct job_view *v);

/* pods, events: Lists; NULL: not known. */
int status_page(struct build *b,
                const struct show *s,
                const struct job_view *v,
                const struct node *pods,
                const struct node *events,
                struct strbuf *out);

void events_head(struct show_table *t);
/* Those of the job, the oldest first. */
void events_rows(struct show_table *t,
                 const struct show *s,
                 const struct job_view *v,
                 const struct node *events,
                 size_t max);
void event_row(struct show_table *t, const struct show *s, const struct node *event);

/* An array of {ranks, role, pod, node, ip, state}. */
struct node *
hosts_tree(struct build *b, const struct job_view *v, const struct node *pods);
void hosts_table(struct show_table *t, const struct node *hosts);

/* The facts that explain the state, in causal order: {job, state, message, facts: [{cause,
 * text, pods}]}. workloads, groups: Lists of Kueue's Workloads and of PodGroups, or
 * NULL. */
struct explain_input {
    const struct job_view *v;
    const struct node *pods, *events, *workloads, *groups;
};
struct node *explain_tree(struct build *b, const struct explain_input *in);
void explain_page(const struct show *s, const struct node *tree, struct strbuf *out);

/* ranks: records of runtime/live/live_worker.h as JSON. */
struct node *
top_tree(struct build *b, const struct job_view *v, const struct node *ranks);
void top_table(struct show_table *t, const struct node *tree, bool is_wide);

/* A line of a pod's log that begins with the prefix of a rank, "[3]<stdout>:" or Open MPI's
 * "[1,3]<stdout>:", after an optional time: the rank, and where its text begins. -1: no
 * prefix. */
int64_t log_line_rank(const char *line, size_t n, size_t *ret_at);

/* Where a rank's lines are; for rank -1: where all lines are, or those of worker 0. */
struct log_place {
    enum role role;
    uint32_t index;        /* of the worker's pod */
    const char *container; /* NULL: the object has no pod templates */
    uint64_t n_ranks; /* whose lines are in the same log; of a launcher: an estimate */
};
/* -EINVAL: the job has no such rank; -ENOTSUP: its ranks have no prefix; with err. */
int log_place_find(const struct job_view *v,
                   int64_t rank,
                   struct log_place *ret,
                   struct err *err);

/* What kubectl wrote to standard error, as one sentence in err. what: "job demo" or NULL.
 * -ENOENT: not found; -EACCES: no right; -ENOTSUP: no such kind in the cluster;
 * -ECONNREFUSED: no API server; else -EIO. */
int kube_refusal(const char *text, const char *what, struct err *err);

#endif

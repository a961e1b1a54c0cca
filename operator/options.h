/* SPDX-License-Identifier: Apache-2.0 */
/* Command line of hvd-operator. One table defines the parser, --help and the list in
 * the man page. */
#ifndef OPERATOR_OPTIONS_H
#define OPERATOR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/log.h"
#include "runtime/base/strbuf.h"

#define OPTIONS_MAX_IDLE 32

struct serve_options {
    const char *address; /* IPv4 or IPv6; "": all addresses */
    uint32_t http_port;
    uint32_t monitoring_port; /* the same paths; 0: none */
    uint32_t health_port;     /* without /metrics; 0: none */
    bool has_job_metrics;     /* with one series per MPIJob */
};

struct operator_options {
    const char *kubeconfig; /* NULL: $KUBECONFIG, else in-cluster */
    const char *master;     /* replaces the server of the kubeconfig; NULL: not given */
    const char *ns;         /* NULL: all namespaces */
    const char *runtime_image;
    const char *cluster_domain;  /* "" by default */
    const char *gang_scheduling; /* "", "volcano", or the name of a scheduler */
    const char *lock_namespace; /* of the Lease; NULL: that of the pod or the context */
    const char *lease_name;
    const char *rival_namespace; /* of mpi-operator's Lease; "": it is not checked */
    struct serve_options serve;
    const char *page_address;
    uint32_t page_port;     /* of the status page; 0: none */
    uint64_t page_check_ms; /* how long a viewer's rights count */
    uint32_t qps, burst;
    uint64_t lease_duration_ms, lease_renew_ms, lease_retry_ms;
    uint64_t watch_idle_ms;
    uint64_t progress_ms;    /* between two questions to a job; 0: none is asked */
    const char *webhook_dir; /* see webhook.h; NULL: none */
    enum log_level log_level;
    bool log_json;
    bool leader_elect, is_leader_elect_set; /* if not set: true in a pod */
    /* The given options that have no effect, with the reason; each once. */
    struct options_idle {
        const char *name, *why;
    } idle[OPTIONS_MAX_IDLE];
    size_t n_idle;
    enum {
        OPTIONS_RUN,
        OPTIONS_CHECK,
        OPTIONS_HELP,
        OPTIONS_VERSION,
        OPTIONS_MAN
    } what;
};

/* Values point into argv. default_ns: $KUBEFLOW_NAMESPACE, may be NULL. -EINVAL or
 * -ERANGE with an error message. */
int options_parse(int argc,
                  char **argv,
                  const char *default_ns,
                  struct operator_options *ret,
                  struct err *err);
/* The namespace of the Lease. config_ns: of the pod or the context; NULL or "": none. */
const char *options_lock_namespace(const struct operator_options *o,
                                   const char *config_ns);
void options_help(struct strbuf *out);
void options_man(struct strbuf *out); /* the OPTIONS section, mdoc */

#endif

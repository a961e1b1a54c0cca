/* SPDX-License-Identifier: Apache-2.0 */
/* The URL of a request to the status page (README.md, Requests) -> what it asks for. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_ROUTE_H
#define OPERATOR_PAGE_CORE_PAGE_ROUTE_H

#include <stdint.h>

#include "operator/core/hvd/hvd_job.h"
#include "runtime/base/err.h"

#define PAGE_TAIL_MAX     2000u
#define PAGE_TAIL_DEFAULT 200u
#define PAGE_RANK_MAX     (JOB_MAX_REPLICAS * JOB_MAX_SLOTS - 1)

enum page_what {
    PAGE_GET_HTML, /* / */
    PAGE_GET_CSS,
    PAGE_GET_JS,
    PAGE_GET_WATCH,
    PAGE_GET_JOBS,
    PAGE_GET_JOB,
    PAGE_GET_EVENTS,
    PAGE_GET_RANKS,
    PAGE_GET_STACKS,
    PAGE_GET_LOG
};

struct page_route {
    enum page_what what;
    enum kube_kind kind; /* KUBE_JOB or KUBE_MPIJOB; of what belongs to one job */
    char ns[64];         /* the job's; of lists: "": all namespaces */
    char name[254];      /* of the job; "": none */
    int64_t rank;        /* PAGE_GET_LOG: -1: all */
    uint32_t tail;       /* PAGE_GET_LOG: lines */
};

/* path: with or without percent-encoding; query: as in the URL, without its '?', encoded;
 * NULL or "": none. Namespaces and names in the result are names of Kubernetes.
 * -ENOENT (answer 404): no such path; -EINVAL (400): a name or a parameter is wrong. */
int page_route_parse(const char *path,
                     const char *query,
                     struct page_route *ret,
                     struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* kubectl hvd page: which pod of the operator, and the URL. Pure. */
#ifndef OPERATOR_CLI_CORE_PAGE_LINK_H
#define OPERATOR_CLI_CORE_PAGE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

struct page_pod {
    char name[256];
    uint32_t port;  /* of the container, named "page" */
    bool is_leader; /* false: a ready pod, because the leader's is not known */
};

/* pods: a List of the operator's pods; holder: of the Lease, "POD_UUID", or NULL. -ENOENT
 * with err: no pod, none is ready, or it has no port of that name. */
int page_choose(const struct node *pods,
                const char *holder,
                struct page_pod *ret,
                struct err *err);

/* A bearer token as RFC 6750 has it. */
bool page_is_token(const char *s, size_t n);
/* "#token=...&go=ROUTE", values percent-encoded, slashes of the route kept. route NULL:
 * the token only. */
void page_fragment(struct strbuf *out, const char *token, const char *route);
/* The local port of kubectl's line "Forwarding from 127.0.0.1:PORT -> ..."; 0: it is
 * another line. */
uint32_t page_forwarded(const char *line);
/* What kubectl port-forward wrote to standard error, as one sentence in err, as
 * kube_refusal; -EADDRINUSE: it cannot listen on that port. */
int page_refusal(const char *text, uint32_t port, struct err *err);

#endif

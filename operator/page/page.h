/* SPDX-License-Identifier: Apache-2.0 */
/* The status page (README.md) in the operator's thread. Reads the store, the reports of
 * ask.h and the API server; changes nothing. */
#ifndef OPERATOR_PAGE_PAGE_H
#define OPERATOR_PAGE_PAGE_H

#include "operator/controller.h"
#include "operator/options.h"

struct page;
/* Listens at o->page. *ret is NULL if that is off. Must be freed before the controller is
 * closed. -EINVAL, -EADDRINUSE, -ENOMEM with err. */
int page_new(struct controller *op,
             const struct operator_options *o,
             struct page **ret,
             struct err *err);
void page_free(struct page *p); /* accepts NULL */

int page_fd(const struct page *p); /* to be polled for POLLIN */
uint64_t page_next_ns(const struct page *p, uint64_t now_ns);
void page_tick(struct page *p, uint64_t now_ns); /* what is due; before kube_tick */
void page_run(struct page *p, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* /healthz /readyz /metrics, answered from the loop's own thread: if the loop hangs,
 * /healthz hangs, too, and the kubelet restarts the pod. libmicrohttpd stays inside
 * serve.c. */
#ifndef OPERATOR_SERVE_H
#define OPERATOR_SERVE_H

#include "operator/controller.h"
#include "operator/options.h"

struct operator_server;
int serve_new(const struct controller *op,
              const struct serve_options *o,
              struct operator_server **ret,
              struct err *err);
void serve_free(struct operator_server *s);
#define SERVE_MAX_FDS 3
struct pollfd;
/* Fills ret with at most SERVE_MAX_FDS descriptors, and returns their number. serve_run
 * is due when one of them is readable. */
size_t serve_fds(const struct operator_server *s, struct pollfd *ret);
uint64_t serve_next_ns(const struct operator_server *s, uint64_t now_ns);
void serve_run(struct operator_server *s);

#endif

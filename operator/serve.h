/* SPDX-License-Identifier: Apache-2.0 */
/* /healthz /readyz /metrics, answered from the loop's own thread: if the loop hangs, so
 * does /healthz, and the kubelet restarts us. libmicrohttpd stays inside serve.c. */
#ifndef OPERATOR_SERVE_H
#define OPERATOR_SERVE_H

#include "operator/controller.h"

struct serve;
int serve_new(const struct controller *op,
              uint16_t port,
              struct serve **ret,
              struct err *err);
void serve_free(struct serve *s);
int serve_fd(const struct serve *s); /* readable: call serve_run */
uint64_t serve_next_ns(const struct serve *s, uint64_t now_ns);
void serve_run(struct serve *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's thread: waits for the network, timers, probes and signals. */
#ifndef OPERATOR_LOOP_H
#define OPERATOR_LOOP_H

#include "operator/controller.h"
#include "operator/page/page.h"
#include "operator/serve.h"

/* Runs until SIGTERM or SIGINT; then waits at most 5 s for the syncs in progress, and
 * releases the Lease. page: NULL: none. signal_fd: a signalfd for both signals. */
int loop_run(struct controller *op,
             struct operator_server *serve,
             struct page *page,
             int signal_fd,
             struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread: waits for the network, timers, probes and signals, and hands each to
 * its part. */
#ifndef OPERATOR_LOOP_H
#define OPERATOR_LOOP_H

#include "operator/controller.h"
#include "operator/serve.h"

/* Runs until SIGTERM or SIGINT; then lets what is at work end, 5 s at most,
 * and hands the Lease back. signal_fd
 * is a signalfd of both. */
int loop_run(struct controller *op,
             struct operator_server *serve,
             int signal_fd,
             struct err *err);

#endif

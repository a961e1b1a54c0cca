/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics: the counters of this agent's ranks in Prometheus' text format
 * (contract/stats_page.h). */
#ifndef RUNTIME_LAUNCH_METRICS_H
#define RUNTIME_LAUNCH_METRICS_H

#include <stdint.h>

#include "runtime/base/err.h"

struct agent_metrics;

/* Starts a thread that serves the pages in dir (copied) on port at all addresses. port
 * 0: any free one, see metrics_port. */
int metrics_start(uint16_t port,
                  const char *dir,
                  struct agent_metrics **ret,
                  struct err *err);
uint16_t metrics_port(const struct agent_metrics *m);
/* Sets the generation of the world in which the ranks were started last. Accepts
 * NULL. */
void metrics_set_generation(struct agent_metrics *m, uint32_t generation);
void metrics_stop(struct agent_metrics *m); /* ends the thread; accepts NULL */

#endif

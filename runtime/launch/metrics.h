/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics: the counters of the ranks that this launcher has started, in
 * Prometheus' text format (contract/stats_page.h). */
#ifndef RUNTIME_LAUNCH_METRICS_H
#define RUNTIME_LAUNCH_METRICS_H

#include <stdint.h>

#include "runtime/base/err.h"

struct agent_metrics;

/* Serves the pages in dir (copied) at port of all addresses (0: any free one, told by
 * metrics_port), in a thread of its own. */
int metrics_start(uint16_t port,
                  const char *dir,
                  struct agent_metrics **ret,
                  struct err *err);
uint16_t metrics_port(const struct agent_metrics *m);
/* Of the world that this launcher's ranks were started in last; shown from then on.
 * Accepts NULL. */
void metrics_set_generation(struct agent_metrics *m, uint32_t generation);
void metrics_stop(struct agent_metrics *m); /* ends the thread; accepts NULL */

#endif

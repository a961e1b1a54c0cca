/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's HTTP server: GET /metrics, the counters of its ranks in Prometheus' text
 * format (contract/stats_page.h), and POST of reports to trainer.h. */
#ifndef RUNTIME_LAUNCH_METRICS_H
#define RUNTIME_LAUNCH_METRICS_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/launch/trainer.h"

struct agent_metrics;

struct metrics_config {
    const char *dir;  /* of the pages; copied */
    bool has_metrics; /* serves /metrics, on port at all addresses; 0: any free one */
    uint16_t port;
    struct trainer *trainer; /* on any port of 127.0.0.1; outlives it; NULL: none */
};
/* Starts a thread. */
int metrics_start(const struct metrics_config *c,
                  struct agent_metrics **ret,
                  struct err *err);
uint16_t metrics_port(const struct agent_metrics *m);
uint16_t metrics_trainer_port(const struct agent_metrics *m);
/* Sets the generation of the world in which the ranks were started last. Accepts
 * NULL. */
void metrics_set_generation(struct agent_metrics *m, uint32_t generation);
void metrics_stop(struct agent_metrics *m); /* ends the thread; accepts NULL */

#endif

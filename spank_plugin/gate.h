/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of a step: no task runs the user's program until every task of every node is
 * set up. All tasks and srun meet in two rounds of a rendezvous of their own. In the
 * first one the nodes exchange their addresses (probe.h). In the second one the blob of a
 * task is empty, or the sentence that says why its node is not set up. */
#ifndef SPANK_PLUGIN_GATE_H
#define SPANK_PLUGIN_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/contract.h"
#include "spank_plugin/sentences.h"
#include "spank_plugin/ticket.h"

/* --- srun --- */
struct gate;

/* Serves the gate for n_tasks tasks on *listen_fd, the port of the ticket; -1 is left
 * there once the gate owns it. report is called as sentences.h says, from a thread of the
 * gate, before gate_close returns. */
int gate_open(int *listen_fd,
              const struct ticket *t,
              const char *job_id,
              uint32_t n_tasks,
              sentence_fn report,
              void *arg,
              struct gate **ret,
              struct err *err);
/* The tasks that have come so far; any thread. */
uint32_t gate_ready(const struct gate *g);
/* Refuses tasks that still wait; joins the threads, bounded. Accepts NULL. */
void gate_close(struct gate *g);

/* --- a task --- */
/* Waits until all tasks have come, wait_ms in each round; 0: 2 minutes. sentence: NULL
 * when this task is set up.
 * *ret_is_open: all tasks are; otherwise srun prints the sentences. An error: the tasks
 * did not meet, and nobody else reports that. */
int gate_pass(const struct ticket *t,
              const struct contract *c,
              const char *sentence,
              uint64_t wait_ms,
              bool *ret_is_open,
              struct err *err);

#endif

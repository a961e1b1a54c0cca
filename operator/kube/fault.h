/* SPDX-License-Identifier: Apache-2.0 */
/* Faults for the tests: crash points around each write to the API server, and failed
 * allocations. hvd-operator is linked with fault_none.c, whose functions are empty;
 * hvd-operator-faults is linked with fault_env.c. */
#ifndef OPERATOR_KUBE_FAULT_H
#define OPERATOR_KUBE_FAULT_H

#include <stddef.h>
#include <stdint.h>

#define FAULT_EXIT_CODE 86

/* number: 1 for the first write of this process, and so on. */
void fault_before_write(uint64_t number);
void fault_after_write(uint64_t number);
void fault_at_send(uint64_t number); /* its connection exists */
/* Before line of a watch is processed. */
void fault_before_event(const char *line, size_t n);

#endif

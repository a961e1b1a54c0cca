/* SPDX-License-Identifier: Apache-2.0 */
/* Faults at will, for the tests: crash points around each write to the API server, and
 * memory that is out. hvd-operator is linked with fault_none.c, where none does
 * anything; hvd-operator-faults with fault_env.c. */
#ifndef OPERATOR_KUBE_FAULT_H
#define OPERATOR_KUBE_FAULT_H

#include <stddef.h>
#include <stdint.h>

#define FAULT_EXIT_CODE 86

/* number: 1 for the first write of this process, and so on. */
void fault_before_write(uint64_t number);
void fault_after_write(uint64_t number);
void fault_at_send(uint64_t number); /* its connection is there */
/* A watch has told line, which is dealt with now. */
void fault_before_event(const char *line, size_t n);

#endif

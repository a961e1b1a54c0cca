/* SPDX-License-Identifier: Apache-2.0 */
/* Crash points around each write to the API server, for the chaos tests. hvd-operator
 * is linked with fault_none.c, where both do nothing; hvd-operator-faults with
 * fault_env.c. */
#ifndef OPERATOR_KUBE_FAULT_H
#define OPERATOR_KUBE_FAULT_H

#include <stdint.h>

#define FAULT_EXIT_CODE 86

/* number: 1 for the first write of this process, and so on. */
void fault_before_write(uint64_t number);
void fault_after_write(uint64_t number);

#endif

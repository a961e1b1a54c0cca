/* SPDX-License-Identifier: Apache-2.0 */
/* Reads memory, CPU time and descriptors of this process, for the standard process
 * metrics. */
#ifndef OPERATOR_PROCESS_H
#define OPERATOR_PROCESS_H

#include "operator/core/metrics.h"

void process_read(struct process_facts *ret); /* 0: could not be read */

#endif

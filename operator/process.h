/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of this process from the kernel, for the standard process metrics. */
#ifndef OPERATOR_PROCESS_H
#define OPERATOR_PROCESS_H

#include "operator/core/metrics.h"

void process_read(struct process_facts *ret); /* 0 for what cannot be read */

#endif

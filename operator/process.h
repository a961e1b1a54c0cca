/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of this process, for the metrics that every exporter has. */
#ifndef OPERATOR_PROCESS_H
#define OPERATOR_PROCESS_H

#include "operator/core/metrics.h"

void process_read(struct process_facts *ret); /* 0 for what cannot be read */

#endif

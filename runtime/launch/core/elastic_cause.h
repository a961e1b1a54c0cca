/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two processes of an elastic job failed by the same cause. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_CAUSE_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_CAUSE_H

#include "runtime/launch/core/verdict.h"

/* A hash (FNV-1a) of signal, exit code, why and the last line that the process wrote,
 * without its digits: numbers of processes, addresses and steps differ. 0: another
 * process failed first. */
uint64_t elastic_cause(const struct report *r);

#endif

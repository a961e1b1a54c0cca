/* SPDX-License-Identifier: Apache-2.0 */
/* No faults, for the shipped program. See fault.h. */
#include "operator/kube/fault.h"

void fault_before_write(uint64_t number)
{
    (void)number;
}

void fault_after_write(uint64_t number)
{
    (void)number;
}

void fault_at_send(uint64_t number)
{
    (void)number;
}

void fault_before_event(const char *line, size_t n)
{
    (void)line;
    (void)n;
}

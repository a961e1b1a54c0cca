/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fronts. */
#include "operator/core/front.h"

#include <string.h>

const struct front *front_of(enum kube_kind kind)
{
    return kind == KUBE_MPIJOB ? &front_mpijob : &front_horovodjob;
}

enum gang gang_of(const char *scheduler)
{
    if (!*scheduler)
        return GANG_NONE;
    return strcmp(scheduler, "volcano") == 0 ? GANG_VOLCANO : GANG_SCHEDULER_PLUGINS;
}

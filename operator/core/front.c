/* SPDX-License-Identifier: Apache-2.0 */
/* The table of fronts. */
#include "operator/core/front.h"

const struct front *front_of(enum kube_kind kind)
{
    return kind == KUBE_MPIJOB ? &front_mpijob : &front_horovodjob;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that change while the world runs. Rank 0 finds them (core/tune.h) or reads
 * them from HVD_AUTOTUNE_FILE and sends them to all ranks. Every rank applies them at
 * the same position in the stream of answers. In the seat only, except autotune_init
 * and autotune_release. */
#ifndef RUNTIME_OBSERVE_AUTOTUNE_H
#define RUNTIME_OBSERVE_AUTOTUNE_H

#include <stdio.h>

#include "runtime/control/control.h"
#include "runtime/core/member.h"
#include "runtime/core/tune.h"
#include "runtime/observe/stats.h"
#include "runtime/world/settings.h"

struct autotune {      /* zeroed: nothing is tuned */
    struct tuning now; /* in use */
    struct tune *tune; /* rank 0, while it tunes */
    FILE *log;         /* HOROVOD_AUTOTUNE_LOG */
    uint32_t n_logged;
    bool has_news; /* rank 0: `news` is to be sent to all ranks */
    struct tuning news;
    /* Constant; what they point to outlives it. */
    const struct settings *settings;
    const struct control_member *members; /* by rank */
    uint32_t rank, size;
    struct stats *stats;
};

void autotune_init(struct autotune *a,
                   const struct settings *s,
                   uint32_t rank,
                   uint32_t size,
                   const struct control_member *members,
                   struct stats *stats);
void autotune_release(struct autotune *a);
/* When the world is ready, before its first step: the settings of the file are to be
 * sent to all ranks, or the search begins. tunes_backend: the world's backend has
 * settings of its own. */
void autotune_start(struct autotune *a, bool tunes_backend);
/* Rank 0: a batch has been carried out; before its operations end. */
void autotune_batch(struct autotune *a, const struct member_act *act);
/* Rank 0: settings to be sent to all ranks, returned once; NULL: none. Valid until the
 * next batch. */
const struct tuning *autotune_take_news(struct autotune *a);
/* MEMBER_TUNE: they are in use from here on. */
void autotune_apply(struct autotune *a, const struct tuning *t);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that change while the world runs. Rank 0 finds them (core/tune.h) or reads
 * them from HVD_AUTOTUNE_FILE and sends them to all ranks. Every rank applies them at
 * the same position in the stream of answers. In the seat only, except autotune_init
 * and autotune_release. */
#ifndef RUNTIME_OBSERVE_AUTOTUNE_H
#define RUNTIME_OBSERVE_AUTOTUNE_H

#include <stdio.h>

#include "runtime/core/member.h"
#include "runtime/core/tune.h"

struct coordinator;

struct autotune {      /* zeroed: nothing is tuned */
    struct tuning now; /* in use */
    struct tune *tune; /* rank 0, while it tunes */
    FILE *log;         /* HOROVOD_AUTOTUNE_LOG */
    uint32_t n_logged;
};

/* In coordinator_new, after settings and stats are set. */
void autotune_init(struct coordinator *co);
void autotune_release(struct autotune *a);
/* When the world is ready, before its first step: sends the settings of the file to all
 * ranks. */
void autotune_start(struct coordinator *co);
/* Rank 0: a batch has been carried out; before its operations end. */
void autotune_batch(struct coordinator *co, const struct member_act *act);
/* MEMBER_TUNE */
void autotune_apply(struct coordinator *co, const struct tuning *t);

#endif

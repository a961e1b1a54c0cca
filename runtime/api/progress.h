/* SPDX-License-Identifier: Apache-2.0 */
/* What the program has reported about itself, for all worlds of this process. Any
 * thread. */
#ifndef RUNTIME_API_PROGRESS_H
#define RUNTIME_API_PROGRESS_H

#include <pthread.h>

#include "runtime/base/err.h"
#include "runtime/contract/stats_page.h"
#include "hvd.h"

struct progress {
    pthread_mutex_t lock;
    struct stats_progress now;          /* lock, as all below */
    uint64_t set_at[STATS_METRICS_MAX]; /* the call that set this metric last */
    uint64_t n_calls;
};
#define PROGRESS_INIT                                                                  \
    {                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .now = {                                    \
            .step = -1,                                                                \
            .total_steps = -1,                                                         \
            .epoch = -1,                                                               \
            .total_epochs = -1,                                                        \
            .samples = -1,                                                             \
            .commit_step = -1                                                          \
        }                                                                              \
    }

/* HVD_OK, or HVD_INVALID_ARGUMENT with err; then nothing has changed. */
int progress_update(struct progress *p,
                    const struct hvd_progress *given,
                    uint64_t now_wall_us,
                    struct stats_page *page,
                    struct err *err);
/* A new world: its page starts with what is known. */
void progress_show(struct progress *p, struct stats_page *page);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Searches the settings (tuning.h) that move the most bytes per second in this job's
 * steps. Runs on rank 0. Pure: batches and times in, settings out. One thread at a
 * time.
 *
 *   tune_batch ... tune_batch -> a sample is complete -> tune_settings, or done
 *      ^                                                        |
 *      +---- tune_applied <---- all ranks have them <-----------+
 *
 * A step ends when a tensor appears a second time. A sample is the median of the bytes
 * per second of its steps, so that a checkpoint or a slow step does not count. The
 * first steps after a change are not counted, because a new plan forms in them. */
#ifndef RUNTIME_CORE_TUNE_H
#define RUNTIME_CORE_TUNE_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/tuning.h"

enum tune_dim { TUNE_FUSION, TUNE_GATHER, TUNE_WHOLE, TUNE_CHUNK, TUNE_DIMS };

uint64_t tuning_get(const struct tuning *t, enum tune_dim d);
void tuning_set(struct tuning *t, enum tune_dim d, uint64_t v);

/* The search ends before it has tried more settings than this. */
#define TUNE_MAX_SAMPLES 64

struct tune_config {
    struct tuning start;      /* what is in use; tried first */
    bool is_fixed[TUNE_DIMS]; /* set by the user, or without effect here */
    uint32_t n_warmup;        /* samples that are not counted */
    uint32_t n_steps;         /* of a sample, at least 1 */
    uint32_t n_samples;       /* at most; at least 1 */
};

struct tune_sample {
    struct tuning tuning;
    double bytes_per_s; /* median over its steps */
    bool is_warmup;
};

struct tune;

int tune_new(const struct tune_config *cfg, struct tune **ret); /* -ENOMEM, -EINVAL */
void tune_free(struct tune *t);                                 /* accepts NULL */

/* Adds a tensor to the batch that the next tune_batch ends. id: a hash of its name. */
void tune_tensor(struct tune *t, uint64_t id, uint64_t bytes);
/* The batch has been carried out. True: a sample is complete, and nothing is measured
 * until tune_applied. */
bool tune_batch(struct tune *t, uint64_t now_ns, struct tune_sample *ret);

/* The settings to use: the next to be measured or, when done, the best. */
const struct tuning *tune_settings(const struct tune *t);
bool tune_is_done(const struct tune *t);
/* All ranks use tune_settings from here on. */
void tune_applied(struct tune *t);

/* When done: bytes per second of the chosen settings, and of the initial ones (0: not
 * measured). */
double tune_best(const struct tune *t);
double tune_first(const struct tune *t);
uint32_t tune_n_samples(const struct tune *t); /* that counted */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the settings (tuning.h) with which this job's steps move most bytes a second.
 * Rank 0's only. Pure: batches and times in, settings out. One thread at a time.
 *
 *   tune_batch ... tune_batch -> a sample is complete -> tune_settings, or done
 *      ^                                                        |
 *      +---- tune_applied <---- all ranks have them <-----------+
 *
 * A step ends when a tensor comes a second time. A sample is the median of its steps'
 * bytes per second, so that a checkpoint or a slow step in it does not count. The first
 * steps after a change do not count either: the plan is found anew in them. */
#ifndef RUNTIME_CORE_TUNE_H
#define RUNTIME_CORE_TUNE_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/core/tuning.h"

enum tune_dim { TUNE_FUSION, TUNE_GATHER, TUNE_WHOLE, TUNE_CHUNK, TUNE_DIMS };

uint64_t tuning_get(const struct tuning *t, enum tune_dim d);
void tuning_set(struct tuning *t, enum tune_dim d, uint64_t v);

/* More settings than this are never tried: the search ends before. */
#define TUNE_MAX_SAMPLES 64

struct tune_config {
    struct tuning start;      /* what is in use; tried first */
    bool is_fixed[TUNE_DIMS]; /* the user's choice, or of no meaning here */
    uint32_t n_warmup;        /* samples that do not count */
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

/* A tensor of the batch that tune_batch tells the end of; id: a hash of its name. */
void tune_tensor(struct tune *t, uint64_t id, uint64_t bytes);
/* The batch has been carried out. True: a sample is complete; nothing is measured any
 * more before tune_applied. */
bool tune_batch(struct tune *t, uint64_t now_ns, struct tune_sample *ret);

/* What is to be used now: the next to be measured, or when done the best. */
const struct tuning *tune_settings(const struct tune *t);
bool tune_is_done(const struct tune *t);
/* All ranks have tune_settings from here on. */
void tune_applied(struct tune *t);

/* When done: of what it chose, and of what it began with (0: never measured). */
double tune_best(const struct tune *t);
double tune_first(const struct tune *t);
uint32_t tune_n_samples(const struct tune *t); /* that counted */

#endif

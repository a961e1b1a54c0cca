/* SPDX-License-Identifier: Apache-2.0 */
/* The status server of Kubeflow's trainer, for this worker's ranks: Transformers' callback
 * posts its progress there. metrics.c serves it on 127.0.0.1. */
#ifndef RUNTIME_LAUNCH_TRAINER_H
#define RUNTIME_LAUNCH_TRAINER_H

#include "runtime/launch/core/options.h"
#include "runtime/launch/core/post.h"
#include "runtime/live/live_report.h"

#define TRAINER_PATH "/trainer-status"

struct trainer;

/* Writes the token that reports must bear to a file in dir, which is removed with dir. */
int trainer_new(const char *dir, struct trainer **ret, struct err *err);
void trainer_free(struct trainer *t); /* accepts NULL */

/* Answers a report of a process on this host (is_local) or another one: a status such as
 * "200 OK", and *text with a line about it. Any thread. */
const char *trainer_answer(struct trainer *t,
                           const struct post *post,
                           bool is_local,
                           char *text,
                           size_t size_bytes);
/* What was reported last; false, and ret is unchanged: nothing was. Any thread. NULL is
 * accepted. For the live record of this worker's lowest rank, where no rank of it has
 * called hvd_progress. */
bool trainer_progress_get(struct trainer *t, struct live_progress *ret);

/* The variables that ranks need to find it, served on port; valid until trainer_free. */
enum { TRAINER_VARS = 4 };
void trainer_variables(struct trainer *t,
                       uint16_t port,
                       struct option_var ret[TRAINER_VARS]);
/* Whether the user or another controller has set one of these variables. */
bool trainer_is_elsewhere(char *const *env);

#endif

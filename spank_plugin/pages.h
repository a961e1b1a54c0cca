/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a step for the pages of its ranks (contract/step_pages.h), from which
 * hvd-status reads what they do. A step without it runs all the same. */
#ifndef SPANK_PLUGIN_PAGES_H
#define SPANK_PLUGIN_PAGES_H

#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"

/* task_init, as the user: makes the folder of the step NAME (JOB.STEP.NODE.PID), unless
 * another task has, and in it the file of this task. set: HVD_STATS_DIR of the user, or
 * NULL. ret_dir: HVD_STATS_DIR for the task. */
int pages_make(const char *name,
               const struct place *place,
               const char *set,
               char *ret_dir,
               size_t size_bytes,
               struct err *err);
/* exit, as root: removes the files of the folder and the folder, if it is this user's.
 * What else the user has put there stays. */
void pages_remove(const char *name, uid_t uid);

#endif

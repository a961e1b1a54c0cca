/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun --status: what the running jobs of this user's horovodrun do. */
#ifndef RUNTIME_LAUNCH_STATUS_H
#define RUNTIME_LAUNCH_STATUS_H

#include <stdbool.h>

#include "runtime/base/err.h"

/* Prints the jobs that were started on this host with the same TMPDIR. with_ranks: also
 * each rank, and the stacks of the last stall. 0; -ENOENT with err: none runs. */
int status_print(bool is_json, bool with_ranks, struct err *err);

#endif

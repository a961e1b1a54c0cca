/* SPDX-License-Identifier: Apache-2.0 */
/* The file with the job's world (HVD_WORLD_FILE), which changes while we run. */
#ifndef RUNTIME_LAUNCH_WORLD_FILE_H
#define RUNTIME_LAUNCH_WORLD_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/job_world.h"

struct world_file {
    const char *path; /* borrowed; "": there is none */
    uint64_t next_ns; /* when to look again; UINT64_MAX: never */
    bool is_bad;      /* which has been said */
};

void world_file_init(struct world_file *f, const char *path);
/* Reads it, unless it was read less than a second ago. true: *ret is what it says. What
 * cannot be read or understood is logged once and ignored. */
bool world_file_look(struct world_file *f, uint64_t now_ns, struct job_world *ret);

#endif

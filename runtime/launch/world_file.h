/* SPDX-License-Identifier: Apache-2.0 */
/* The file with the job's world (HVD_WORLD_FILE), which may change at any time. */
#ifndef RUNTIME_LAUNCH_WORLD_FILE_H
#define RUNTIME_LAUNCH_WORLD_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/job_world.h"

struct world_file {
    const char *path; /* borrowed; "": none */
    uint64_t next_ns; /* time of the next read; UINT64_MAX: never */
    bool is_bad;      /* and this was logged */
};

void world_file_init(struct world_file *f, const char *path);
/* Reads the file, unless it was read less than a second ago. true: *ret is its content.
 * An unreadable or invalid file is logged once and ignored. */
bool world_file_read(struct world_file *f, uint64_t now_ns, struct job_world *ret);

#endif

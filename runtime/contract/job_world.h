/* SPDX-License-Identifier: Apache-2.0 */
/* The world of a job that can be scaled, as the operator writes it into the annotation
 * ringmaster.dev/world of each worker pod and the pod's agent reads it from a file
 * (HVD_WORLD_FILE): generation and number of workers, "2 4". Pure. */
#ifndef RUNTIME_CONTRACT_JOB_WORLD_H
#define RUNTIME_CONTRACT_JOB_WORLD_H

#include <stdint.h>

#include "runtime/base/err.h"

#define JOB_WORLD_TEXT_SIZE 24 /* two numbers of 32 bits, a blank, the end */

struct job_world {
    uint32_t generation, workers;
};

void job_world_render(const struct job_world *w, char ret[JOB_WORLD_TEXT_SIZE]);
/* One newline at the end is allowed. -EINVAL with an error message; *ret is then
 * unchanged. */
int job_world_parse(const char *text, struct job_world *ret, struct err *err);

#endif

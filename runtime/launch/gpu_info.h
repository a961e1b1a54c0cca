/* SPDX-License-Identifier: Apache-2.0 */
/* What of GPUs is on this host: asked of hvd-gpu, which can open NVIDIA's libraries. */
#ifndef RUNTIME_LAUNCH_GPU_INFO_H
#define RUNTIME_LAUNCH_GPU_INFO_H

#include "runtime/launch/capture.h"
#include "runtime/launch/core/gpu_report.h"

/* Runs the hvd-gpu that lies beside this program. lib_dir: the folder of
 * libhvd_cuda.so, "": that of this tree; nccl: the framework's NCCL, "": not known. c
 * needs signals, guard, env and timeout_ms. *ret always: where hvd-gpu did not run its
 * problem says why, and driver is what /proc tells (false then). */
bool gpu_info_read(struct capture *c,
                   const char *lib_dir,
                   const char *nccl,
                   struct gpu_report *ret);

/* For an agent at its start, before it has threads, descriptors that others wait for
 * the end of, or children: logs what is here, from a process of its own that lives no
 * longer than we do, for a driver may take seconds to wake up. Nothing happens where no
 * driver is loaded. Whoever reaps children may meet it. */
void gpu_info_log(const struct signals *signals, char *const *env);

/* The same as a line for people (gpu_report.h) with text before it, on fd; it comes
 * when hvd-gpu has answered, or never: where no driver is loaded, or we end before
 * that. */
void gpu_info_print(const struct signals *signals,
                    char *const *env,
                    const char *before,
                    int fd);
/* For a loop that polls: where the line comes from, -1 where none does. */
int gpu_info_begin(const struct signals *signals, char *const *env);
/* Takes what has come. True once, at its end: the line is whole. line: initialised by
 * the caller. fd: of gpu_info_begin; -1 from the end on. */
bool gpu_info_next(int *fd, struct strbuf *line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Describes the GPUs of this host, using hvd-gpu, which can open NVIDIA's libraries. */
#ifndef RUNTIME_LAUNCH_GPU_INFO_H
#define RUNTIME_LAUNCH_GPU_INFO_H

#include "runtime/launch/capture.h"
#include "runtime/launch/core/gpu_report.h"

/* Runs the hvd-gpu in the same folder as this program. lib_dir: folder of
 * libhvd_cuda.so, "": that of this tree; nccl: the framework's NCCL, "": unknown. c
 * needs signals, guard, env and timeout_ms. Always fills *ret: if hvd-gpu did not run
 * (false), problem is the reason and driver is the version in /proc. */
bool gpu_info_read(struct capture *c,
                   const char *lib_dir,
                   const char *nccl,
                   struct gpu_report *ret);

/* For the start of an agent, before it has threads, children or descriptors whose end
 * other processes wait for: logs the GPUs of this host. A child process does this and
 * dies with the caller, because a driver may take seconds to initialise. Does nothing
 * if no driver is loaded. The caller's reaping may see the child. */
void gpu_info_log(const struct signals *signals, char *const *env);

/* Prints the same as one line (gpu_report.h), prefixed by before, on fd, when
 * hvd-gpu has finished. Nothing is printed if no driver is loaded or the caller
 * exits earlier. */
void gpu_info_print(const struct signals *signals,
                    char *const *env,
                    const char *before,
                    int fd);
/* For a poll loop: returns the descriptor from which the line is read; -1: none. */
int gpu_info_begin(const struct signals *signals, char *const *env);
/* Reads what is available from *fd. True once, when the line is complete. The caller
 * initialises line. *fd is -1 afterwards. */
bool gpu_info_next(int *fd, struct strbuf *line);

#endif

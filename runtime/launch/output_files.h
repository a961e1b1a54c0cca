/* SPDX-License-Identifier: Apache-2.0 */
/* The files of --output-filename, as horovodrun sees them: a queue to the process that
 * writes them (output_writer.h). No call waits for a disk, except output_files_new.
 * Main thread only. All functions accept NULL: no files. */
#ifndef RUNTIME_LAUNCH_OUTPUT_FILES_H
#define RUNTIME_LAUNCH_OUTPUT_FILES_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

struct output_files;
/* Opens FOLDER/rank.N/stdout and stderr for n ranks of a world of this size. -EINTR:
 * a stop signal is pending. */
int output_files_new(const char *folder,
                     uint32_t n,
                     const uint32_t *ranks,
                     uint32_t size,
                     struct output_files **ret,
                     struct err *err);
void output_files_free(struct output_files *f);
/* Adds output of the i-th rank; which is 0 for stdout, 1 for stderr. */
void output_files_put(
    struct output_files *f, uint32_t i, int which, const char *p, size_t n);
/* True while ranks should not be read because the disk is slow. */
bool output_files_is_full(const struct output_files *f);
/* What to poll, and until when. */
struct pollfd output_files_pollfd(const struct output_files *f);
uint64_t output_files_due_ns(const struct output_files *f);
/* Sends what the socket takes, and reports that losses have begun if can_log. */
void output_files_serve(struct output_files *f, bool can_log);
/* There is no more output: call until true, after poll. False for at most 10 s. */
bool output_files_end(struct output_files *f);
/* After the end: logs one sentence if anything was lost. */
void output_files_report_lost(const struct output_files *f);

#endif

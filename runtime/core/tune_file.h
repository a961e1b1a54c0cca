/* SPDX-License-Identifier: Apache-2.0 */
/* The file of tuned settings (HVD_AUTOTUNE_FILE) and the lines of the sample log
 * (HOROVOD_AUTOTUNE_LOG). Pure. */
#ifndef RUNTIME_CORE_TUNE_FILE_H
#define RUNTIME_CORE_TUNE_FILE_H

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/tune.h"

#define TUNE_FILE_VERSION 1
#define TUNE_FILE_MAX     4096 /* bytes */

struct tune_file {
    uint32_t ranks, hosts; /* of the world it was found in */
    struct tuning tuning;
};

void tune_file_write(const struct tune_file *f, struct strbuf *out);
/* text: the content of the file `path`, NUL-terminated, modified. -EINVAL, -ERANGE: the
 * message names file, line, value and what is allowed; -EPROTO: another version. */
int tune_file_read(const char *path,
                   char *text,
                   struct tune_file *ret,
                   struct err *err);

/* Horovod's columns that apply here, and ours. */
void tune_log_head(struct strbuf *out);
void tune_log_line(uint32_t n, const struct tune_sample *s, struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The process that opens and writes the files of --output-filename. It shares the
 * counters and one SOCK_SEQPACKET with horovodrun:
 *
 *   horovodrun -- struct writer_record, one for each piece of output --> writer
 *   horovodrun <-- struct writer_note: opened, failed, closed ---------- writer
 *
 * The end of horovodrun's direction is the end of the output. */
#ifndef RUNTIME_LAUNCH_OUTPUT_WRITER_H
#define RUNTIME_LAUNCH_OUTPUT_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define WRITER_RECORD_BYTES 16384u

struct writer_record {
    uint32_t file, n;
    char bytes[WRITER_RECORD_BYTES]; /* n are sent */
};

enum writer_note_kind {
    WRITER_OPENED,
    WRITER_NO_FOLDER,   /* the folder of all files cannot be made */
    WRITER_NO_RANK,     /* the folder of a rank cannot be made */
    WRITER_NO_FILE,     /* a file cannot be opened */
    WRITER_NOT_REGULAR, /* a file exists and is not a regular file */
    WRITER_FAILED,      /* the first write or close that failed */
    WRITER_CLOSED,      /* everything is written and closed */
};
struct writer_note {
    uint32_t kind, file;
    int32_t why; /* errno */
};

/* Files 2i and 2i + 1 are stdout and stderr of the i-th rank: FOLDER/rank.N/stdout. */
struct writer_files {
    const char *folder;
    char *paths; /* n, each in stride bytes */
    size_t stride;
    uint32_t n;
    _Atomic uint64_t
        *n_written; /* n; shared memory; relaxed, because only the values count */
};

/* Starts the writer. It is killed when the calling thread ends. *ret_fd is our end of
 * the socket, non-blocking. */
int writer_start(const struct writer_files *files, int *ret_fd, struct err *err);

#endif

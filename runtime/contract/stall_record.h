/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 knows about a stall, for the agent on its host: the file STALL_FILE in
 * HVD_STATS_DIR. It exists while a collective waits longer than the stall time.
 *
 *   ringmaster-stall/1
 *   since_us 1790000000123456        wall time: submission of the tensor
 *   seen_us 1790000063123456         wall time of this report
 *   generation 0
 *   size 3
 *   pid 417                          of rank 0, which wrote the file
 *   op ALLREDUCE
 *   tensor grad/0
 *   n_missing 1                      may be larger than the number of lines below
 *   missing 1 BARRIER epoch/3        rank; the collective in which it waits itself
 *   missing 2                        it waits in none
 *   deadlock 2 ranks wait only for each other: ...
 *
 * A reader ignores keys that it does not know. Control characters are written, and read,
 * as '?'. Pure. */
#ifndef RUNTIME_CONTRACT_STALL_RECORD_H
#define RUNTIME_CONTRACT_STALL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define STALL_FILE           "stall" /* in HVD_STATS_DIR */
#define STALL_FILE_MAX_BYTES 16384
#define STALL_NAME_MAX       128
#define STALL_MISSING_MAX    16

struct stall_missing {
    uint32_t rank;
    /* The oldest collective in which this rank waits while other ranks have not
     * submitted it: it is out of step. "": there is none. */
    char op[32], tensor[STALL_NAME_MAX];
};

struct stall_record {
    uint64_t since_wall_us, seen_wall_us;
    uint32_t generation, size, pid;
    char op[32], tensor[STALL_NAME_MAX];
    uint32_t n_missing, n_listed;
    struct stall_missing missing[STALL_MISSING_MAX]; /* n_listed, by rank */
    char deadlock[512];                              /* one sentence; "": none */
};

void stall_record_pack(const struct stall_record *r, struct strbuf *out);
/* -EPROTO with err. */
int stall_record_unpack(const char *text,
                        size_t n,
                        struct stall_record *ret,
                        struct err *err);
/* Is the rank listed? */
bool stall_record_is_missing(const struct stall_record *r, uint32_t rank);

#endif

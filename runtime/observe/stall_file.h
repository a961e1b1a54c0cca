/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's stall record as a file for the launcher (contract/stall_record.h). In the
 * seat only. */
#ifndef RUNTIME_OBSERVE_STALL_FILE_H
#define RUNTIME_OBSERVE_STALL_FILE_H

#include "runtime/contract/stall_record.h"

struct stall_file {
    char path[1200], tmp[1200]; /* "": none */
    bool is_shown, has_warned;
};

/* dir "": no file. Removes one of an earlier world. */
void stall_file_init(struct stall_file *f, const char *dir);
/* Replaces the file. A failure causes one warning. */
void stall_file_show(struct stall_file *f, const struct stall_record *r);
/* Removes it, if it is shown. Accepts a zeroed one. */
void stall_file_hide(struct stall_file *f);

#endif

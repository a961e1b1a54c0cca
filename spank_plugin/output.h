/* SPDX-License-Identifier: Apache-2.0 */
/* --hvd=output=DIR: a task's output in DIR/rank.N/stdout and stderr, the names of
 * horovodrun --output-filename. In a task, as the user. */
#ifndef SPANK_PLUGIN_OUTPUT_H
#define SPANK_PLUGIN_OUTPUT_H

#include <stdint.h>

#include "runtime/base/err.h"

/* Makes the folders and opens both files, for descriptors 1 and 2 in ret. Existing files
 * are emptied. Both -1 on failure. */
int output_open(
    const char *dir, uint32_t rank, uint32_t size, int ret[2], struct err *err);
/* Puts the files in the place of standard output and error; closes fds. */
int output_use(int fds[2], struct err *err);

#endif

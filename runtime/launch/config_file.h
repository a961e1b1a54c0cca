/* SPDX-License-Identifier: Apache-2.0 */
/* --config-file: options of horovodrun as YAML. */
#ifndef RUNTIME_LAUNCH_CONFIG_FILE_H
#define RUNTIME_LAUNCH_CONFIG_FILE_H

#include "runtime/launch/core/options.h"

/* Reads the n bytes of text; path is for error messages. */
int config_text_read(const char *path,
                     const char *text,
                     size_t n,
                     struct launch_options *o,
                     struct err *err);

/* An options_read_fn for --config-file; arg is unused. -EINVAL with the file, the line
 * and the key. A key without a value ("~" or nothing) is ignored. */
int config_file_read(void *arg,
                     const char *path,
                     struct launch_options *o,
                     struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* --config-file: flags of horovodrun as YAML. */
#ifndef RUNTIME_LAUNCH_CONFIG_FILE_H
#define RUNTIME_LAUNCH_CONFIG_FILE_H

#include "runtime/launch/core/options.h"

/* The n bytes of text; path is for sentences. */
int config_text_read(const char *path,
                     const char *text,
                     size_t n,
                     struct launch_options *o,
                     struct err *err);

/* For --config-file, an options_read_fn; arg is not used. -EINVAL with a sentence that
 * names the file, the line and the key; a key without a value ("~", nothing) is as if
 * it were not there. */
int config_file_read(void *arg,
                     const char *path,
                     struct launch_options *o,
                     struct err *err);

#endif

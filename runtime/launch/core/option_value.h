/* SPDX-License-Identifier: Apache-2.0 */
/* The values of options: checked, and in one form. */
#ifndef RUNTIME_LAUNCH_CORE_OPTION_VALUE_H
#define RUNTIME_LAUNCH_CORE_OPTION_VALUE_H

#include "runtime/launch/core/options.h"

/* *ret: text in its one form, either text itself or in the arena. before: what a LIST
 * has already, NULL: nothing. field is for the sentence, an option's spelling or a key.
 * RANGE takes its two words with a blank between them. */
int option_value(const struct launch_option_row *row,
                 const char *field,
                 const char *text,
                 const char *before,
                 struct arena *arena,
                 const char **ret,
                 struct err *err);

#endif

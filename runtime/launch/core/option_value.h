/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the values of options and converts them to one form. */
#ifndef RUNTIME_LAUNCH_CORE_OPTION_VALUE_H
#define RUNTIME_LAUNCH_CORE_OPTION_VALUE_H

#include "runtime/launch/core/options.h"

/* *ret: the converted text, either text itself or in the arena. before: previous value
 * of a LIST; NULL: none. field: option or key for error messages. A RANGE is two words
 * separated by a blank. */
int option_value(const struct launch_option_row *row,
                 const char *field,
                 const char *text,
                 const char *before,
                 struct arena *arena,
                 const char **ret,
                 struct err *err);
/* The variable of an option and its value, for a converted text; row->var is not "". */
int option_variable(const struct launch_option_row *row,
                    const char *text,
                    struct arena *arena,
                    struct option_var *ret,
                    struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Options of hvd-agent's subcommands. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_WORDS_H
#define RUNTIME_LAUNCH_CORE_WORDS_H

#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/err.h"

/* Takes "--NAME VALUE" and "--NAME=VALUE" from the start of argv: values[k] becomes the
 * value of names[k] ("--port"), within argv. The last of several wins; a value that is
 * not given is unchanged. Returns the index of the first word that is not an option;
 * "--" is not one. -EINVAL: an unknown option, or one without a value. */
ssize_t words_take(char *const *argv,
                   const char *const *names,
                   const char **values,
                   size_t n,
                   struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Options of hvd-agent's subcommands. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_WORDS_H
#define RUNTIME_LAUNCH_CORE_WORDS_H

#include <stddef.h>
#include <sys/types.h>

#include "runtime/base/err.h"

/* Takes "--NAME VALUE" and "--NAME=VALUE" from the start of argv: values[k] becomes the
 * value of names[k] ("--port"), within argv; the last of several counts, and one that
 * is not given stays. Returns the index of the first word that is no option: "--" is
 * none. -EINVAL: an option without a value, or one that is none of names. */
ssize_t words_take(char *const *argv,
                   const char *const *names,
                   const char **values,
                   size_t n,
                   struct err *err);

#endif

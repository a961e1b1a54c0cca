/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the user's command and checks it before it is started. */
#ifndef RUNTIME_LAUNCH_COMMAND_H
#define RUNTIME_LAUNCH_COMMAND_H

#include <limits.h>
#include <stddef.h>

#include "runtime/base/err.h"

/* Looks name up like a shell, in search (the PATH of the command; NULL: a default).
 * ret_path has PATH_MAX bytes. Returns 0, or the exit code of a shell: 127 not found,
 * 126 not executable. err describes the problem and, for python, which other version
 * exists. */
int command_find(const char *name, const char *search, char *ret_path, struct err *err);
/* Changes to the directory dir ("": none). If that fails, changes to $HOME or / and
 * writes a warning to ret, otherwise "". */
void command_enter(const char *dir, char *ret, size_t size_bytes);
/* Writes a warning if argv is a Python that ignores PYTHONPATH (-I, -E), otherwise
 * "". */
void command_python_warning(char *const *argv, char *ret, size_t size_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The user's command: where it is, and what is wrong with it before it is started. */
#ifndef RUNTIME_LAUNCH_COMMAND_H
#define RUNTIME_LAUNCH_COMMAND_H

#include <limits.h>
#include <stddef.h>

#include "runtime/base/err.h"

/* Looks name up as a shell would in search (the PATH that the command will get; NULL: a
 * default). ret_path has PATH_MAX bytes. 0, or what a shell exits with: 127 not found,
 * 126 found but not executable; err says which and, for python, what is there instead.
 */
int command_find(const char *name, const char *search, char *ret_path, struct err *err);
/* Goes to the directory dir; where that cannot be, to $HOME or /, and ret says so, else
 * "". dir "": stays. */
void command_enter(const char *dir, char *ret, size_t size_bytes);
/* A warning when argv is a Python that will not look at PYTHONPATH (-I, -E), else "".
 */
void command_python_warning(char *const *argv, char *ret, size_t size_bytes);

#endif

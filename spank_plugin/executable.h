/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a program as a shell does. */
#ifndef SPANK_PLUGIN_EXECUTABLE_H
#define SPANK_PLUGIN_EXECUTABLE_H

#include <limits.h>
#include <stdbool.h>

/* word: a path, or a name to look for in dirs, a PATH (NULL: none). A name that is a file
 * here counts, too. False: there is no such executable file. */
bool executable_find(const char *word, const char *dirs, char ret[PATH_MAX]);

#endif

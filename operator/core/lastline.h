/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a program's output that says why it ended. Pure. */
#ifndef OPERATOR_CORE_LASTLINE_H
#define OPERATOR_CORE_LASTLINE_H

#include <stddef.h>

/* Returns the last line that is not blank, without the blanks around it and not terminated;
 * *ret_n: its bytes, at most LAST_LINE_MAX, no half of a character; 0: there is none. */
#define LAST_LINE_MAX 200
const char *last_line_find(const char *output, size_t *ret_n);

#endif

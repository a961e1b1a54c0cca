/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreters print the error last: "ModuleNotFoundError: No module named 'torch'". */
#include "operator/core/lastline.h"

#include <string.h>

static const char blanks[] = " \t\r\n";

const char *last_line_find(const char *output, size_t *ret_n)
{
    const char *end = output + strlen(output), *line;
    size_t n;

    while (end > output && strchr(blanks, end[-1]))
        end--;
    for (line = end; line > output && line[-1] != '\n';)
        line--;
    line += strspn(line, blanks);
    n = end > line ? (size_t)(end - line) : 0;
    if (n > LAST_LINE_MAX) {
        n = LAST_LINE_MAX;
        while (n > 0 && ((unsigned char)line[n] & 0xc0) == 0x80)
            n--;
    }
    *ret_n = n;
    return line;
}

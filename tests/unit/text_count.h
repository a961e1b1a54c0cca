/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_UNIT_TEXT_COUNT_H
#define TESTS_UNIT_TEXT_COUNT_H

#include <string.h>

/* How often part occurs in text. */
static inline size_t text_count(const char *text, const char *part)
{
    size_t n = 0;

    for (const char *p = text; (p = strstr(p, part)) != NULL; p++)
        n++;
    return n;
}

#endif

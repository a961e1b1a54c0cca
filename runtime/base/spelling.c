/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of Wagner and Fischer (1974), one row of it at a time. Called by
 * core/knobs.c and launch/core/option_text.c. */
#include "runtime/base/spelling.h"

unsigned spelling_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    enum { MAX = 56 };
    unsigned row[MAX + 1];

    if (a_len > MAX || b_len > MAX)
        return SPELLING_FAR;
    for (size_t j = 0; j <= b_len; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned change = diagonal + (a[i - 1] != b[j - 1]);
            unsigned gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

            diagonal = row[j];
            row[j] = change < gap ? change : gap;
        }
    }
    return row[b_len];
}

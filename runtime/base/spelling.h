/* SPDX-License-Identifier: Apache-2.0 */
/* The distance between two words, for "did you mean". Pure. */
#ifndef RUNTIME_BASE_SPELLING_H
#define RUNTIME_BASE_SPELLING_H

#include <stddef.h>

#define SPELLING_FAR 99u /* of words longer than 56 bytes, which nobody mistypes */

/* Levenshtein's distance: bytes to insert, delete or change to make b of a. */
unsigned spelling_distance(const char *a, size_t a_len, const char *b, size_t b_len);

#endif

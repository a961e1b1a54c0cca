/* SPDX-License-Identifier: Apache-2.0 */
/* The strings of a struct as a list, for copies that own them. Pure. */
#ifndef OPERATOR_CORE_TEXTS_H
#define OPERATOR_CORE_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

struct texts { /* which members of a struct are char * */
    const size_t *offset;
    size_t n;
};

/* Sets each string to "". */
void texts_empty(const struct texts *t, void *object);
/* object: a bitwise copy of from. Its strings are replaced by copies of at most max
 * bytes. -ENOMEM: all its strings are NULL. */
int texts_copy(const struct texts *t, const void *from, void *object, size_t max);
void texts_release(const struct texts *t, void *object);       /* NULL afterwards */
size_t texts_bytes(const struct texts *t, const void *object); /* with the NULs */
/* Compares the first max bytes of each. */
bool texts_equal(const struct texts *t, const void *a, const void *b, size_t max);

#endif

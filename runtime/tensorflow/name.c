/* SPDX-License-Identifier: Apache-2.0 */
/* name.c: derives names of tensors from those of TensorFlow's nodes, which may be
 * longer than the runtime allows. Pure. Called by kernel.c. */
#include "runtime/tensorflow/name.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t name_scope_length(const char *name, size_t length)
{
    for (size_t i = length; i > 0; i--)
        if (name[i - 1] == '/')
            return i;
    return 0;
}

static uint64_t name_hash(const char *text, size_t n)
{
    uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return h;
}

void name_make(char *ret, size_t n, const char *word, const char *name, size_t length)
{
    size_t room = n - strlen(word) - sizeof(".~0123456789abcdef~");

    if (length <= room)
        (void)snprintf(ret, n, "%s.%.*s", word, (int)length, name);
    else
        (void)snprintf(ret, n, "%s.~%016" PRIx64 "~%.*s", word, name_hash(name, length),
                       (int)room, name + length - room);
}

/* The length of the part "_9/" that name begins with, or 0. */
static size_t number_length(const char *name, size_t length)
{
    size_t i = 1;

    if (!length || name[0] != '_')
        return 0;
    while (i < length && name[i] >= '0' && name[i] <= '9')
        i++;
    return i > 1 && i < length && name[i] == '/' ? i + 1 : 0;
}

size_t name_stable(char *ret, const char *name, size_t length)
{
    size_t n = 0;

    for (size_t i = 0; i < length;) {
        size_t skip = i && name[i - 1] == '/' ? number_length(name + i, length - i) : 0;

        if (skip)
            i += skip;
        else
            ret[n++] = name[i++];
    }
    return n;
}

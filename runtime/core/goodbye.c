/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a goodbye is a program's: an exception's message, from any rank. It goes
 * into error texts, logs and terminals of all ranks, and launchers look in their lines
 * for names of ranks. So rank 0 cleans it before it forms the sentence that all ranks
 * get. Called by tree_cause.c and by the C API. */
#include "runtime/core/goodbye.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"

/* Ranges of code points that are not printed: C1 controls, line separators, marks of
 * direction, and invisible ones (byte order mark, tags). */
static const struct {
    uint32_t first, last;
} hidden[] = {{0x80, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200f},  {0x2028, 0x202e},
              {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xe0000, 0xe007f}};

/* s: a valid character of size bytes, 2 to 4. */
static bool utf8_is_printable(const unsigned char *s, size_t size)
{
    uint32_t c = s[0] & (0x7fu >> size);

    for (size_t i = 1; i < size; i++)
        c = c << 6 | (s[i] & 0x3f);
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++)
        if (size > 1 && c >= hidden[i].first && c <= hidden[i].last)
            return false;
    return true;
}

void goodbye_clean(const char *text, char *ret, size_t size_bytes)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t at = 0, size;

    for (; *s; s += size ? size : 1) {
        size = utf8_length(s);
        if (at + (size ? size : 1) >= size_bytes)
            break;
        if (*s <= ' ' || *s == 0x7f) {
            if (at > 0 && ret[at - 1] != ' ')
                ret[at++] = ' ';
        } else if (size == 0 || !utf8_is_printable(s, size)) {
            ret[at++] = '?';
        } else {
            memcpy(ret + at, s, size);
            at += size;
        }
    }
    if (at > 0 && ret[at - 1] == ' ')
        at--;
    ret[at] = '\0';
}

int64_t goodbye_rank(const char *text)
{
    static const char before[] = "Horovod has been shut down: ", mark[] = "rank ";
    char *end;
    long rank;

    if (strncmp(text, before, sizeof(before) - 1) == 0)
        text += sizeof(before) - 1;
    if (strncmp(text, mark, sizeof(mark) - 1) != 0)
        return -1;
    text += sizeof(mark) - 1;
    if (*text < '0' || *text > '9')
        return -1;
    rank = strtol(text, &end, 10);
    return rank <= INT32_MAX && strncmp(end, " (host ", 7) == 0 ? rank : -1;
}

bool goodbye_is_stop(const char *text)
{
    static const char words[] = ") " GOODBYE_STOPPED;
    const char *name_end = goodbye_rank(text) >= 0 ? strchr(text, ')') : NULL;

    return name_end && strncmp(name_end, words, sizeof(words) - 1) == 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Strings by their offsets. Called by pod.c and batch.c. */
#include "operator/core/texts.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/mem.h"

static char **texts_get_field(void *object, size_t offset)
{
    return (char **)(void *)((char *)object + offset);
}

static const char *texts_get_text(const void *object, size_t offset)
{
    return *(char *const *)(const void *)((const char *)object + offset);
}

void texts_empty(const struct texts *t, void *object)
{
    static const char empty[] = "";

    for (size_t i = 0; i < t->n; i++)
        *texts_get_field(object, t->offset[i]) =
            (char *)(uintptr_t)empty; /* nobody writes to it */
}

int texts_copy(const struct texts *t, const void *from, void *object, size_t max)
{
    for (size_t i = 0; i < t->n; i++)
        *texts_get_field(object, t->offset[i]) = NULL;
    for (size_t i = 0; i < t->n; i++) {
        char *copy = mem_strndup(texts_get_text(from, t->offset[i]), max);

        if (!copy) {
            texts_release(t, object);
            return -ENOMEM;
        }
        *texts_get_field(object, t->offset[i]) = copy;
    }
    return 0;
}

void texts_release(const struct texts *t, void *object)
{
    for (size_t i = 0; i < t->n; i++) {
        mem_free(*texts_get_field(object, t->offset[i]));
        *texts_get_field(object, t->offset[i]) = NULL;
    }
}

size_t texts_bytes(const struct texts *t, const void *object)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += strlen(texts_get_text(object, t->offset[i])) + 1;
    return n;
}

bool texts_equal(const struct texts *t, const void *a, const void *b, size_t max)
{
    for (size_t i = 0; i < t->n; i++) {
        if (strncmp(texts_get_text(a, t->offset[i]), texts_get_text(b, t->offset[i]),
                    max)
            != 0)
            return false;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Each block starts with its size, because free does not receive it. */
#include "runtime/base/wiped.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/mem.h"

struct head {
    _Alignas(16) size_t size_bytes; /* of what follows */
};

static struct head *head_of(void *p)
{
    return (struct head *)p - 1;
}

void *wiped_alloc(size_t size_bytes)
{
    struct head *h;

    h = size_bytes <= SIZE_MAX - sizeof(*h) ? mem_alloc(sizeof(*h) + size_bytes) : NULL;
    if (!h) {
        errno = ENOMEM;
        return NULL;
    }
    h->size_bytes = size_bytes;
    return h + 1;
}

void *wiped_calloc(size_t n, size_t size_bytes)
{
    void *p;

    if (size_bytes && n > SIZE_MAX / size_bytes)
        return NULL;
    p = wiped_alloc(n * size_bytes);
    return p ? memset(p, 0, n * size_bytes) : NULL;
}

void *wiped_realloc(void *p, size_t size_bytes)
{
    void *grown = wiped_alloc(size_bytes);
    size_t n = p ? head_of(p)->size_bytes : 0;

    if (!grown)
        return NULL;
    if (p)
        memcpy(grown, p, n < size_bytes ? n : size_bytes);
    wiped_free(p);
    return grown;
}

char *wiped_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = wiped_alloc(n);

    return p ? memcpy(p, s, n) : NULL;
}

void wiped_free(void *p)
{
    if (!p)
        return;
    mem_wipe(p, head_of(p)->size_bytes);
    mem_free(head_of(p));
}

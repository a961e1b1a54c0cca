/* SPDX-License-Identifier: Apache-2.0 */
/* Bump allocator: a list of blocks, each at least BLOCK_BYTES or as large as one
 * request. max_bytes bounds what callers asked for (rounded up to 16), not the slack at
 * the end of blocks. */
#include "runtime/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define ALIGN_BYTES 16u
#define BLOCK_BYTES 4096u

struct arena_block {
    struct arena_block *next;
    size_t used, cap;
    _Alignas(ALIGN_BYTES) unsigned char data[];
};

void arena_init(struct arena *a, size_t max_bytes)
{
    a->head = NULL;
    a->used_bytes = 0;
    a->max_bytes = max_bytes;
}

void arena_wipe(struct arena *a)
{
    for (struct arena_block *b = a->head; b; b = b->next)
        mem_wipe(b->data, b->used);
}

void arena_release(struct arena *a)
{
    while (a->head) {
        struct arena_block *b = a->head;

        a->head = b->next;
        mem_free(b);
    }
    a->used_bytes = 0;
}

void *arena_alloc(struct arena *a, size_t size_bytes)
{
    if (size_bytes > SIZE_MAX - ALIGN_BYTES - sizeof(struct arena_block))
        return NULL;

    size_t n = (size_bytes + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
    if (n == 0)
        n = ALIGN_BYTES;
    if (n > a->max_bytes || a->used_bytes > a->max_bytes - n)
        return NULL;
    if (!a->head || a->head->cap - a->head->used < n) {
        size_t cap = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        /* malloc aligns to 16 on every 64-bit ABI that we build for. */
        struct arena_block *b = mem_zalloc(sizeof(*b) + cap);

        if (!b)
            return NULL;
        b->cap = cap;
        b->next = a->head;
        a->head = b;
    }

    void *p = a->head->data + a->head->used;
    a->head->used += n;
    a->used_bytes += n;
    return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size_bytes)
{
    if (size_bytes && n > SIZE_MAX / size_bytes)
        return NULL;
    return arena_alloc(a, n * size_bytes);
}

char *arena_strdup(struct arena *a, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = arena_alloc(a, n);

    if (p)
        memcpy(p, s, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return NULL;

    char *p = arena_alloc(a, (size_t)n + 1);
    if (!p)
        return NULL;
    va_start(ap, fmt);
    (void)vsnprintf(p, (size_t)n + 1, fmt, ap); /* length measured above */
    va_end(ap);
    return p;
}

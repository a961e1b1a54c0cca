/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded bump allocator for memory with one lifetime. One arena serves one unit of
 * work (a reconcile, a parse) and is released whole; nothing in it may outlive it. */
#ifndef RUNTIME_BASE_ARENA_H
#define RUNTIME_BASE_ARENA_H

#include <stddef.h>

struct arena {
    struct arena_block *head;
    size_t used_bytes, max_bytes;
};

void arena_init(struct arena *a, size_t max_bytes);
void arena_wipe(
    struct arena *a); /* zeroes all in it: for secrets, before the release */
void arena_release(struct arena *a); /* accepts a zeroed arena; afterwards reusable */
/* 16-byte aligned, zeroed; NULL when memory is out or max_bytes would be exceeded. */
void *arena_alloc(struct arena *a, size_t size_bytes);
void *arena_calloc(struct arena *a, size_t n, size_t size_bytes);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif

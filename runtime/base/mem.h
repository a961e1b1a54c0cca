/* SPDX-License-Identifier: Apache-2.0 */
/* Checked allocation that never aborts, cleanup attributes, and the hook that lets a
 * test make the n-th allocation fail. All of our code allocates through here. */
#ifndef RUNTIME_BASE_MEM_H
#define RUNTIME_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* All return NULL when memory is out or a size overflows. Release with mem_free(). */
void *mem_alloc(size_t size_bytes);
void *mem_zalloc(size_t size_bytes);
void *mem_calloc(size_t n, size_t size_bytes);
void *mem_realloc_array(void *p, size_t n, size_t size_bytes);
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t max_bytes);
void mem_free(void *p);                 /* accepts NULL */
void mem_wipe(void *p, size_t n_bytes); /* zeroes, also what is freed next */
void mem_free_secret(
    char **s); /* a text, which may be NULL: wiped, freed, set to NULL */

/* Makes room for one more element in a vector (v, n used, cap); doubles, at most max
 * elements. 0, -ENOMEM, or -E2BIG when n == max. */
int mem_grow(void **v, size_t n, size_t *cap, size_t elem_bytes, size_t max);

/* Test hook (the one mutable state of mem.c): after n successful allocations of this
 * process the next one fails, once. Negative n switches it off. mem_fail_fired() is true
 * once it has. */
void mem_fail_after(long n);
/* The same, counting only the allocations of the calling thread. */
void mem_fail_thread_after(long n);
bool mem_fail_fired(void);

/* CLEANUP(fn) T *x: fn(&x) runs when x leaves scope. AUTOFREE char *x: mem_free at
 * scope end. TAKE(x): hand x over; leaves NULL behind. */
#define CLEANUP(fn) __attribute__((cleanup(fn)))
void mem_freep(void *p); /* p points to the pointer */
#define AUTOFREE CLEANUP(mem_freep)
#define TAKE(x)                                                                        \
    __extension__({                                                                    \
        __typeof__(x) take_ = (x);                                                     \
        (x) = NULL;                                                                    \
        take_;                                                                         \
    })

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif

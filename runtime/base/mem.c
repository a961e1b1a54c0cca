/* SPDX-License-Identifier: Apache-2.0 */
/* Checked allocation over malloc. Nothing here aborts: this code lives inside other
 * people's Python and slurmstepd. The one mutable state is the fault hook, a countdown
 * that a test arms; it is atomic because ranks in threads allocate at once. */
#include "runtime/base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static atomic_long fail_after = -1; /* -1: off; 0: the next allocation fails */
static atomic_bool fail_fired, fail_one_thread;
static _Thread_local bool is_fail_thread;

static void mem_arm(bool one_thread, long n)
{
    is_fail_thread = one_thread;
    atomic_store_explicit(&fail_fired, false, memory_order_relaxed);
    atomic_store_explicit(&fail_one_thread, one_thread, memory_order_relaxed);
    atomic_store_explicit(&fail_after, n < 0 ? -1 : n, memory_order_release);
}

void mem_fail_after(long n)
{
    mem_arm(false, n);
}

void mem_fail_thread_after(long n)
{
    mem_arm(true, n);
}

bool mem_fail_fired(void)
{
    return atomic_load_explicit(&fail_fired, memory_order_relaxed);
}

/* Acquire: who sees the countdown sees whose it is. Fires once, then is off. */
static bool must_fail(void)
{
    long n = atomic_load_explicit(&fail_after, memory_order_acquire);

    if (n >= 0 && atomic_load_explicit(&fail_one_thread, memory_order_relaxed)
        && !is_fail_thread)
        return false;
    while (n >= 0) {
        if (atomic_compare_exchange_weak_explicit(
                &fail_after, &n, n - 1, memory_order_relaxed, memory_order_relaxed)) {
            if (n > 0)
                return false;
            atomic_store_explicit(&fail_fired, true, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

void *mem_alloc(size_t size_bytes)
{
    return must_fail() ? NULL : malloc(size_bytes ? size_bytes : 1);
}

void *mem_zalloc(size_t size_bytes)
{
    return must_fail() ? NULL : calloc(1, size_bytes ? size_bytes : 1);
}

void *mem_calloc(size_t n, size_t size_bytes)
{
    if (size_bytes && n > SIZE_MAX / size_bytes)
        return NULL;
    return mem_zalloc(n * size_bytes);
}

void *mem_realloc_array(void *p, size_t n, size_t size_bytes)
{
    if (size_bytes && n > SIZE_MAX / size_bytes)
        return NULL;
    if (must_fail())
        return NULL;
    return realloc(p, n && size_bytes ? n * size_bytes : 1);
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, SIZE_MAX - 1);
}

char *mem_strndup(const char *s, size_t max_bytes)
{
    size_t n = strnlen(s, max_bytes);
    char *p = mem_alloc(n + 1);

    if (!p)
        return NULL;
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

void mem_free(void *p)
{
    free(p);
}

/* explicit_bzero, which glibc has from 2.25 on; we support 2.17. The compiler must
 * assume that the zeros are read. */
void mem_wipe(void *p, size_t n_bytes)
{
    if (n_bytes == 0)
        return;
    memset(p, 0, n_bytes);
    __asm__ volatile("" : : "r"(p) : "memory");
}

void mem_free_secret(char **s)
{
    if (*s)
        mem_wipe(*s, strlen(*s));
    mem_free(*s);
    *s = NULL;
}

void mem_freep(void *p)
{
    void *target;

    memcpy(&target, p, sizeof(target)); /* the pointer's own type is not known here */
    free(target);
}

int mem_grow(void **v, size_t n, size_t *cap, size_t elem_bytes, size_t max)
{
    if (n >= max)
        return -E2BIG;
    if (n < *cap)
        return 0;

    size_t want = *cap < 8 ? 8 : (*cap > max / 2 ? max : *cap * 2);
    if (want > max)
        want = max;
    void *p = mem_realloc_array(*v, want, elem_bytes);
    if (!p)
        return -ENOMEM;
    *v = p;
    *cap = want;
    return 0;
}

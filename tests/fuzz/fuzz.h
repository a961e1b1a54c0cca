/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target is one function over bytes. Under V=fuzz it is libFuzzer's entry;
 * otherwise it is fuzz_NAME in the replay program, which runs the corpus under gcc's sanitizers.
 * A new one is a file NAME_fuzz.c and a folder corpus/NAME.
 * A target checks properties (what is rendered is read back), not only that nothing
 * crashes. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FUZZ_REPLAY
#define FUZZ_TARGET(name)                                                              \
    int fuzz_##name(const uint8_t *data, size_t n);                                    \
    int fuzz_##name(const uint8_t *data, size_t n)
#else
#define FUZZ_TARGET(name)                                                              \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);                         \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
#endif

/* A violated property aborts the program, as a crash does. */
#define MUST(what)                                                                     \
    do {                                                                               \
        if (!(what)) {                                                                 \
            (void)fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                                   \
        }                                                                              \
    } while (0)

/* A result is filled before a call and must still be so where the call has failed. */
static inline void fuzz_fill(void *p, size_t n)
{
    memset(p, 0x5a, n);
}

static inline bool fuzz_is_filled(const void *p, size_t n)
{
    const uint8_t *b = p;

    for (size_t i = 0; i < n; i++)
        if (b[i] != 0x5a)
            return false;
    return true;
}

/* The input as text; a NUL ends it. The caller frees. */
static inline char *fuzz_text(const uint8_t *data, size_t n)
{
    char *s = malloc(n + 1);

    MUST(s);
    if (n)
        memcpy(s, data, n);
    s[n] = '\0';
    return s;
}

#endif

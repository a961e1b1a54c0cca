/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target is one function over bytes. Under V=fuzz it is libFuzzer's entry;
 * otherwise it is fuzz_NAME in the replay program, which runs the corpus under gcc's sanitizers.
 * A target checks properties (what is rendered is read back), not only that nothing
 * crashes. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every target; a new one is a line here and a file NAME_fuzz.c. */
#define FUZZ_TARGETS(X)                                                                \
    X(hosts)                                                                           \
    X(hostfile)                                                                        \
    X(slurm_list)                                                                      \
    X(slurm_counts)                                                                    \
    X(contract)                                                                        \
    X(agent_env)                                                                       \
    X(job_world)                                                                       \
    X(failure)                                                                         \
    X(card)                                                                            \
    X(handshake)                                                                       \
    X(message)                                                                         \
    X(bundle)                                                                          \
    X(frames)                                                                          \
    X(world)                                                                           \
    X(mpijob)                                                                          \
    X(job)                                                                             \
    X(watch)                                                                           \
    X(kubeconfig)                                                                      \
    X(exec_answer)                                                                     \
    X(lease)                                                                           \
    X(json)                                                                            \
    X(config)                                                                          \
    X(codec)                                                                           \
    X(trace)                                                                           \
    X(errand)                                                                          \
    X(gpu_card)                                                                        \
    X(gpu_cause)

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

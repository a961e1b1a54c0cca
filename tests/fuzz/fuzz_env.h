/* SPDX-License-Identifier: Apache-2.0 */
/* The input as an environment: lines of NAME=value. */
#ifndef TESTS_FUZZ_FUZZ_ENV_H
#define TESTS_FUZZ_FUZZ_ENV_H

#include "runtime/contract/contract.h"
#include "tests/fuzz/fuzz.h"

struct fuzz_env {
    char *text; /* lines cut into strings */
    size_t n;
};

static inline void fuzz_env_init(struct fuzz_env *e, const uint8_t *data, size_t n)
{
    e->text = fuzz_text(data, n);
    e->n = n;
    for (size_t i = 0; i < n; i++)
        if (e->text[i] == '\n')
            e->text[i] = '\0';
}

static inline const char *fuzz_env_get(void *arg, const char *name)
{
    const struct fuzz_env *e = arg;
    size_t k = strlen(name);

    for (size_t at = 0; at < e->n; at += strlen(e->text + at) + 1)
        if (strncmp(e->text + at, name, k) == 0 && e->text[at + k] == '=')
            return e->text + at + k + 1;
    return NULL;
}

struct fuzz_pairs {
    struct env_pair v[CONTRACT_MAX_ENV];
    size_t n;
};

static inline const char *fuzz_pairs_get(void *arg, const char *name)
{
    const struct fuzz_pairs *p = arg;

    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].name, name) == 0)
            return p->v[i].value;
    return NULL;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* An environment in a table, for everything that takes a getenv_fn. */
#ifndef TESTS_UNIT_FAKE_ENV_H
#define TESTS_UNIT_FAKE_ENV_H

#include <stdio.h>
#include <string.h>

#include "runtime/contract/contract.h"

#define FAKE_ENV_MAX 96

struct fake_env {
    struct env_pair v[FAKE_ENV_MAX];
    size_t n;
};

static inline const char *fake_get(void *arg, const char *name)
{
    struct fake_env *e = arg;

    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->v[i].name, name) == 0)
            return e->v[i].value;
    return NULL;
}

/* value NULL: unset. */
static inline void fake_set(struct fake_env *e, const char *name, const char *value)
{
    size_t i = 0;

    while (i < e->n && strcmp(e->v[i].name, name) != 0)
        i++;
    if (!value) {
        if (i < e->n)
            e->v[i] = e->v[--e->n];
        return;
    }
    if (i == e->n)
        e->n++;
    (void)snprintf(e->v[i].name, sizeof(e->v[i].name), "%.47s", name);
    (void)snprintf(e->v[i].value, sizeof(e->v[i].value), "%.1023s", value);
}

/* "A=1 B=x C=": a blank separates, an empty value unsets. */
static inline void fake_set_all(struct fake_env *e, const char *text)
{
    char copy[2048], *save = NULL;

    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        char *eq = strchr(p, '=');

        *eq = '\0';
        fake_set(e, p, eq[1] ? eq + 1 : NULL);
    }
}

/* As a launcher of ours starts a process: what is inherited goes, then its own set
 * comes. */
static inline void fake_start(struct fake_env *e, const struct env_pair *v, size_t n)
{
    for (size_t i = 0; i < e->n;)
        if (contract_is_inherited(e->v[i].name))
            e->v[i] = e->v[--e->n];
        else
            i++;
    for (size_t i = 0; i < n; i++)
        fake_set(e, v[i].name, v[i].value);
}

#endif

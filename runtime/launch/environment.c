/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks inherit the environment except the variables of an outer launcher: a rank with
 * the place variables of both horovodrun and Slurm would be ambiguous. Called by
 * local_ranks.c, check_build.c and remote_agent.c. */
#include "runtime/launch/environment.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"

#define ENVIRONMENT_MAX 65536

/* Variables for agents only; each rank has its own place variables. */
static const char *const agent_only[] = {
    "HVD_WORKER_INDEX", "HVD_NUM_WORKERS",  "HVD_SLOTS_PER_WORKER", "HVD_NP",
    "HVD_CHECKIN_ADDR", "HVD_CHECKIN_PORT", "HVD_TERMINATION_LOG",  "HVD_WORLD_FILE"};

const char *environment_own(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

void environment_init(struct environment *e)
{
    memset(e, 0, sizeof(*e));
}

void environment_release(struct environment *e)
{
    for (size_t i = 0; i < e->n; i++)
        mem_free(e->v[i]);
    mem_free(e->v);
    memset(e, 0, sizeof(*e));
}

/* Takes ownership of pair, also on failure. */
static void environment_append(struct environment *e, char *pair)
{
    void *p = e->v;
    int rc = pair ? mem_grow(&p, e->n + 1, &e->cap, sizeof(*e->v), ENVIRONMENT_MAX)
                  : -ENOMEM;
    e->v = p;
    if (rc < 0) {
        e->status = rc;
        mem_free(pair);
        return;
    }
    e->v[e->n++] = pair;
    e->v[e->n] = NULL;
}

static bool environment_is_agent_only(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(agent_only); i++)
        if (!strcmp(name, agent_only[i]))
            return true;
    return false;
}

void environment_inherit(struct environment *e, char *const *from)
{
    for (; *from; from++) {
        char name[128];
        size_t len = strcspn(*from, "=");
        if ((*from)[len] != '=')
            continue;
        if (len < sizeof(name)) {
            memcpy(name, *from, len);
            name[len] = '\0';
            if (contract_is_inherited(name) || environment_is_agent_only(name))
                continue;
        }
        environment_append(e, mem_strdup(*from));
    }
}

static size_t environment_find(const struct environment *e, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < e->n; i++)
        if (!strncmp(e->v[i], name, len) && e->v[i][len] == '=')
            return i;
    return SIZE_MAX;
}

const char *environment_get(const struct environment *e, const char *name)
{
    size_t i = environment_find(e, name);
    return i == SIZE_MAX ? NULL : e->v[i] + strlen(name) + 1;
}

void environment_set(struct environment *e, const char *name, const char *value)
{
    size_t bytes = strlen(name) + strlen(value) + 2;
    char *pair = mem_alloc(bytes);
    if (pair)
        (void)snprintf(pair, bytes, "%s=%s", name, value);
    size_t i = environment_find(e, name);
    if (i == SIZE_MAX || !pair) {
        environment_append(e, pair);
        return;
    }
    mem_free(e->v[i]);
    e->v[i] = pair;
}

void environment_overlay(struct environment *e, char *const *pairs)
{
    for (; *pairs; pairs++) {
        size_t len = strcspn(*pairs, "=");
        AUTOFREE char *name = mem_strndup(*pairs, len);
        if (!name)
            e->status = -ENOMEM;
        else if (len && (*pairs)[len])
            environment_set(e, name, *pairs + len + 1);
    }
}

void environment_default(struct environment *e, const char *name, const char *value)
{
    if (environment_find(e, name) == SIZE_MAX)
        environment_set(e, name, value);
}

void environment_prepend(struct environment *e, const char *name, const char *dir)
{
    const char *old = environment_get(e, name);
    size_t bytes = strlen(dir) + (old ? strlen(old) : 0) + 2;
    AUTOFREE char *both = mem_alloc(bytes);
    if (!both) {
        e->status = -ENOMEM;
        return;
    }
    (void)snprintf(both, bytes, "%s%s%s", dir, old && *old ? ":" : "", old ? old : "");
    environment_set(e, name, both);
}

int environment_contract(struct environment *e,
                         const struct contract *c,
                         struct err *err)
{
    size_t n = 0;
    AUTOFREE struct env_pair *pairs = mem_calloc(CONTRACT_MAX_ENV, sizeof(*pairs));
    if (!pairs)
        return err_set(err, -ENOMEM, "out of memory for the environment of a rank");
    int rc = contract_render(c, pairs, &n, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        environment_set(e, pairs[i].name, pairs[i].value);
    return e->status < 0 ? err_set(err, e->status, "the environment is too large") : 0;
}

void environment_runtime(struct environment *e, const char *dir)
{
    char path[CONTRACT_PATH_MAX + 16];
    if (!*dir)
        return;
    (void)snprintf(path, sizeof(path), "%s/python", dir);
    environment_prepend(e, "PYTHONPATH", path);
    if (!environment_get(e, "PATH"))
        environment_set(e, "PATH",
                        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    (void)snprintf(path, sizeof(path), "%s/bin", dir);
    environment_prepend(e, "PATH", path);
}

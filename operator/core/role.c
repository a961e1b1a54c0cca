/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the roles. */
#include "operator/core/role.h"

#include <string.h>

#include "runtime/base/mem.h"

static const struct {
    const char *name, *title;
} roles[] = {
    [ROLE_WORKER] = {"worker", "Worker"},
    [ROLE_LAUNCHER] = {"launcher", "Launcher"},
    [ROLE_PS] = {"ps", "PS"},
    [ROLE_CHIEF] = {"chief", "Chief"},
    [ROLE_EVALUATOR] = {"evaluator", "Evaluator"},
};
_Static_assert(ARRAY_LEN(roles) == ROLE_COUNT, "one row per role");

const char *role_name(enum role r)
{
    return roles[r].name;
}

const char *role_title(enum role r)
{
    return roles[r].title;
}

int role_find(const char *name)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (strcmp(roles[r].name, name) == 0)
            return r;
    }
    return -1;
}

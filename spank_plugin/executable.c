/* SPDX-License-Identifier: Apache-2.0 */
/* Called by srun.c, with srun's PATH, and by first_task.c, with that of the task. */
#include "spank_plugin/executable.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool
executable_is_at(const char *dir, size_t n, const char *name, char ret[PATH_MAX])
{
    struct stat st;
    int len = snprintf(ret, PATH_MAX, "%.*s%s%s", (int)n, dir, n ? "/" : "", name);

    return len > 0 && len < PATH_MAX && stat(ret, &st) == 0 && S_ISREG(st.st_mode)
           && access(ret, X_OK) == 0;
}

bool executable_find(const char *word, const char *dirs, char ret[PATH_MAX])
{
    if (executable_is_at("", 0, word, ret))
        return true;
    for (size_t n; dirs && !strchr(word, '/'); dirs = dirs[n] ? dirs + n + 1 : NULL) {
        n = strcspn(dirs, ":");
        if (executable_is_at(dirs, n, word, ret))
            return true;
    }
    return false;
}

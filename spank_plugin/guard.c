/* SPDX-License-Identifier: Apache-2.0 */
/* Called by srun.c (put) and task.c (take). The name is restored in place because
 * slurmstepd may reallocate the text (srun --bcast). */
#include "spank_plugin/guard.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

static const char text[] = GUARD_TEXT;

char *guard_put(const char *program)
{
    size_t size_bytes = sizeof(text) + strlen(program);
    char *name = mem_alloc(size_bytes);
    if (name)
        (void)snprintf(name, size_bytes, "%s%s", text, program);
    return name;
}

int guard_take(char *program, struct err *err)
{
    size_t n = sizeof(text) - 1;
    while (strncmp(program, text, n) == 0)
        memmove(program, program + n, strlen(program + n) + 1);
    if (strncmp(program, GUARD_MARK, strlen(GUARD_MARK)) == 0)
        return err_set(err, -EINVAL,
                       "the command was sent by another version of spank_hvd.so; the "
                       "same version must be installed on the login and compute nodes");
    return 0;
}

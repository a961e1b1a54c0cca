/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/self/exe is used instead of argv[0], which links and PATH make ambiguous.
 * Called by horovodrun.c, remote_agent.c, errand_make.c, gpu_info.c and install.c. */
#include "runtime/launch/self.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int self_tree(char *ret_dir, size_t size_bytes, struct err *err)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return err_errno(err, errno, "cannot read /proc/self/exe");
    path[n] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return err_set(err, -ENOENT, "this program is not in a bin folder");
        *slash = '\0';
    }
    int len = snprintf(ret_dir, size_bytes, "%s", *path ? path : "/");
    if (len < 0 || (size_t)len >= size_bytes)
        return err_set(err, -ENAMETOOLONG, "the path of this program is too long");
    return 0;
}

void self_runtime(char *ret_dir, size_t size_bytes)
{
    char path[PATH_MAX + 16];
    ret_dir[0] = '\0';
    if (self_tree(ret_dir, size_bytes, NULL) < 0)
        return;
    (void)snprintf(path, sizeof(path), "%s/python/_hvd", ret_dir);
    if (access(path, F_OK) < 0)
        ret_dir[0] = '\0';
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Called by task.c. Instead of srun's terminal, not beside it as with horovodrun: that
 * would take a process for each task, and Slurm kills what is left of a task before it
 * has written the last lines, which are the ones that explain a failure. */
#include "spank_plugin/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fd.h"

/* Another task may be making the same folder. */
static int make_folder(const char *path, struct err *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    return err_errno(err, errno, "--hvd: output: cannot make %s", path);
}

static int open_file(const char *folder, const char *name, int *ret, struct err *err)
{
    char path[PATH_MAX + 8];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    *ret = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    if (*ret < 0)
        return err_errno(err, errno, "--hvd: output: cannot write %s", path);
    return 0;
}

int output_open(
    const char *dir, uint32_t rank, uint32_t size, int ret[2], struct err *err)
{
    char folder[PATH_MAX];
    int width = 1;
    for (uint32_t top = size ? size - 1 : 0; top >= 10; top /= 10)
        width++;
    ret[0] = ret[1] = -1;
    int n = snprintf(folder, sizeof(folder), "%s/rank.%0*u", dir, width, rank);
    if (n < 0 || (size_t)n >= sizeof(folder))
        return err_set(err, -ENAMETOOLONG, "--hvd: output: the path is too long");
    int rc = make_folder(dir, err);
    if (!rc)
        rc = make_folder(folder, err);
    if (!rc)
        rc = open_file(folder, "stdout", &ret[0], err);
    if (!rc)
        rc = open_file(folder, "stderr", &ret[1], err);
    if (rc)
        fd_close(&ret[0]);
    return rc;
}

int output_use(int fds[2], struct err *err)
{
    for (int i = 0; i < 2; i++) {
        if (dup2(fds[i], i + 1) < 0)
            return err_errno(err, errno, "--hvd: output: cannot replace descriptor %d",
                             i + 1);
        fd_close(&fds[i]);
    }
    return 0;
}

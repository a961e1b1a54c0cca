/* SPDX-License-Identifier: Apache-2.0 */
/* The kubelet mounts this file into the container, so it is written in place: a rename
 * over it is not possible. Called by agent.c, await.c, horovodrun.c and outcome.c. */
#include "runtime/launch/termination.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define KUBERNETES_PATH "/dev/termination-log"

const char *termination_path(void)
{
    const char *path = getenv("HVD_TERMINATION_LOG"), *role = getenv("K_MPI_JOB_ROLE");

    if (path)
        return path;
    return role && !strcmp(role, "launcher") && access(KUBERNETES_PATH, W_OK) == 0
               ? KUBERNETES_PATH
               : "";
}

void termination_write(const char *path, const struct report *r)
{
    CLEANUP(strbuf_release) struct strbuf message = {0};
    if (!*path)
        return;
    strbuf_init(&message, MESSAGE_MAX_BYTES + 1);
    report_message(r, &message);
    CLEANUP(fd_close)
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0
        || fd_write_full(fd, strbuf_str(&message), message.n, clock_now_ns() + NS_PER_S)
               < 0)
        log_warn("cannot write the termination message", "file=%s", path);
}

void termination_clear(const char *path)
{
    int fd = *path ? open(path, O_WRONLY | O_TRUNC | O_CLOEXEC) : -1;

    fd_close(&fd);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The file is read once a second, not watched: the kubelet swaps a symbolic link in the
 * volume's folder, other writers rename, and reading a few bytes is cheaper than an
 * inotify watch that must survive both. Since it is replaced as a whole, a reader never
 * sees a part. Called by agent_hub.c. */
#include "runtime/launch/world_file.h"

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define MAX_BYTES 256

void world_file_init(struct world_file *f, const char *path)
{
    *f = (struct world_file){.path = path, .next_ns = *path ? 0 : UINT64_MAX};
}

bool world_file_read(struct world_file *f, uint64_t now_ns, struct job_world *ret)
{
    AUTOFREE char *text = NULL;
    struct err err = ERR_INIT;
    if (now_ns < f->next_ns)
        return false;
    f->next_ns = now_ns + NS_PER_S;
    int rc = fd_read_file(f->path, MAX_BYTES, &text, NULL, &err);
    if (rc == 0)
        rc = job_world_parse(text, ret, &err);
    if (rc < 0 && !f->is_bad)
        log_warn("the world file is invalid, ignoring it until it changes",
                 "file=%s cause=\"%s\"", f->path, err.text);
    f->is_bad = rc < 0;
    return rc == 0;
}

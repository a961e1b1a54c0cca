/* SPDX-License-Identifier: Apache-2.0 */
/* The file is replaced by rename, so that a reader never sees half a record. It is not
 * synchronised to the disk: it means nothing after a crash, and rank 0 must not wait for
 * a disk that may be what hangs. Called by engine/talk.c. */
#include "runtime/observe/stall_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

void stall_file_init(struct stall_file *f, const char *dir)
{
    *f = (struct stall_file){0};
    if (!dir[0])
        return;
    if (snprintf(f->path, sizeof(f->path), "%s/%s", dir, STALL_FILE)
            >= (int)sizeof(f->path)
        || snprintf(f->tmp, sizeof(f->tmp), "%s/.%s", dir, STALL_FILE)
               >= (int)sizeof(f->tmp)) {
        f->path[0] = '\0'; /* stats_init has warned about it */
        return;
    }
    (void)unlink(f->path); /* usually there is none */
}

static int stall_file_write(const struct stall_file *f, const struct strbuf *text)
{
    CLEANUP(fd_close)
    int fd = open(f->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    int rc;

    if (fd < 0)
        return -errno;
    rc = fd_write_full(fd, text->p, text->n, clock_now_ns() + NS_PER_S);
    if (rc == 0 && rename(f->tmp, f->path) < 0)
        rc = -errno;
    if (rc < 0)
        (void)unlink(f->tmp);
    return rc;
}

void stall_file_show(struct stall_file *f, const struct stall_record *r)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct err err = ERR_INIT;
    int rc;

    if (!f->path[0])
        return;
    strbuf_init(&text, STALL_FILE_MAX_BYTES);
    stall_record_pack(r, &text);
    rc = strbuf_status(&text) < 0 ? -ENOMEM : stall_file_write(f, &text);
    if (rc == 0) {
        f->is_shown = true;
    } else if (!f->has_warned) {
        f->has_warned = true;
        (void)err_errno(&err, -rc, "cannot write %s", f->path);
        log_warn("cannot report the stall to the launcher, continuing without",
                 "cause=\"%s\"", err.text);
    }
}

void stall_file_hide(struct stall_file *f)
{
    if (f->is_shown)
        (void)unlink(f->path);
    f->is_shown = false;
}

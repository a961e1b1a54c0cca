/* SPDX-License-Identifier: Apache-2.0 */
/* Output of ranks -> queue -> socket -> the writer process -> files:
 *
 *   queue empty ............ the disk is fast enough
 *   over HIGH_BYTES ........ ranks are not read, as when the console is slow
 *   that for LIMIT_NS ...... the disk hangs: ranks are read, and what does not fit is
 *                            dropped until the socket takes data again
 *
 * Loss is what was put and is not counted as written: dropped here, failed in the
 * writer, or still on its way when the time is over. LIMIT_NS bounds each wait for the
 * disk: to open the files, while a job runs, and at its end. Called by output.c. */
#include "runtime/launch/output_files.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/contract/failure.h"
#include "runtime/launch/output_writer.h"
#include "runtime/launch/signals.h"

#define LIMIT_S    10
#define LIMIT_NS   (LIMIT_S * NS_PER_S)
#define LOOK_NS    (NS_PER_S / 10) /* for signals, while files are opened */
#define HIGH_BYTES (256u << 10)
#define MAX_BYTES  (64u << 20) /* output that was already read, or comes from hosts */
#define HEAD_BYTES offsetof(struct writer_record, bytes)
#define NO_FILE    UINT32_MAX

struct output_files {
    struct writer_files files;
    uint64_t *n_put;     /* bytes for each file */
    int fd;              /* -1: the writer has ended */
    struct strbuf queue; /* of records */
    size_t n_sent;       /* bytes of the queue */
    uint64_t moved_ns;   /* when the queue was empty or became shorter */
    uint64_t end_ns;     /* 0: more output may follow */
    bool is_hanging, is_closed, is_reported;
    uint32_t first_file; /* that lost bytes; NO_FILE: none */
    char cause[160];
};

static char *output_files_path(const struct output_files *f, uint32_t file)
{
    return f->files.paths + file * f->files.stride;
}

static size_t output_files_waiting(const struct output_files *f)
{
    return f->queue.n - f->n_sent;
}

static void
output_files_begin_loss(struct output_files *f, uint32_t file, const char *cause)
{
    if (f->first_file != NO_FILE)
        return;
    f->first_file = file;
    (void)snprintf(f->cause, sizeof(f->cause), "%s", cause);
}

/* --- start --- */

static int output_files_name(struct output_files *f,
                             const char *folder,
                             const uint32_t *ranks,
                             uint32_t size,
                             struct err *err)
{
    int width = 1;
    for (uint32_t top = size ? size - 1 : 0; top >= 10; top /= 10)
        width++;
    f->files.folder = folder;
    f->files.stride = strlen(folder) + sizeof("/rank.4294967295/stdout");
    if (f->files.stride > PATH_MAX)
        return err_set(err, -ENAMETOOLONG, "--output-filename: the path is too long");
    f->files.paths = mem_calloc(f->files.n, f->files.stride);
    f->n_put = mem_calloc(f->files.n, sizeof(*f->n_put));
    if (!f->files.paths || !f->n_put)
        return err_set(err, -ENOMEM, "out of memory for %u output files", f->files.n);
    for (uint32_t i = 0; i < f->files.n; i++)
        (void)snprintf(output_files_path(f, i), f->files.stride, "%s/rank.%0*u/%s",
                       folder, width, ranks[i / 2], i % 2 ? "stderr" : "stdout");
    return 0;
}

static int output_files_share(struct output_files *f, struct err *err)
{
    void *p = mmap(NULL, f->files.n * sizeof(*f->files.n_written),
                   PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_errno(err, errno, "no memory for %u output files", f->files.n);
    f->files.n_written = p;
    return 0;
}

static int output_files_refuse(const struct output_files *f,
                               const struct writer_note *note,
                               struct err *err)
{
    char *path = output_files_path(f, note->file);
    switch ((enum writer_note_kind)note->kind) {
    case WRITER_NO_FOLDER:
        return err_errno(err, note->why,
                         "--output-filename: cannot make the directory %s",
                         f->files.folder);
    case WRITER_NO_RANK:
        *strrchr(path, '/') = '\0';
        return err_errno(err, note->why,
                         "--output-filename: cannot make the directory %s", path);
    case WRITER_NOT_REGULAR:
        return err_set(err, -EINVAL,
                       "--output-filename: %s exists and is not a regular file", path);
    case WRITER_NO_FILE:
    case WRITER_OPENED:
    case WRITER_FAILED:
    case WRITER_CLOSED:
        break;
    }
    return err_errno(err, note->why, "--output-filename: cannot write %s", path);
}

/* Waits until the writer has opened the files. */
static int output_files_await(struct output_files *f, struct err *err)
{
    struct writer_note note;
    uint64_t now_ns = clock_now_ns(), end_ns = now_ns + LIMIT_NS;
    for (; now_ns < end_ns; now_ns = clock_now_ns()) {
        int sig = signals_pending_stop();
        if (sig)
            return err_set(err, -EINTR, "stopped by %s", signal_name(sig));
        (void)fd_wait(f->fd, POLLIN, now_ns + LOOK_NS);
        ssize_t n = recv(f->fd, &note, sizeof(note), MSG_DONTWAIT);
        if (n == 0)
            return err_set(err, -EPIPE,
                           "--output-filename: the writer of the files was "
                           "killed");
        if (n == (ssize_t)sizeof(note))
            return note.kind == WRITER_OPENED ? 0 : output_files_refuse(f, &note, err);
    }
    return err_set(err, -ETIMEDOUT,
                   "--output-filename: %s: the disk did not respond within %d s",
                   f->files.folder, LIMIT_S);
}

int output_files_new(const char *folder,
                     uint32_t n,
                     const uint32_t *ranks,
                     uint32_t size,
                     struct output_files **ret,
                     struct err *err)
{
    struct output_files *f = mem_zalloc(sizeof(*f));
    if (!f)
        return err_set(err, -ENOMEM, "out of memory for the output files");
    f->fd = -1;
    f->files.n = 2 * n;
    f->first_file = NO_FILE;
    strbuf_init(&f->queue, MAX_BYTES);
    int rc = output_files_name(f, folder, ranks, size, err);
    if (rc < 0 || (rc = output_files_share(f, err)) < 0
        || (rc = writer_start(&f->files, &f->fd, err)) < 0
        || (rc = output_files_await(f, err)) < 0) {
        output_files_free(f);
        return rc;
    }
    *ret = f;
    return 0;
}

void output_files_free(struct output_files *f)
{
    if (!f)
        return;
    fd_close(&f->fd);
    if (f->files.n_written)
        (void)munmap(f->files.n_written, f->files.n * sizeof(*f->files.n_written));
    mem_free(f->files.paths);
    mem_free(f->n_put);
    strbuf_release(&f->queue);
    mem_free(f);
}

/* --- the queue --- */

static void output_files_lose_writer(struct output_files *f)
{
    fd_close(&f->fd);
    f->n_sent = f->queue.n;
}

/* Sends records while the socket takes them. */
static void output_files_flush(struct output_files *f, uint64_t now_ns)
{
    while (f->fd >= 0 && output_files_waiting(f)) {
        const char *head = f->queue.p + f->n_sent;
        uint32_t n;
        memcpy(&n, head + offsetof(struct writer_record, n), sizeof(n));
        ssize_t sent = send(f->fd, head, HEAD_BYTES + n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS))
            break;
        if (sent < 0) {
            output_files_lose_writer(f);
            break;
        }
        f->n_sent += HEAD_BYTES + n;
        f->moved_ns = now_ns;
        f->is_hanging = false;
    }
    if (f->n_sent > f->queue.n / 2) { /* not each time: the rest is moved */
        memmove(f->queue.p, f->queue.p + f->n_sent, output_files_waiting(f));
        f->queue.n -= f->n_sent;
        f->n_sent = 0;
    }
}

void output_files_put(
    struct output_files *f, uint32_t i, int which, const char *p, size_t n)
{
    if (!f)
        return;
    uint32_t file = 2 * i + (uint32_t)which;
    f->n_put[file] += n;
    if (!output_files_waiting(f))
        f->moved_ns = clock_now_ns();
    while (n) {
        uint32_t head[2] = {file, n < WRITER_RECORD_BYTES ? (uint32_t)n
                                                          : WRITER_RECORD_BYTES};
        size_t n_before = f->queue.n;
        if (f->fd < 0) {
            output_files_begin_loss(f, file, "the writer of the files was killed");
            return;
        }
        if (f->is_hanging && output_files_waiting(f) > HIGH_BYTES) {
            output_files_begin_loss(f, file, "the disk does not respond");
            return;
        }
        strbuf_add(&f->queue, head, sizeof(head));
        strbuf_add(&f->queue, p, head[1]);
        if (strbuf_status(&f->queue) < 0) {
            f->queue.status = 0;
            f->queue.n = n_before; /* no partial record */
            output_files_begin_loss(f, file, "the disk is too slow");
            return;
        }
        p += head[1];
        n -= head[1];
    }
}

bool output_files_is_full(const struct output_files *f)
{
    return f && !f->is_hanging && output_files_waiting(f) > HIGH_BYTES;
}

struct pollfd output_files_pollfd(const struct output_files *f)
{
    struct pollfd p = {.fd = f ? f->fd : -1, .events = POLLIN};
    if (f && output_files_waiting(f))
        p.events |= POLLOUT;
    return p;
}

uint64_t output_files_due_ns(const struct output_files *f)
{
    if (f && f->end_ns)
        return f->fd >= 0 && clock_now_ns() < f->end_ns ? f->end_ns : UINT64_MAX;
    return output_files_is_full(f) ? f->moved_ns + LIMIT_NS : UINT64_MAX;
}

static void output_files_read_notes(struct output_files *f)
{
    struct writer_note note;
    ssize_t n;
    while (f->fd >= 0 && (n = recv(f->fd, &note, sizeof(note), MSG_DONTWAIT)) != -1) {
        if (n == 0)
            output_files_lose_writer(f);
        else if (note.kind == WRITER_FAILED)
            output_files_begin_loss(f, note.file, strerror(note.why));
        else if (note.kind == WRITER_CLOSED)
            f->is_closed = true;
    }
}

void output_files_serve(struct output_files *f, bool can_log)
{
    if (!f)
        return;
    uint64_t now_ns = clock_now_ns();
    output_files_read_notes(f);
    output_files_flush(f, now_ns);
    if (output_files_is_full(f) && now_ns >= f->moved_ns + LIMIT_NS)
        f->is_hanging = true;
    if (f->first_file == NO_FILE || f->is_reported || !can_log)
        return;
    f->is_reported = true;
    log_warn("output file is incomplete, the job continues", "file=\"%s\" cause=\"%s\"",
             output_files_path(f, f->first_file), f->cause);
}

bool output_files_end(struct output_files *f)
{
    if (!f || f->fd < 0)
        return true;
    if (!f->end_ns)
        f->end_ns = clock_now_ns() + LIMIT_NS;
    if (!output_files_waiting(f))
        (void)shutdown(f->fd, SHUT_WR); /* again: has no effect */
    return clock_now_ns() >= f->end_ns;
}

void output_files_report_lost(const struct output_files *f)
{
    uint64_t n_lost = 0;
    uint32_t n_files = 0, first = NO_FILE;
    if (!f)
        return;
    for (uint32_t i = 0; i < f->files.n; i++) {
        uint64_t n =
            f->n_put[i]
            - atomic_load_explicit(&f->files.n_written[i], memory_order_relaxed);
        n_lost += n;
        n_files += n > 0;
        if (n && first == NO_FILE)
            first = i;
    }
    const char *cause = *f->cause   ? f->cause
                        : f->fd < 0 ? "the writer of the files was killed"
                                    : "the disk does not respond";
    if (n_lost)
        log_error("output was lost", "bytes=%llu files=%u first=\"%s\" cause=\"%s\"",
                  (unsigned long long)n_lost, n_files, output_files_path(f, first),
                  cause);
    else if (!f->is_closed || f->first_file != NO_FILE)
        log_error("output files may be incomplete", "folder=\"%s\" cause=\"%s\"",
                  f->files.folder, cause);
}

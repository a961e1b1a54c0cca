/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and writes the files of --output-filename in a process of its own. A disk that
 * hangs holds who uses it in the kernel, where not even SIGKILL ends it, and a process
 * does not end while one of its threads hangs there. So a thread could keep horovodrun
 * from ending; this process cannot. It has no descriptor but its socket and the files.
 *
 * horovodrun may have threads when it forks. Therefore the child allocates nothing and
 * only makes async-signal-safe calls: paths and descriptors are prepared before. Called
 * by output_files.c. */
#include "runtime/launch/output_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

struct writer {
    const struct writer_files *files;
    int fd;   /* the socket */
    int *fds; /* of the files; -1: not open */
    bool has_failed;
};

static void
writer_send_note(const struct writer *w, enum writer_note_kind kind, uint32_t file)
{
    struct writer_note note = {.kind = kind, .file = file, .why = errno};
    /* fails only if horovodrun has ended */
    (void)!send(w->fd, &note, sizeof(note), MSG_NOSIGNAL);
}

static void writer_report_failure(struct writer *w, uint32_t file)
{
    if (!w->has_failed)
        writer_send_note(w, WRITER_FAILED, file);
    w->has_failed = true;
}

static bool writer_make_folder(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static bool writer_open_file(struct writer *w, uint32_t file)
{
    char *path = w->files->paths + file * w->files->stride;
    char *name = strrchr(path, '/');
    struct stat st;
    *name = '\0';
    if (!writer_make_folder(path)) {
        writer_send_note(w, WRITER_NO_RANK, file);
        return false;
    }
    *name = '/';
    /* O_NONBLOCK: a FIFO without a reader fails with ENXIO instead of waiting */
    w->fds[file] = open(
        path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (w->fds[file] < 0 && errno != ENXIO) {
        writer_send_note(w, WRITER_NO_FILE, file);
        return false;
    }
    if (w->fds[file] < 0 || fstat(w->fds[file], &st) < 0 || !S_ISREG(st.st_mode)) {
        writer_send_note(w, WRITER_NOT_REGULAR, file);
        return false;
    }
    return true;
}

static bool writer_open_files(struct writer *w)
{
    if (!writer_make_folder(w->files->folder)) {
        writer_send_note(w, WRITER_NO_FOLDER, 0);
        return false;
    }
    for (uint32_t i = 0; i < w->files->n; i++)
        if (!writer_open_file(w, i))
            return false;
    writer_send_note(w, WRITER_OPENED, 0);
    return true;
}

static void writer_write(struct writer *w, const struct writer_record *r)
{
    for (uint32_t at = 0; at < r->n;) {
        ssize_t n = write(w->fds[r->file], r->bytes + at, r->n - at);
        if (n > 0) {
            at += (uint32_t)n;
            atomic_fetch_add_explicit(&w->files->n_written[r->file], (uint64_t)n,
                                      memory_order_relaxed);
        } else if (n == 0 || errno != EINTR) {
            writer_report_failure(w, r->file); /* the next piece is tried again */
            return;
        }
    }
}

static void writer_close_files(struct writer *w)
{
    for (uint32_t i = 0; i < w->files->n; i++)
        if (close(w->fds[i]) < 0) /* NFS and quotas report a full disk late */
            writer_report_failure(w, i);
}

static void writer_main(struct writer *w)
{
    struct writer_record r;
    ssize_t n;
    if (!writer_open_files(w))
        return;
    while ((n = recv(w->fd, &r, sizeof(r), 0)) != 0) {
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0)
            writer_write(w, &r);
    }
    writer_close_files(w);
    writer_send_note(w, WRITER_CLOSED, 0);
}

int writer_start(const struct writer_files *files, int *ret_fd, struct err *err)
{
    int pair[2];
    AUTOFREE int *fds = mem_calloc(files->n, sizeof(*fds));
    if (!fds)
        return err_set(err, -ENOMEM, "out of memory for %u output files", files->n);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "a socket for the writer of the output files");
    pid_t pid = fork();
    if (pid == 0) {
        struct writer w = {.files = files, .fd = pair[1], .fds = fds};
        (void)setpgid(0, 0); /* Ctrl-C ends the ranks, whose last output is wanted */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void)prctl(PR_SET_NAME, "hvd-output", 0, 0, 0);
        (void)signal(SIGXFSZ, SIG_IGN); /* a file over ulimit -f is a failed write */
        fd_close_others(pair[1]);
        writer_main(&w);
        _exit(0);
    }
    int why = errno;
    fd_close(&pair[1]);
    if (pid < 0) {
        fd_close(&pair[0]);
        return err_errno(err, why, "cannot start the writer of the output files");
    }
    (void)fd_nonblock(pair[0], true); /* cannot fail for a socket */
    *ret_fd = pair[0];
    return 0;
}

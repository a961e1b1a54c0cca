/* SPDX-License-Identifier: Apache-2.0 */
/* Where /proc/PID/syscall cannot be read (it needs the right to trace, which a parent of
 * the same user usually has), the kernel's function and the state must do. Called by
 * hang.c. */
#include "runtime/launch/core/hang_wait.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "runtime/base/mem.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

bool hang_wait_is_lock(const struct hang_thread *t)
{
    if (t->syscall == SYS_futex || t->syscall == SYS_futex_waitv)
        return true;
    return t->syscall == HANG_UNKNOWN && strncmp(t->wchan, "futex_", 6) == 0;
}

bool hang_wait_is_timed(const struct hang_thread *t)
{
    return t->syscall == SYS_futex && t->arg[3] != 0;
}

static const struct wait_kind {
    int64_t syscall;
    bool has_file;
    const char *what; /* NULL: storage if the file is one */
} kinds[] = {
    {SYS_read, true, NULL},
    {SYS_pread64, true, NULL},
    {SYS_readv, true, NULL},
    {SYS_preadv, true, NULL},
    {SYS_write, true, NULL},
    {SYS_pwrite64, true, NULL},
    {SYS_writev, true, NULL},
    {SYS_pwritev, true, NULL},
    {SYS_fsync, true, NULL},
    {SYS_fdatasync, true, NULL},
    {SYS_close, true, NULL},
    {SYS_ftruncate, true, NULL},
    {SYS_fallocate, true, NULL},
    {SYS_getdents64, true, NULL},
    {SYS_fstat, true, NULL},
    {SYS_ioctl, true, NULL},
    {SYS_sendfile, true, NULL},
    {SYS_recvfrom, true, "data from a connection"},
    {SYS_recvmsg, true, "data from a connection"},
    {SYS_sendto, true, "the other end of a connection"},
    {SYS_sendmsg, true, "the other end of a connection"},
    {SYS_accept4, true, "a connection"},
    {SYS_connect, true, "a connection"},
    {SYS_ppoll, false, "a descriptor (poll)"},
    {SYS_pselect6, false, "a descriptor (select)"},
    {SYS_epoll_pwait, false, "a descriptor (epoll)"},
#ifdef SYS_poll
    {SYS_poll, false, "a descriptor (poll)"},
    {SYS_select, false, "a descriptor (select)"},
    {SYS_epoll_wait, false, "a descriptor (epoll)"},
    {SYS_accept, true, "a connection"},
    {SYS_pause, false, "a signal"},
#endif
    {SYS_nanosleep, false, "a timer"},
    {SYS_clock_nanosleep, false, "a timer"},
    {SYS_wait4, false, "a child process"},
    {SYS_waitid, false, "a child process"},
    {SYS_rt_sigtimedwait, false, "a signal"},
    {SYS_rt_sigsuspend, false, "a signal"},
};

static const struct wait_kind *kind_find(int64_t syscall)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].syscall == syscall)
            return &kinds[i];
    return NULL;
}

bool hang_wait_has_file(int64_t syscall)
{
    const struct wait_kind *k = kind_find(syscall);

    return (k && k->has_file) || syscall == SYS_flock || syscall == SYS_fcntl;
}

/* flock(), and lockf() or fcntl(F_SETLKW), also of open files. */
static bool wait_is_file_lock(const struct hang_thread *t)
{
    if (t->syscall == SYS_flock)
        return true;
    if (t->syscall == SYS_fcntl)
        return t->arg[1] == F_SETLKW || t->arg[1] == 38; /* F_OFD_SETLKW */
    return t->syscall == HANG_UNKNOWN
           && (strcmp(t->wchan, "locks_lock_inode_wait") == 0
               || strncmp(t->wchan, "fcntl_", 6) == 0
               || strncmp(t->wchan, "flock_", 6) == 0);
}

static bool text_begins_with(const char *text, const char *const *begins, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(text, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static bool wait_is_pipe(const struct hang_thread *t)
{
    static const char *const functions[] = {"pipe_", "anon_pipe_", "wait_for_partner",
                                            "fifo_"};

    return text_begins_with(t->wchan, functions, ARRAY_LEN(functions))
           || strncmp(t->file, "pipe:", 5) == 0;
}

/* Functions of file systems and block devices, which wait in state D or, so that they
 * can be killed, in S. */
static bool wait_is_storage(const struct hang_thread *t)
{
    static const char *const functions[] = {
        "request_wait_answer",
        "fuse_",
        "__fuse_",
        "rpc_",
        "nfs",
        "folio_wait",
        "__folio_lock",
        "wait_on_page",
        "jbd2_",
        "ext4_",
        "xfs_",
        "btrfs_",
        "io_schedule",
        "ceph_",
        "blk_",
        "ll_",
        "percpu_rwsem_wait",
        "cl_",
        "wait_on_buffer",
        "__wait_on_buffer",
        "iomap_",
        "submit_bio_wait",
        "rq_qos_wait",
        "smb2_",
        "cifs_",
        "p9_",
        "lookup_slow",
        "wbt_",
        "__lock_page",
        "do_get_write_access",
    };

    return text_begins_with(t->wchan, functions, ARRAY_LEN(functions));
}

static bool file_is_on_disk(const char *file)
{
    static const char *const kernel[] = {"/dev/", "/proc/", "/sys/"};

    for (size_t i = 0; i < ARRAY_LEN(kernel); i++)
        if (strncmp(file, kernel[i], strlen(kernel[i])) == 0)
            return false;
    return file[0] == '/';
}

static void wait_put_details(const struct hang_thread *t, struct strbuf *out)
{
    if (t->file[0])
        strbuf_printf(out, ", %s", t->file);
    if (t->wchan[0])
        strbuf_printf(out, " (%s in the kernel)", t->wchan);
}

static enum live_cause
wait_of_unknown_kind(const struct hang_thread *t, const char *who, struct strbuf *out)
{
    if (t->state == 'D') {
        strbuf_printf(out, "%s waits in the kernel and cannot be interrupted", who);
        wait_put_details(t, out);
        return file_is_on_disk(t->file) || !t->file[0] ? LIVE_CAUSE_STORAGE
                                                       : LIVE_CAUSE_SLEEPING;
    }
    strbuf_printf(out, "%s waits in the kernel", who);
    wait_put_details(t, out);
    return t->wchan[0] || t->syscall >= 0 ? LIVE_CAUSE_SLEEPING : LIVE_CAUSE_UNKNOWN;
}

enum live_cause
hang_wait_describe(const struct hang_thread *t, const char *who, struct strbuf *out)
{
    const struct wait_kind *k = kind_find(t->syscall);

    if (wait_is_file_lock(t)) {
        strbuf_printf(out, "%s waits for the lock of a file", who);
        wait_put_details(t, out);
        return LIVE_CAUSE_LOCK;
    }
    if (hang_wait_is_lock(t)) {
        strbuf_printf(out, "%s waits for a lock held elsewhere", who);
        return LIVE_CAUSE_LOCK;
    }
    if (wait_is_pipe(t)) {
        strbuf_printf(out, "%s waits for the other end of a pipe", who);
        wait_put_details(t, out);
        return LIVE_CAUSE_SLEEPING;
    }
    if (wait_is_storage(t) || (k && !k->what && file_is_on_disk(t->file))) {
        strbuf_printf(out, "%s waits for a file system or a block device", who);
        wait_put_details(t, out);
        return LIVE_CAUSE_STORAGE;
    }
    if (k && k->what) {
        strbuf_printf(out, "%s waits for %s", who, k->what);
        if (t->file[0])
            strbuf_printf(out, ", %s", t->file);
        return LIVE_CAUSE_SLEEPING;
    }
    return wait_of_unknown_kind(t, who, out);
}

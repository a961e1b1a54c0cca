/* SPDX-License-Identifier: Apache-2.0 */
/* Files are read with one read() each, which is what the kernel keeps consistent. Only
 * the links of descriptors are read and never the files behind them, which may be on a
 * file system that hangs. Called by examine.c. */
#include "runtime/launch/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/core/hang_wait.h"

enum { TEXT_BYTES = 4096 };

/* "" if it cannot be read. thread 0: of the process. */
static void
proc_read(uint32_t pid, uint32_t thread, const char *name, char *ret, size_t size_bytes)
{
    char path[80];

    if (thread > 0)
        (void)snprintf(path, sizeof(path), "/proc/%u/task/%u/%s", pid, thread, name);
    else
        (void)snprintf(path, sizeof(path), "/proc/%u/%s", pid, name);
    ret[0] = '\0';
    CLEANUP(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, ret, size_bytes - 1);
    ret[n > 0 ? n : 0] = '\0';
}

bool process_read_stat(uint32_t pid, struct proc_stat *ret)
{
    char text[TEXT_BYTES];

    proc_read(pid, 0, "stat", text, sizeof(text));
    return proc_text_stat(text, ret);
}

static void thread_read_file(uint32_t pid, struct hang_thread *t)
{
    char path[64];
    ssize_t n;

    if (t->syscall < 0 || !hang_wait_has_file(t->syscall))
        return;
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", pid, (int)t->arg[0]);
    n = readlink(path, t->file, sizeof(t->file) - 1);
    t->file[n > 0 ? n : 0] = '\0';
    for (char *p = t->file; *p; p++) /* its name may have any bytes */
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

static bool thread_sample(uint32_t pid, uint32_t tid, struct hang_thread *t)
{
    char text[TEXT_BYTES];
    struct proc_stat stat;

    *t = (struct hang_thread){.tid = tid};
    proc_read(pid, tid, "stat", text, sizeof(text));
    if (!proc_text_stat(text, &stat))
        return false;
    t->state = stat.state;
    t->cpu_ticks = stat.cpu_ticks;
    t->n_major_faults = stat.n_major_faults;
    proc_read(pid, tid, "status", text, sizeof(text));
    t->n_sleeps = proc_text_status(text, "voluntary_ctxt_switches", 10);
    proc_read(pid, tid, "syscall", text, sizeof(text));
    proc_text_syscall(text, t);
    proc_read(pid, tid, "wchan", t->wchan, sizeof(t->wchan));
    if (strcmp(t->wchan, "0") == 0)
        t->wchan[0] = '\0';
    thread_read_file(pid, t);
    return true;
}

/* The threads of a process but the main one. */
static DIR *threads_open(uint32_t pid)
{
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/%u/task", pid);
    return opendir(path);
}

static uint32_t threads_next(DIR *d, uint32_t pid)
{
    const struct dirent *e;

    while (d && (e = readdir(d)) != NULL) {
        uint32_t tid = (uint32_t)strtoul(e->d_name, NULL, 10);

        if (tid > 0 && tid != pid)
            return tid;
    }
    return 0;
}

static void threads_close(DIR *d)
{
    if (d)
        (void)closedir(d);
}

void process_sample(uint32_t pid, struct hang_sample *ret)
{
    char text[TEXT_BYTES];
    struct proc_stat stat;
    uint32_t tid;
    DIR *d;

    *ret = (struct hang_sample){.at_ns = clock_now_ns()};
    proc_read(pid, 0, "stat", text, sizeof(text));
    ret->is_gone = !proc_text_stat(text, &stat);
    if (ret->is_gone)
        return;
    ret->start_ticks = stat.start_ticks;
    ret->n_major_faults = stat.n_major_faults;
    ret->cpu_ticks = stat.cpu_ticks;
    proc_read(pid, 0, "status", text, sizeof(text));
    ret->swap_kib = proc_text_status(text, "VmSwap", 10);
    ret->tracer_pid = (uint32_t)proc_text_status(text, "TracerPid", 10);
    ret->n_threads = (uint32_t)proc_text_status(text, "Threads", 10);
    if (thread_sample(pid, pid, &ret->v[0]))
        ret->n = 1;
    d = threads_open(pid);
    while (ret->n > 0 && ret->n < HANG_THREADS_MAX && (tid = threads_next(d, pid)) > 0)
        if (thread_sample(pid, tid, &ret->v[ret->n]))
            ret->n++;
    threads_close(d);
}

bool process_is_descendant(uint32_t pid)
{
    uint32_t self = (uint32_t)getpid();
    struct proc_stat stat;
    char text[TEXT_BYTES];

    for (int i = 0; i < 100 && pid > 1 && pid != self; i++) {
        proc_read(pid, 0, "stat", text, sizeof(text));
        if (!proc_text_stat(text, &stat))
            return false;
        pid = stat.parent;
    }
    return pid == self;
}

bool process_catches(uint32_t pid, int sig)
{
    char text[TEXT_BYTES];

    proc_read(pid, 0, "status", text, sizeof(text));
    return proc_text_has_signal(text, "SigCgt", sig);
}

bool process_blocks(uint32_t pid, int sig)
{
    char text[TEXT_BYTES];

    proc_read(pid, pid, "status", text, sizeof(text));
    return proc_text_has_signal(text, "SigBlk", sig);
}

uint32_t process_find_thread(uint32_t pid, int sig)
{
    char text[TEXT_BYTES], state[TEXT_BYTES];
    DIR *d = threads_open(pid);
    uint32_t tid, found = 0;
    struct proc_stat stat;

    while (found == 0 && (tid = threads_next(d, pid)) > 0) {
        proc_read(pid, tid, "status", text, sizeof(text));
        proc_read(pid, tid, "stat", state, sizeof(state));
        if (*text && proc_text_stat(state, &stat) && stat.state != 'D'
            && !proc_text_has_signal(text, "SigBlk", sig))
            found = tid;
    }
    threads_close(d);
    return found;
}

bool process_variable(uint32_t pid, const char *name, char *ret, size_t size_bytes)
{
    AUTOFREE char *text = NULL;
    size_t n, length = strlen(name);
    char path[32];

    (void)snprintf(path, sizeof(path), "/proc/%u/environ", pid);
    if (fd_read_file(path, 4u << 20, &text, &n, NULL) < 0)
        return false;
    for (const char *p = text; p < text + n; p += strlen(p) + 1)
        if (strncmp(p, name, length) == 0 && p[length] == '=')
            return snprintf(ret, size_bytes, "%s", p + length + 1) < (int)size_bytes;
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The handler writes the native stack of the main thread to stacks.PID:
 *
 *   native
 *   0x7f1234567890      one return address a line, the innermost one first; the
 *   ...                 launcher finds the names (launch/symbols.c)
 *   end
 *
 * In Python, faulthandler's handler runs before it (python/ext/life.c): it writes the
 * stacks of all Python threads without the interpreter's lock. A handler has a frame that
 * returns to the trampoline of libc, so the frames down to the last trampoline are
 * handlers and are left out.
 *
 * Signal safety. Only write() and backtrace() are called. backtrace() has allocated and
 * loaded what it needs when it is called by stacks_watch. From glibc 2.35 on it takes no
 * lock; before, it takes the lock of the list of libraries, which other threads hold only
 * for moments and this one may take again. musl has no backtrace: there are no addresses.
 * A thread that is not the main one writes "other": it answers for a main thread that the
 * kernel does not let run.
 *
 * A forked child has the handler, which does nothing there. Called by runtime.c. The one
 * mutable global is `stacks`, which the handler reads after stacks_watch has filled it
 * in. */
#include "runtime/api/stacks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/contract/stacks_file.h"

enum { FRAMES_MAX = 96, LINE_BYTES = 20 };

typedef int (*backtrace_fn)(void **frames, int n);

static struct {
    pid_t pid; /* 0: nothing is handled */
    int fd;
    backtrace_fn backtrace; /* NULL: libc has none */
} stacks;

static size_t line_format(char *to, uintptr_t address)
{
    static const char digits[] = "0123456789abcdef";
    size_t n = 2;

    to[0] = '0';
    to[1] = 'x';
    for (int shift = (int)sizeof(address) * 8 - 4; shift >= 0; shift -= 4)
        to[n++] = digits[address >> shift & 0xf];
    to[n++] = '\n';
    return n;
}

static void stacks_write(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(stacks.fd, p, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return; /* the launcher reads what is there */
        p += k;
        n -= (size_t)k;
    }
}

static void stacks_write_native(const void *trampoline)
{
    char text[FRAMES_MAX * LINE_BYTES];
    void *frames[FRAMES_MAX];
    int n = stacks.backtrace ? stacks.backtrace(frames, FRAMES_MAX) : 0, first = 0;
    size_t at = 0;

    for (int i = n - 1; i >= 0 && first == 0; i--)
        if (frames[i] == trampoline)
            first = i + 1;
    for (int i = first; i < n; i++)
        at += line_format(text + at, (uintptr_t)frames[i]);
    stacks_write(STACKS_NATIVE "\n", strlen(STACKS_NATIVE) + 1);
    stacks_write(text, at);
}

static void stacks_on(int sig)
{
    int kept_errno = errno;

    (void)sig;
    if (getpid() != stacks.pid)
        return;
    if (syscall(SYS_gettid) == stacks.pid)
        stacks_write_native(__builtin_return_address(0));
    else
        stacks_write(STACKS_OTHER "\n", strlen(STACKS_OTHER) + 1);
    stacks_write(STACKS_END "\n", strlen(STACKS_END) + 1);
    errno = kept_errno;
}

static backtrace_fn backtrace_find(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "backtrace"), *frame[1];
    backtrace_fn fn = NULL;

    _Static_assert(sizeof(fn) == sizeof(symbol), "POSIX");
    memcpy(&fn, &symbol, sizeof(fn));
    if (fn)
        (void)fn(frame, 1); /* it loads libgcc_s now */
    return fn;
}

void stacks_watch(const char *dir)
{
    struct sigaction action = {.sa_handler = stacks_on,
                               .sa_flags = SA_RESTART | SA_ONSTACK};
    struct sigaction old;
    char path[1200];

    if (stacks.pid != 0 || !dir[0] || sigaction(STACKS_SIGNAL, NULL, &old) < 0
        || old.sa_handler != SIG_DFL
        || snprintf(path, sizeof(path), "%s/%s%d", dir, STACKS_FILE, (int)getpid())
               >= (int)sizeof(path))
        return;
    stacks.fd = open(
        path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (stacks.fd < 0)
        return;
    stacks.backtrace = backtrace_find();
    stacks.pid = getpid();
    if (sigaction(STACKS_SIGNAL, &action, NULL) < 0) {
        stacks.pid = 0;
        fd_close(&stacks.fd);
        (void)unlink(path);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD that pauses threads at random before and after the calls where
 * threads and processes meet, so that schedules that are rare on an idle machine occur
 * often. A test that fails under it has a race, or a time bound that a busy machine
 * misses.
 *
 *     JITTER_SEED=n      the same seed gives the same pauses to the n-th thread of the
 *                        n-th process; unset or 0: no pauses
 *     JITTER_ODDS=n      one call of n pauses (50)
 *     JITTER_MAX_US=n    the longest pause (3000)
 *     JITTER_TRACE=1     one line per pause on stderr
 *
 * Pauses become rarer as a thread accumulates them (half as often after half a second), so
 * that a program with millions of calls still ends.
 *
 * What is wrapped: pthread_mutex_lock, the wait, signal and broadcast of conditions,
 * pthread_create (in both threads), poll, epoll_wait, and send, recv, read, write and kin
 * on everything that is neither a file nor a terminal. The generator is thread-local, and
 * nothing here allocates or locks: the wrappers are as async-signal-safe as what they wrap. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Read once, by the constructor; n_threads and the numbers of fork() change later. */
static struct {
    uint64_t seed; /* of this process: 0 until the constructor has run */
    uint64_t odds, max_us;
    bool is_traced;
    _Atomic uint64_t n_threads; /* relaxed: only a number */
    _Atomic uint64_t n_forks;
} jitter;

static __thread struct {
    uint64_t of_seed, random, slept_us;
} mine __attribute__((tls_model("initial-exec")));

static uint64_t number_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t random_next(void)
{
    if (mine.of_seed != jitter.seed) { /* a new thread, or a new process */
        mine.of_seed = jitter.seed;
        mine.slept_us = 0;
        mine.random = number_mix(
            jitter.seed
            + atomic_fetch_add_explicit(&jitter.n_threads, 1, memory_order_relaxed));
    }
    mine.random += 0x9e3779b97f4a7c15u;
    return number_mix(mine.random);
}

static void pause_maybe(const char *call)
{
    if (!jitter.seed)
        return;
    uint64_t odds = jitter.odds + jitter.odds * mine.slept_us / 500000;
    if (random_next() % odds)
        return;
    uint64_t us = 1 + random_next() % jitter.max_us;
    int saved = errno;
    mine.slept_us += us;
    if (jitter.is_traced) {
        char line[80];
        int n = snprintf(line, sizeof(line), "jitter: %s %u us\n", call, (unsigned)us);
        (void)syscall(SYS_write, 2, line, (size_t)n);
    }
    struct timespec t = {.tv_nsec = (long)us * 1000};
    (void)syscall(SYS_nanosleep, &t, NULL);
    errno = saved;
}

static bool fd_is_shared(int fd)
{
    struct stat st;
    int saved = errno;
    bool is = fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode);

    errno = saved;
    return is;
}

/* A fork is numbered in the parent; the child's seed follows from that number. */
static void fork_prepare(void)
{
    atomic_fetch_add_explicit(&jitter.n_forks, 1, memory_order_relaxed);
}

static void fork_child(void)
{
    if (!jitter.seed)
        return;
    jitter.seed = number_mix(jitter.seed + atomic_load(&jitter.n_forks)) | 1;
    atomic_store(&jitter.n_threads, 0);
    atomic_store(&jitter.n_forks, 0);
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    uint64_t n = s ? strtoull(s, NULL, 10) : 0;

    return n ? n : otherwise;
}

__attribute__((constructor(101))) static void jitter_init(void)
{
    jitter.odds = env_number("JITTER_ODDS", 50);
    jitter.max_us = env_number("JITTER_MAX_US", 3000);
    jitter.is_traced = env_number("JITTER_TRACE", 0) != 0;
    (void)pthread_atfork(fork_prepare, NULL, fork_child);
    uint64_t seed = env_number("JITTER_SEED", 0);
    jitter.seed = seed ? number_mix(seed) | 1 : 0;
}

/* The function that a wrapper hides. Two threads may both look it up, with one result. */
static void *wrapped_find(const char *name)
{
    void *f = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); /* the conditions of today */

    if (!f)
        f = dlsym(RTLD_NEXT, name);
    if (!f)
        abort();
    return f;
}

#define WRAPPED(name)                                                                  \
    static __typeof__(name) *_Atomic next_;                                            \
    __typeof__(name) *next = atomic_load_explicit(&next_, memory_order_relaxed);       \
    if (!next) {                                                                       \
        next = (__typeof__(name) *)wrapped_find(#name);                                \
        atomic_store_explicit(&next_, next, memory_order_relaxed);                     \
    }

/* CALL(name, (parameters), (arguments)): pauses before */
#define CALL(name, parameters, arguments)                                              \
    EXPORT int name parameters                                                         \
    {                                                                                  \
        WRAPPED(name)                                                                  \
        pause_maybe(#name);                                                            \
        return next arguments;                                                         \
    }

/* WAIT(...): pauses after, so that what it reports is old */
#define WAIT(name, parameters, arguments)                                              \
    EXPORT int name parameters                                                         \
    {                                                                                  \
        WRAPPED(name)                                                                  \
        pause_maybe(#name);                                                            \
        int rc = next arguments;                                                       \
        pause_maybe(#name);                                                            \
        return rc;                                                                     \
    }

/* TRANSFER(...): of bytes, by the descriptor fd */
#define TRANSFER(name, parameters, arguments)                                          \
    EXPORT ssize_t name parameters                                                     \
    {                                                                                  \
        WRAPPED(name)                                                                  \
        if (jitter.seed && fd_is_shared(fd))                                           \
            pause_maybe(#name);                                                        \
        return next arguments;                                                         \
    }

/* What calls become where the compiler checks the size of buffers (_FORTIFY_SOURCE). */
ssize_t __read_chk(int fd, void *p, size_t n, size_t size);
ssize_t __recv_chk(int fd, void *p, size_t n, size_t size, int flags);
int __poll_chk(struct pollfd *p, nfds_t n, int ms, size_t size);

CALL(pthread_mutex_lock, (pthread_mutex_t * m), (m))
CALL(pthread_cond_signal, (pthread_cond_t * c), (c))
CALL(pthread_cond_broadcast, (pthread_cond_t * c), (c))
WAIT(pthread_cond_wait, (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
WAIT(pthread_cond_timedwait,
     (pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *t),
     (c, m, t))
WAIT(poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
WAIT(__poll_chk, (struct pollfd * p, nfds_t n, int ms, size_t size), (p, n, ms, size))
WAIT(epoll_wait, (int fd, struct epoll_event *e, int n, int ms), (fd, e, n, ms))
TRANSFER(send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))
TRANSFER(sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
TRANSFER(recv, (int fd, void *p, size_t n, int flags), (fd, p, n, flags))
TRANSFER(__recv_chk,
         (int fd, void *p, size_t n, size_t size, int flags),
         (fd, p, n, size, flags))
TRANSFER(recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
TRANSFER(read, (int fd, void *p, size_t n), (fd, p, n))
TRANSFER(__read_chk, (int fd, void *p, size_t n, size_t size), (fd, p, n, size))
TRANSFER(readv, (int fd, const struct iovec *v, int n), (fd, v, n))
TRANSFER(write, (int fd, const void *p, size_t n), (fd, p, n))
TRANSFER(writev, (int fd, const struct iovec *v, int n), (fd, v, n))

struct thread_start {
    void *(*main)(void *);
    void *arg;
};

static void *thread_main(void *arg)
{
    struct thread_start start = *(struct thread_start *)arg;

    free(arg);
    pause_maybe("thread start");
    return start.main(start.arg);
}

EXPORT int pthread_create(pthread_t *t,
                          const pthread_attr_t *attr,
                          void *(*main)(void *),
                          void *arg)
{
    WRAPPED(pthread_create)
    struct thread_start *start = malloc(sizeof(*start));

    if (!start)
        return EAGAIN;
    *start = (struct thread_start){main, arg};
    int rc = next(t, attr, thread_main, start);
    if (rc != 0)
        free(start);
    pause_maybe("pthread_create");
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a communicator of the NCCL fake as threads, each with a stream of its own:
 * a queue and a thread, so that this stands on the fake alone. What ends a test runs in
 * a child process. Include after cmocka.h. */
#ifndef TESTS_UNIT_NCCL_MEMBERS_H
#define TESTS_UNIT_NCCL_MEMBERS_H

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/backend/nccl/nccl_dl.h"
#include "runtime/base/clock.h"

enum { MAX = 4, DEADLINE_S = 30 };

static struct { /* the library */
#define FIELD(name, symbol, least, args) int(*name) args;
#define TEXT(name, symbol, least, args)  const char *(*name)args;
    NCCL_SYMBOLS(FIELD) NCCL_TEXTS(TEXT) void (*faults)(const char *text);
    void (*launch_by)(
        int (*launch)(cu_stream s, int (*fn)(void *), const void *, size_t));
} nccl;

/* --- streams --- */

struct entry {
    struct entry *next;
    int (*fn)(void *arg);
    _Alignas(16) char arg[];
};

struct cu_stream_s {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *head, **tail;
    bool is_busy, ends;
};

static void *stream_main(void *arg)
{
    cu_stream s = arg;

    pthread_mutex_lock(&s->lock);
    while (s->head || !s->ends) {
        struct entry *e = s->head;

        if (!e) {
            (void)pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        if (!(s->head = e->next))
            s->tail = &s->head;
        s->is_busy = true;
        pthread_mutex_unlock(&s->lock);
        (void)e->fn(e->arg);
        free(e);
        pthread_mutex_lock(&s->lock);
        s->is_busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int
stream_launch(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes)
{
    struct entry *e = malloc(sizeof(*e) + bytes);

    *e = (struct entry){NULL, fn};
    memcpy(e->arg, arg, bytes);
    pthread_mutex_lock(&s->lock);
    *s->tail = e;
    s->tail = &e->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static void stream_init(cu_stream s)
{
    *s = (struct cu_stream_s){.tail = &s->head};
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, stream_main, s) != 0)
        abort();
}

static void stream_sync(cu_stream s)
{
    pthread_mutex_lock(&s->lock);
    while (s->head || s->is_busy)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void stream_end(cu_stream s)
{
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
}

/* --- members --- */

struct member {
    int rank, n;
    struct nccl_id id;
    bool blocks;
    nccl_comm c;
    struct cu_stream_s s;
    pthread_barrier_t *meet;
    void (*body)(struct member *m);
    char why[256]; /* "": well */
    pthread_t thread;
};

/* In a member: cmocka's own asserts are the main thread's. */
#define WANT(m, what)                                                                  \
    do {                                                                               \
        if (!(what)) {                                                                 \
            (void)snprintf((m)->why, sizeof((m)->why), "rank %d, line %d: %s",         \
                           (m)->rank, __LINE__, #what);                                \
            (void)fprintf(stderr, "%s\n", (m)->why);                                   \
            abort();                                                                   \
        }                                                                              \
    } while (0)

/* As the launcher does: polls until it is finished. */
static int comm_wait(nccl_comm c, int rc)
{
    uint64_t end = clock_now_ns() + DEADLINE_S * NS_PER_S;

    while (rc == NCCL_IN_PROGRESS && clock_now_ns() < end) {
        (void)usleep(50);
        if (nccl.async_error(c, &rc) != NCCL_OK)
            abort();
    }
    return rc;
}

/* A split or shrink, which returns ncclSuccess even if it has only started. */
static int comm_wait_birth(nccl_comm parent, int rc)
{
    return comm_wait(parent, rc == NCCL_OK ? NCCL_IN_PROGRESS : rc);
}

static struct nccl_config config_of(bool blocks)
{
    struct nccl_config c = {
        .size = sizeof(c),
        .magic = 0xcafebeef,
        .version = 22705,
        .blocking = blocks,
        .cga_cluster = INT_MIN,
        .min_ctas = INT_MIN,
        .max_ctas = INT_MIN,
        .split_share = INT_MIN,
        .traffic_class = INT_MIN,
        .collnet = INT_MIN,
        .cta_policy = INT_MIN,
        .shrink_share = INT_MIN,
        .nvls_ctas = INT_MIN,
    };
    return c;
}

static int member_init(struct member *m)
{
    struct nccl_config config = config_of(m->blocks);

    return nccl.init_config(&m->c, m->n, m->id, m->rank, &config);
}

static int member_start(struct member *m)
{
    const int rc = member_init(m);

    return comm_wait(m->c, rc);
}

static void *member_main(void *arg)
{
    struct member *m = arg;

    m->body(m);
    return NULL;
}

static void members_run(int n, void (*body)(struct member *m))
{
    struct member m[MAX];
    pthread_barrier_t meet;
    struct nccl_id id;

    (void)pthread_barrier_init(&meet, NULL, (unsigned)n);
    if (nccl.unique_id(&id) != NCCL_OK)
        abort();
    for (int i = 0; i < n; i++) {
        m[i] =
            (struct member){.rank = i, .n = n, .id = id, .meet = &meet, .body = body};
        stream_init(&m[i].s);
        if (pthread_create(&m[i].thread, NULL, member_main, &m[i]) != 0)
            abort();
    }
    for (int i = 0; i < n; i++) {
        (void)pthread_join(m[i].thread, NULL);
        stream_end(&m[i].s);
    }
    (void)pthread_barrier_destroy(&meet);
}

/* The body must end the process, with this in its last words. */
static void run_dies(int n, void (*body)(struct member *m), const char *words)
{
    char text[2048];
    int fds[2], status;
    size_t at = 0;
    ssize_t k;

    assert_int_equal(pipe(fds), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(fds[1], 2);
        (void)signal(SIGABRT, SIG_DFL);
        members_run(n, body);
        _exit(0);
    }
    (void)close(fds[1]);
    while (at < sizeof(text) - 1
           && ((k = read(fds[0], text + at, sizeof(text) - 1 - at)) > 0
               || (k < 0 && errno == EINTR)))
        at += k > 0 ? (size_t)k : 0;
    text[at] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || !strstr(text, words))
        print_error("status %x, wanted \"%s\", said: %s\n", status, words, text);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, words));
}

static int load_nccl(void)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    if (!lib) {
        (void)fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
#define LOOK(name, symbol, least, args) *(void **)&nccl.name = dlsym(lib, #symbol);
    NCCL_SYMBOLS(LOOK)
    NCCL_TEXTS(LOOK)
    *(void **)&nccl.faults = dlsym(lib, "fake_nccl_faults");
    *(void **)&nccl.launch_by = dlsym(lib, "fake_nccl_launch_by");
    nccl.launch_by(stream_launch);
    return 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a communicator of the NCCL fake as threads, each with a stream of the fake
 * driver. What ends a test runs in a child process. */
#ifndef TESTS_UNIT_NCCL_MEMBERS_H
#define TESTS_UNIT_NCCL_MEMBERS_H

#include <limits.h>
#include <pthread.h>

#include "runtime/backend/nccl/nccl_dl.h"
#include "tests/unit/gpu_fake.h"

enum { MAX = 4, DEADLINE_S = 30 };

static struct { /* the library */
#define FIELD(name, symbol, least, args) int(*name) args;
#define TEXT(name, symbol, least, args)  const char *(*name)args;
    NCCL_SYMBOLS(FIELD) NCCL_TEXTS(TEXT) void (*faults)(const char *text);
} nccl;

/* --- members --- */

struct member {
    int rank, n;
    struct nccl_id id;
    bool blocks;
    nccl_comm c;
    cu_stream s;
    int32_t *x; /* 8 zeros on the device */
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

static void stream_sync(cu_stream s)
{
    while (fake.cu.stream_query(s) == CU_NOT_READY)
        (void)usleep(100);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    cu_ctx ctx;
    cu_ptr p;

    WANT(m, fake.cu.ctx_retain(&ctx, 0) == CU_OK && fake.cu.ctx_push(ctx) == CU_OK);
    WANT(m, fake.cu.stream_new(&m->s, CU_STREAM_NON_BLOCKING, 0) == CU_OK);
    WANT(m, fake.cu.mem_alloc(&p, 8 * sizeof(*m->x)) == CU_OK);
    m->x = memset((void *)(uintptr_t)p, 0, 8 * sizeof(*m->x));
    m->body(m);
    return NULL;
}

static void members_run(int n, void (*body)(struct member *m))
{
    struct member m[MAX];
    pthread_barrier_t meet;
    struct nccl_id id;

    fake_begin();
    if (fake.cu.init(0) != CU_OK)
        abort();
    (void)pthread_barrier_init(&meet, NULL, (unsigned)n);
    if (nccl.unique_id(&id) != NCCL_OK)
        abort();
    for (int i = 0; i < n; i++) {
        m[i] =
            (struct member){.rank = i, .n = n, .id = id, .meet = &meet, .body = body};
        if (pthread_create(&m[i].thread, NULL, member_main, &m[i]) != 0)
            abort();
    }
    for (int i = 0; i < n; i++)
        (void)pthread_join(m[i].thread, NULL);
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
    return 0;
}

#endif

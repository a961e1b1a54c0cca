/* SPDX-License-Identifier: Apache-2.0 */
/* A world of real processes for the hvd_*_test.c programs: the parent serves the
 * rendezvous and writes the token, each child is one rank that finds its place in the
 * environment as everywhere else. Children report through shared memory, since cmocka
 * asserts belong to the parent; each has an alarm, so that nothing can hang for longer
 * than CHILD_LIMIT_S. */
#ifndef TESTS_UNIT_HVD_WORLD_H
#define TESTS_UNIT_HVD_WORLD_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/token.h"
#include "hvd.h"
#include "runtime/rendezvous/rendezvous.h"
#include "tests/unit/unit.h"

enum { WORLD_MAX = 8, CHILD_LIMIT_S = 120 };

struct rank_report {
    _Atomic uint32_t stage; /* futex */
    int status;             /* of the operation that is tested */
    uint64_t failed_ns;     /* when it failed */
    char text[512];         /* its sentence */
    char check[512];        /* what a CHECK found wrong, "" if nothing */
};
struct shared {
    struct rank_report r[WORLD_MAX];
    _Atomic uint32_t go; /* futex; the parent's */
};
static struct shared *shared;

typedef void (*rank_fn)(int rank, int size);

struct proc_world {
    int size;
    pid_t pid[WORLD_MAX];
    struct rdv_server *server;
    struct token token;
    char token_file[64];
};

static int own_rank(void) /* in a child */
{
    const char *v = getenv("HOROVOD_RANK");

    return v ? atoi(v) : 0;
}

__attribute__((format(printf, 3, 4), noreturn)) static void
check_failed(int line, const char *what, const char *fmt, ...)
{
    char *buf = shared->r[own_rank()].check;
    int at = snprintf(buf, 512, "line %d: %.200s; ", line, what);
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(buf + at, (size_t)(512 - at), fmt, ap);
    va_end(ap);
    _exit(77);
}
#define CHECK(cond, ...)                                                               \
    do {                                                                               \
        if (!(cond))                                                                   \
            check_failed(__LINE__, #cond, __VA_ARGS__);                                \
    } while (0)
#define CHECK_OK(call) CHECK((call) == HVD_OK, "%s", hvd_last_error())

/* The call fails with this status, and its error text has these words or is this
 * sentence. KEPT: of an operation whose text wait_release() has kept. */
#define CHECK_ERROR(call, status, text, fits)                                          \
    do {                                                                               \
        int r_ = (call);                                                               \
        const char *text_ = (text);                                                    \
        CHECK(r_ == (status) && (fits), "%d %s", r_, text_);                           \
    } while (0)
#define KEPT_TEXT (shared->r[own_rank()].text)
#define CHECK_FAILS(call, status, words)                                               \
    CHECK_ERROR(call, status, hvd_last_error(), strstr(text_, words))
#define CHECK_FAILS_AS(call, status, sentence)                                         \
    CHECK_ERROR(call, status, hvd_last_error(), strcmp(text_, sentence) == 0)
#define CHECK_KEPT(call, status, words)                                                \
    CHECK_ERROR(call, status, KEPT_TEXT, strstr(text_, words))
#define CHECK_KEPT_AS(call, status, sentence)                                          \
    CHECK_ERROR(call, status, KEPT_TEXT, strcmp(text_, sentence) == 0)

static void
futex_wait_until(_Atomic uint32_t *f, uint32_t at_least, uint64_t deadline_ns)
{
    uint32_t v;

    while ((v = atomic_load(f)) < at_least) {
        struct timespec ts = {.tv_nsec = 100000000};

        if (clock_now_ns() > deadline_ns)
            return;
        (void)syscall(SYS_futex, f, FUTEX_WAIT, v, &ts, NULL, 0);
    }
}

static void futex_set(_Atomic uint32_t *f, uint32_t v)
{
    atomic_store(f, v);
    (void)syscall(SYS_futex, f, FUTEX_WAKE, 1000, NULL, NULL, 0);
}

/* Child: "I am at this stage". Parent: wait until rank r is there. */
static inline void stage_set(int rank, uint32_t v)
{
    futex_set(&shared->r[rank].stage, v);
}
static inline void stage_wait(int rank, uint32_t v)
{
    uint64_t deadline = clock_now_ns() + CHILD_LIMIT_S * NS_PER_S;

    for (;;) {
        uint64_t now = clock_now_ns();

        futex_wait_until(&shared->r[rank].stage, v, now + 100 * NS_PER_MS);
        if (atomic_load(&shared->r[rank].stage) >= v)
            return;
        for (int r = 0; r < WORLD_MAX; r++)
            if (shared->r[r].check[0] != 0) /* it is not coming */
                fail_msg("rank %d: %s", r, shared->r[r].check);
        if (now > deadline)
            fail_msg("rank %d is not at stage %u", rank, v);
    }
}
static inline void go_set(uint32_t v)
{
    futex_set(&shared->go, v);
}
static inline void go_wait(uint32_t v)
{
    futex_wait_until(&shared->go, v, clock_now_ns() + CHILD_LIMIT_S * NS_PER_S);
}

static void set_place(const struct proc_world *w, uint16_t port, int rank)
{
    static struct env_pair env[CONTRACT_MAX_ENV]; /* too large for a stack */
    struct contract c;
    struct err err = ERR_INIT;
    size_t n;

    contract_init(&c);
    c.launcher = LAUNCHER_RINGMASTER;
    c.place = (struct place){.rank = (uint32_t)rank,
                             .size = (uint32_t)w->size,
                             .local_rank = (uint32_t)rank,
                             .local_size = (uint32_t)w->size,
                             .cross_rank = 0,
                             .cross_size = 1};
    (void)snprintf(c.hostname, sizeof(c.hostname), "testhost");
    (void)snprintf(c.rdv_host, sizeof(c.rdv_host), "127.0.0.1");
    c.rdv_port = port;
    (void)snprintf(c.job_id, sizeof(c.job_id), "unit/test");
    c.token_source = TOKEN_FILE;
    (void)snprintf(c.token_file, sizeof(c.token_file), "%s", w->token_file);
    if (contract_render(&c, env, &n, &err) < 0) {
        (void)fprintf(stderr, "contract_render: %s\n", err.text);
        _exit(78);
    }
    for (size_t i = 0; i < n; i++)
        (void)setenv(env[i].name, env[i].value, 1);
}

static inline void world_start(struct proc_world *w, int size, rank_fn fn)
{
    struct err err = ERR_INIT;
    struct auth_id id = {&w->token, "unit/test", 0};
    uint16_t port;
    int fd;

    memset(w, 0, sizeof(*w));
    w->size = size;
    if (shared)
        (void)munmap(shared, sizeof(*shared));
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    assert_int_equal(token_random(&w->token, &err), 0);
    (void)snprintf(w->token_file, sizeof(w->token_file), "/tmp/hvd-unit-%d.token",
                   (int)getpid());
    if (token_write_file(w->token_file, &w->token, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(tcp_listen("127.0.0.1", 0, &fd, &port, &err), 0);
    (void)fflush(stdout);
    (void)fflush(stderr);
    for (int r = 0; r < size; r++) {
        w->pid[r] = fork();
        assert_true(w->pid[r] >= 0);
        if (w->pid[r] == 0) {
            (void)alarm(CHILD_LIMIT_S);
            /* alarm() does not end a stopped rank of a test that failed. */
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            set_place(w, port, r);
            fn(r, size);
            _exit(0);
        }
    }
    /* After the forks: a child of a process with threads is none that TSan can follow.
     */
    if (rdv_server_start(fd, &id, (uint32_t)size, NULL, &w->server, &err) < 0)
        fail_msg("%s", err.text);
}

/* Waits for all; killed[r] of a rank that was to die by a signal, -1 for none. */
static inline void world_end(struct proc_world *w, int dead_rank)
{
    int bad = 0;

    for (int r = 0; r < w->size; r++) {
        int status = 0;

        (void)waitpid(w->pid[r], &status, 0);
        if (r == dead_rank)
            continue;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            print_error("rank %d: status 0x%x%s%s: %s\n", r, status,
                        WIFSIGNALED(status) ? ", signal " : "",
                        WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "",
                        shared->r[r].check);
            bad++;
        }
    }
    rdv_server_stop(w->server);
    (void)unlink(w->token_file);
    assert_int_equal(bad, 0);
}

static inline uint64_t after_ns(uint64_t t0, uint64_t t)
{
    return t > t0 ? t - t0 : 0;
}

/* Likewise after this rank was killed: all other ranks got that sentence. Nanoseconds
 * from t0 to the last one's failed_ns. */
static inline uint64_t world_end_killed(struct proc_world *w, int who, uint64_t t0)
{
    uint64_t last_ns = 0;
    char want[128];

    world_end(w, who);
    (void)snprintf(want, sizeof(want),
                   "rank %d (host testhost, pid %d) was lost: connection closed", who,
                   (int)w->pid[who]);
    for (int r = 0; r < w->size; r++) {
        if (r == who)
            continue;
        assert_int_equal(shared->r[r].status, HVD_ABORTED);
        assert_string_equal(shared->r[r].text, want);
        uint64_t ns = after_ns(t0, shared->r[r].failed_ns);
        last_ns = ns > last_ns ? ns : last_ns;
    }
    return last_ns;
}

static inline void world_run(int size, rank_fn fn)
{
    struct proc_world w;

    world_start(&w, size, fn);
    world_end(&w, -1);
}

/* Waits until the ranks of the mask are at stage 1, then lets all ranks continue. */
static inline void world_run_go(int size, rank_fn fn, unsigned mask)
{
    struct proc_world w;

    world_start(&w, size, fn);
    for (int r = 0; r < size; r++)
        if (mask >> r & 1)
            stage_wait(r, 1);
    go_set(1);
    world_end(&w, -1);
}

/* Kills one rank once the ranks of the mask are at this stage, then lets the other ranks
 * continue. Returns when. */
static inline uint64_t world_kill(struct proc_world *w,
                                  int size,
                                  rank_fn fn,
                                  int victim,
                                  unsigned mask,
                                  uint32_t stage)
{
    uint64_t t0;

    world_start(w, size, fn);
    for (int r = 0; r < size; r++)
        if (mask >> r & 1)
            stage_wait(r, stage);
    t0 = clock_now_ns();
    assert_int_equal(kill(w->pid[victim], SIGKILL), 0);
    go_set(1);
    return t0;
}

/* Kills one rank once all ranks are at stage 1. */
static inline void world_run_kill(int size, rank_fn fn, int victim)
{
    struct proc_world w;

    (void)world_kill(&w, size, fn, victim, (1u << size) - 1, 1);
    world_end(&w, victim);
}

/* What each rank of a world does. */
#define RANK_BODY(f)                                                                   \
    static void f(__attribute__((unused)) int rank, __attribute__((unused)) int size)

/* Likewise, between init and shutdown. */
#define INIT_BODY(f)                                                                   \
    RANK_BODY(f##_inside);                                                             \
    RANK_BODY(f)                                                                       \
    {                                                                                  \
        CHECK_OK(hvd_init(NULL));                                                      \
        f##_inside(rank, size);                                                        \
        CHECK_OK(hvd_shutdown());                                                      \
    }                                                                                  \
    RANK_BODY(f##_inside)

/* A test that runs one world; the body that follows is what each rank does:
 *
 *     WORLD_TEST(a_sum_is_right, 3) { CHECK_OK(hvd_init(NULL)); ... }
 *     INIT_TEST(a_sum_is_right, 3) { CHECK_OK(sum_now("x", v, 1)); ... } */
#define BODY_TEST_BY(BODY, name, run, size, ...)                                       \
    RANK_BODY(name##_rank);                                                            \
    UNIT_TEST(name)                                                                    \
    {                                                                                  \
        run(size, name##_rank __VA_ARGS__);                                            \
    }                                                                                  \
    BODY(name##_rank)
#define WORLD_TEST_BY(...)              BODY_TEST_BY(RANK_BODY, __VA_ARGS__)
#define WORLD_TEST(name, size)          WORLD_TEST_BY(name, world_run, size, )
#define INIT_TEST(name, size)           BODY_TEST_BY(INIT_BODY, name, world_run, size, )
#define WORLD_GO_TEST(name, size, mask) WORLD_TEST_BY(name, world_run_go, size, , mask)
#define INIT_GO_TEST(name, size, mask)                                                 \
    BODY_TEST_BY(INIT_BODY, name, world_run_go, size, , mask)
#define INIT_KILL_TEST(name, size, victim)                                             \
    BODY_TEST_BY(INIT_BODY, name, world_run_kill, size, , victim)

/* --- short forms for ranks --- */

static inline struct hvd_tensor
tensor_1d(const char *name, int dtype, const void *data, void *out, const int64_t *n)
{
    return (struct hvd_tensor){.size_bytes = sizeof(struct hvd_tensor),
                               .name = name,
                               .data = data,
                               .output = out,
                               .dtype = dtype,
                               .ndim = 1,
                               .shape = n,
                               .device = -1};
}

static inline int
sum_in_async(int set, const char *name, float *v, int64_t n, hvd_handle *h)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, v, &n);

    return hvd_allreduce_async(&t, HVD_SUM, 1, 1, set, h);
}

static inline int sum_async(const char *name, float *v, int64_t n, hvd_handle *h)
{
    return sum_in_async(0, name, v, n, h);
}

static inline struct hvd_stats stats_now(void)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};

    CHECK_OK(hvd_stats(&s));
    return s;
}

static inline void keep_error(void)
{
    (void)snprintf(shared->r[own_rank()].text, 512, "%s", hvd_last_error());
}

/* Keeps for the parent how an operation ended, and its sentence, unless that is kept
 * already. */
static inline void end_report(int status)
{
    struct rank_report *r = &shared->r[own_rank()];

    if (r->text[0] == 0)
        keep_error();
    r->status = status;
    r->failed_ns = clock_now_ns();
}

static inline int wait_release(hvd_handle h)
{
    int r = hvd_wait(h, -1);

    if (r == HVD_OK)
        return hvd_release(h);
    keep_error(); /* the release has one of its own */
    (void)hvd_release(h);
    return r;
}

/* What a submission returned, and its end: once the world has failed, a submission is
 * refused with the sentence of the failure. */
static inline int wait_release_if(int r, const hvd_handle *h)
{
    if (r == HVD_OK)
        return wait_release(*h);
    keep_error();
    return r;
}

static inline int sum_in(int set, const char *name, float *v, int64_t n)
{
    hvd_handle h;

    return wait_release_if(sum_in_async(set, name, v, n, &h), &h);
}

static inline int sum_now(const char *name, float *v, int64_t n)
{
    return sum_in(0, name, v, n);
}

/* Sums of one element, at once: submitted in this order, waited for in the same or the
 * other one. */
struct set_sum {
    int set;
    const char *name;
    float *v;
};

static inline int
sum_two(const struct set_sum *a, const struct set_sum *b, bool waits_for_b)
{
    hvd_handle h[2];
    int rc = sum_in_async(a->set, a->name, a->v, 1, &h[0]);

    if (rc == HVD_OK)
        rc = sum_in_async(b->set, b->name, b->v, 1, &h[1]);
    if (rc == HVD_OK)
        rc = wait_release(h[waits_for_b]);
    else
        return rc;
    if (rc == HVD_OK)
        return wait_release(h[!waits_for_b]);
    (void)hvd_release(h[!waits_for_b]);
    return rc;
}

/* A file without a name for what this process logs from here on. */
static inline int catch_stderr(void)
{
    char path[] = "/tmp/hvd-unit-XXXXXX";
    int fd = mkstemp(path);

    CHECK(fd >= 0 && unlink(path) == 0 && dup2(fd, STDERR_FILENO) >= 0, "%d", errno);
    return fd;
}

static inline int barrier_now(const char *name)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = name, .device = -1};
    hvd_handle h;

    return wait_release_if(hvd_barrier_async(&t, 0, &h), &h);
}

#endif

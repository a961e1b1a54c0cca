/* SPDX-License-Identifier: Apache-2.0 */
/* A world of forked ranks for the tests of the cpu backend: describe, exchange,
 * connect, then a body per rank. The exchange uses shared anonymous memory, so that these
 * tests depend on the backend alone. Every wait has a deadline; a rank that fails leaves a
 * message for the parent. */
#ifndef TESTS_UNIT_CPU_WORLD_H
#define TESTS_UNIT_CPU_WORLD_H

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "runtime/backend/cpu/peers.h"
#include "tests/unit/cpu_batch.h"
#include "tests/unit/unit.h"

enum { WORLD_MAX = 18, WORLD_ROUNDS = 3, WORLD_BLOB = 1024 };

struct world_mem { /* shared by parent and ranks */
    atomic_uint n_in[WORLD_ROUNDS];
    uint32_t len[WORLD_ROUNDS][WORLD_MAX];
    uint8_t blob[WORLD_ROUNDS][WORLD_MAX][WORLD_BLOB];
    char said[WORLD_MAX][640];
    atomic_ulong when[WORLD_MAX]; /* free for bodies: times in ns */
    atomic_uint flag;             /* free for bodies */
    atomic_uint arrived;          /* for world_meet() */
};

struct rank {
    struct world_mem *m;
    uint32_t rank, size;
    unsigned round;
    struct backend *b;
    struct backend_env env;
    struct token token;
    const uint16_t *via; /* as in struct world */
    const void *arg;
};

struct world {
    uint32_t size;
    const char *hosts;    /* HVD_HOST_ID by rank, a letter each; NULL: none */
    uid_t uid[WORLD_MAX]; /* not 0: effective user of the rank */
    bool tcp;             /* HVD_TRANSPORT=tcp */
    enum data_check checks[WORLD_MAX]; /* by rank */
    uint32_t stranger;           /* 1 + the rank with another job token; 0: none */
    int (*body)(struct rank *r); /* 0, or the reason is in said */
    /* In a process of its own, which is killed when the ranks have ended. */
    void (*beside)(struct world_mem *m, const struct world *w);
    uint16_t via[WORLD_MAX]; /* not 0: the port by which other ranks reach this one */
    int (*interrupted)(void *arg, struct err *err);
    int connect_fails; /* 1: connect() must fail, its sentence is kept in said */
    uint32_t timeout_s;
    uint64_t connect_ms;      /* deadline of connect; 0: 20 s */
    uint64_t peer_timeout_ms; /* 0: 30 s */
    bool is_quiet;            /* failures of ranks are not printed */
    const void *arg;
    char said[WORLD_MAX][640]; /* out */
    uint64_t when[WORLD_MAX];  /* out */
    int status[WORLD_MAX];     /* out: as of waitpid */
};

#define SAY(r, ...)                                                                    \
    (snprintf((r)->m->said[(r)->rank], sizeof(r)->m->said[0], __VA_ARGS__), 1)

static int world_exchange(void *arg,
                          const void *blob,
                          uint32_t n,
                          uint8_t ***ret_blobs,
                          uint32_t **ret_sizes,
                          struct err *err)
{
    struct rank *r = arg;
    unsigned k = r->round++;
    if (k >= WORLD_ROUNDS || n > WORLD_BLOB)
        return err_set(err, -E2BIG, "round %u, %u bytes", k, n);
    memcpy(r->m->blob[k][r->rank], blob, n);
    r->m->len[k][r->rank] = n;
    atomic_fetch_add(&r->m->n_in[k], 1);
    while (atomic_load(&r->m->n_in[k]) < r->size) {
        if (clock_now_ns() > r->env.deadline_ns)
            return err_set(err, -ETIMEDOUT, "round %u", k);
        sched_yield();
    }
    uint8_t **all = mem_calloc(1, r->size * (sizeof(*all) + sizeof(uint32_t)));
    if (!all)
        return err_set(err, -ENOMEM, "no memory");
    uint32_t *sizes = (uint32_t *)(all + r->size);
    for (uint32_t i = 0; i < r->size; i++) {
        all[i] = r->m->blob[k][i];
        sizes[i] = r->m->len[k][i];
    }
    *ret_blobs = all;
    *ret_sizes = sizes;
    return 0;
}

/* A barrier of n ranks without the backend. */
static inline void world_meet(struct rank *r, uint32_t n)
{
    atomic_fetch_add(&r->m->arrived, 1);
    while (atomic_load(&r->m->arrived) < n && clock_now_ns() < r->env.deadline_ns)
        sched_yield();
}

static int rank_connect(struct rank *r, struct err *err)
{
    void *blob;
    uint32_t n, *sizes;
    int rc = backend_cpu.describe(&r->env, &r->b, &blob, &n, err);
    if (rc < 0)
        return rc;
    uint8_t **all;
    rc = world_exchange(r, blob, n, &all, &sizes, err);
    mem_free(blob);
    if (rc < 0)
        return rc;
    struct peer known[WORLD_MAX]; /* the blobs are the other ranks', too */
    for (uint32_t i = 0; i < r->size; i++)
        if (r->via[i] != 0) {
            memcpy(&known[i], all[i], sizeof(known[i]));
            known[i].port = r->via[i];
            all[i] = (uint8_t *)&known[i];
        }
    rc = backend_cpu.connect(r->b, all, sizes, err);
    mem_free(all);
    return rc;
}

static int rank_main(struct world_mem *m, const struct world *w, uint32_t me)
{
    struct rank r = {.m = m, .rank = me, .size = w->size, .via = w->via, .arg = w->arg};
    struct err err = ERR_INIT;
    if (w->uid[me] != 0 && seteuid(w->uid[me]) != 0)
        return SAY(&r, "seteuid");
    memset(r.token.key, w->stranger == me + 1 ? 2 : 1, sizeof(r.token.key));
    const char host[2] = {w->hosts ? w->hosts[me] : 'h', '\0'};
    setenv("HOROVOD_HOSTNAME", host, 1);
    if (w->hosts)
        setenv("HVD_HOST_ID", host, 1);
    if (w->tcp)
        setenv("HVD_TRANSPORT", "tcp", 1);
    uint64_t ms = w->connect_ms ? w->connect_ms : 20000;
    r.env = (struct backend_env){
        .rank = me,
        .size = w->size,
        .id = {.token = &r.token, .job_id = "test/job/1", .generation = 0},
        .local_addr = "127.0.0.1",
        .data_check = w->checks[me],
        .deadline_ns = clock_now_ns() + ms * NS_PER_MS,
        .peer_timeout_ns =
            w->peer_timeout_ms ? w->peer_timeout_ms * NS_PER_MS : 30 * NS_PER_S,
        .exchange = world_exchange,
        .interrupted = w->interrupted,
        .arg = &r,
    };
    int rc = rank_connect(&r, &err);
    if (rc < 0 || w->connect_fails) {
        (void)SAY(&r, "%s", rc < 0 ? err.text : "connected");
        backend_cpu.close(r.b);
        return w->connect_fails && rc < 0 ? 0 : 1;
    }
    r.env.deadline_ns = clock_now_ns() + w->timeout_s * NS_PER_S;
    rc = w->body(&r);
    backend_cpu.close(r.b);
    return rc;
}

/* 0 when every rank's body returned 0; else the messages are printed. A rank that was
 * killed by SIGKILL (by the test) does not count as failed. */
static int world_run(struct world *w)
{
    struct world_mem *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[WORLD_MAX] = {0};
    int failed = 0;
    if (m == MAP_FAILED)
        return 1;
    fflush(NULL);
    pid_t beside = w->beside ? fork() : 0;
    if (w->beside && beside == 0) {
        w->beside(m, w);
        _exit(0);
    }
    for (uint32_t i = 0; i < w->size; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            alarm(w->timeout_s + 30); /* a hang ends as SIGALRM, which fails the test */
            _exit(rank_main(m, w, i));
        }
    }
    for (uint32_t i = 0; i < w->size; i++) {
        if (waitpid(pid[i], &w->status[i], 0) != pid[i])
            failed = 1;
        int st = w->status[i];
        memcpy(w->said[i], m->said[i], sizeof(w->said[i]));
        w->when[i] = atomic_load(&m->when[i]);
        if ((WIFEXITED(st) && WEXITSTATUS(st) == 0)
            || (WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL))
            continue;
        failed = 1;
        if (!w->is_quiet)
            fprintf(stderr, "# rank %u: status 0x%x: %s\n", i, (unsigned)st,
                    m->said[i]);
    }
    if (w->beside) {
        (void)kill(beside, SIGKILL); /* it may have ended */
        (void)waitpid(beside, NULL, 0);
    }
    munmap(m, sizeof(*m));
    return failed;
}

/* Fails the test unless every rank's body returned 0. */
static inline void
world_check(struct world *w, uint32_t size, bool tcp, const char *hosts)
{
    w->size = size;
    w->tcp = tcp;
    w->hosts = hosts;
    if (world_run(w) != 0)
        fail_msg("world of %u, %s", size, hosts ? hosts : tcp ? "TCP" : "one host");
}

static inline void
world_expect(int (*body)(struct rank *r), uint32_t size, bool tcp, const char *hosts)
{
    struct world w = {.body = body, .timeout_s = 100};
    world_check(&w, size, tcp, hosts);
}

/* On every topology: shared memory, TCP, and both mixed. */
static inline void worlds_run(int (*body)(struct rank *r))
{
    static const uint32_t n[] = {1, 2, 3, 4, 5, 7};
    static const char *const mixtures[] = {"abb", "aabb", "abaab", "abacbaa"};
    for (size_t i = 0; i < ARRAY_LEN(n); i++)
        world_expect(body, n[i], false, NULL);
    for (size_t i = 1; i < ARRAY_LEN(n); i++) {
        struct world w = {.body = body, .timeout_s = 100};
        for (uint32_t j = 0; n[i] % 2 == 1 && j < n[i]; j++)
            w.checks[j] = DATA_CRC; /* three and more, so that members forward, too */
        world_check(&w, n[i], true, NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(mixtures); i++)
        world_expect(body, (uint32_t)strlen(mixtures[i]), false, mixtures[i]);
}

/* A thread of a rank that sets the flag and then waits. when[0]: the abort. */
static inline void *abort_soon(void *arg)
{
    struct rank *r = arg;
    while (atomic_load(&r->m->flag) == 0)
        sched_yield();
    usleep(30000); /* not to synchronise: the wait reaches its sleeping part */
    atomic_store(&r->m->when[0], clock_now_ns());
    backend_cpu.abort(r->b);
    backend_cpu.abort(r->b);
    return NULL;
}

/* The last rank is lost: all others report says, or what begins so. False: one of them
 * needed a second or more. */
static inline bool world_names_last(struct world *w, const char *says)
{
    const uint32_t lost = w->size - 1;
    bool is_in_time = true;
    assert_int_equal(world_run(w), 0);
    for (uint32_t i = 0; i < lost; i++) {
        if (strncmp(w->said[i], says, strlen(says)) != 0)
            fail_msg("rank %u says: %s", i, w->said[i]);
        is_in_time = is_in_time && w->when[i] - w->when[lost] < NS_PER_S;
    }
    return is_in_time;
}

static inline int run_batch(struct rank *r, struct batch *b, struct err *err)
{
    return batch_run(r->b, b, err);
}

#endif

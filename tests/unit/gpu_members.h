/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as threads, each with a GPU of the fake driver and a communicator of the fake
 * NCCL, which meet over the cpu backend. A case runs in a child process of its own,
 * because versions are read once per process. */
#ifndef TESTS_UNIT_GPU_MEMBERS_H
#define TESTS_UNIT_GPU_MEMBERS_H

#include "runtime/backend/nccl/comm.h"
#include "tests/unit/cpu_party.h"
#include "tests/unit/gpu_fake.h"
#include "tests/unit/timed.h"

struct bench;

struct gpu_case {
    const char *version;     /* of NCCL; NULL: 2.27.5 */
    const char *faults;      /* of the fakes; NULL: none */
    const char *env, *value; /* a variable; NULL: none */
    uint32_t n;
    uint64_t init_timeout_ns; /* 0: as it is */
    uint32_t n_streams;       /* 0: 1 */
    bool is_deterministic, uses_graphs, aborts, registers;
    uint64_t direct_bytes;   /* 0: 8 MiB */
    const char *late_faults; /* of gpu_matrix_test, when members meet; NULL: none */
    uint64_t codec_bytes;    /* 0: no codecs */
    uint32_t mask;           /* of gpu_matrix_test: which batches are run */
    const struct gpu_hooks *hooks; /* NULL: batches are sums of float32 */
    int (*body)(struct device *g, struct backend *meeting, struct party *p, char *said);
    int (*bench)(struct bench *w, char *said); /* of gpu_matrix_test's body */
    /* Instead of body: over the row of device_ops, with the world's communicator. */
    int (*row_body)(struct device *g, struct backend *b, struct party *p, char *said);
    int (*interrupted)(void *arg, struct err *err); /* of row_body's communicator */
    party_body_fn member; /* instead of body, if it opens the device itself */
};

static const struct device_ops *const row = &hvd_cuda_device_ops;

#define MEMBER_BODY(f)                                                                 \
    static int f(struct device *g, struct backend *meeting, struct party *p, char *said)
#define ROW_BODY(f)                                                                    \
    static int f(struct device *g, struct backend *b, struct party *p, char *said)

static const struct gpu_case *the_case; /* of this process */
static uint32_t case_ranks[MAX_MEMBERS] = {0, 1, 2, 3, 4, 5};
static uint32_t case_hosts[MAX_MEMBERS];
static const char *const case_names[MAX_MEMBERS] = {"a", "a", "a", "a", "a", "a"};
static atomic_uint case_meets; /* bodies' barrier */

#define SAYS(...) (snprintf(said, SAID_BYTES, __VA_ARGS__), 1)
/* In a body: ends it with what did not hold. */
#define HOLDS(what)                                                                    \
    do {                                                                               \
        if (!(what))                                                                   \
            return SAYS("rank %u, line %d: %s: %s", g->config.rank, __LINE__, #what,   \
                        err.text);                                                     \
    } while (0)
/* Likewise, where a machine that was busy for a second is no reason to fail: run_case
 * tries the case again. The other members' barriers are open then. */
enum { TOO_SLOW = 3 };
static atomic_bool case_was_slow;
#define SLOW(...)                                                                      \
    (atomic_store(&case_was_slow, true), atomic_fetch_add(&case_meets, 1000),          \
     SAYS(__VA_ARGS__))
#define SOON(what)                                                                     \
    do {                                                                               \
        if (!(what))                                                                   \
            return SLOW("rank %u, line %d: not soon: %s", g->config.rank, __LINE__,    \
                        #what);                                                        \
    } while (0)

/* In a body: waits until it is so, at most to the party's deadline. */
#define COMES(what)                                                                    \
    do {                                                                               \
        while (!(what)) {                                                              \
            HOLDS(clock_now_ns() < p->deadline_ns);                                    \
            (void)usleep(1000);                                                        \
        }                                                                              \
    } while (0)

/* All members, the k-th time (from 1). */
static inline void meet_all(struct party *p, unsigned k)
{
    atomic_fetch_add(&case_meets, 1);
    wait_for(&case_meets, k * p->size, p->deadline_ns);
}

struct sum_call {
    struct comm *c;
    struct gpu_job *job;
};

static int call_sums(void *arg, nccl_comm nc, struct err *err)
{
    struct sum_call *s = arg;
    int rc = 0;

    for (size_t i = 0; i < s->job->batch.n_items && !rc; i++) {
        const struct batch_item *it = &s->job->batch.items[i];

        rc = COMM_TRY(s->c, nc, err, all_reduce, "ncclAllReduce", it->in, it->out,
                      it->count, NCCL_F32, NCCL_SUM, nc, s->job->stream);
    }
    return rc;
}

/* Batches are sums of float32, one call a tensor. */
static int case_run(struct device *g, struct gpu_job *job, struct err *err)
{
    struct sum_call s = {job->comm, job};

    if (job->kind != JOB_BATCH)
        return comm_run(g, job, err);
    if (job->comm->n_nc == 0)
        return 0;
    return comm_run_group(job->comm, job->stream_index, call_sums, &s, err);
}

static const struct gpu_hooks case_hooks = {
    .needs_nccl = true, .run = case_run, .look = comms_look, .abort = comms_abort};

static inline struct backend_env env_of(const struct device *g)
{
    return (struct backend_env){.rank = g->config.rank, .size = g->config.size};
}

/* The world's communicator. */
static inline int case_open(struct device *g,
                            struct backend *meeting,
                            struct backend **ret,
                            struct err *err)
{
    const struct backend_env env = env_of(g);

    return comm_open(g, meeting, &env, case_ranks, ret, err);
}

/* Of rank `me` of size ranks. */
static inline struct device_config case_config(uint32_t me, uint32_t size)
{
    return (struct device_config){
        .rank = me,
        .size = size,
        .local_rank = me,
        .host_of = case_hosts,
        .hosts = case_names,
        .n_streams = the_case->n_streams ? the_case->n_streams : 1,
        .direct_bytes = the_case->direct_bytes ? the_case->direct_bytes : 8u << 20,
        .fusion_bytes = 8u << 20,
        .is_deterministic = the_case->is_deterministic,
        .uses_graphs = the_case->uses_graphs,
        .registers = the_case->registers,
        .codec_bytes = the_case->codec_bytes,
        .init_timeout_ns = the_case->init_timeout_ns,
        .pool_bytes = 1u << 20,
    };
}

static int case_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const struct device_config config = case_config(me, p->size);
    struct err err = ERR_INIT;
    struct device *g;

    if (gpu_open(&config, (int)me, the_case->hooks ? the_case->hooks : &case_hooks,
                 NULL, &g, &err))
        return SAYS("open: %s", err.text);
    int rc = the_case->body(g, meeting, p, said);
    if (rc)
        gpu_abort(g);
    (void)launcher_drain(&g->launcher, clock_now_ns() + NS_PER_S);
    gpu_abort(g);
    if (!gpu_quiesce(g, clock_now_ns() + 5 * NS_PER_S))
        return rc ? rc : SAYS("rank %u: the device is not quiet", me);
    struct comm *kept = g->comms; /* for a world that does not come */
    if (kept && atomic_load(&kept->state) == COMM_PARKED)
        (void)g->nccl->abort(TAKE(kept->nc[0]));
    comms_free(g, clock_now_ns() + 5 * NS_PER_S);
    if (gpu_close(g))
        return rc ? rc : SAYS("rank %u: the device did not close", me);
    return rc;
}

/* The device of the row, and the world's communicator. */
static inline int row_open(struct backend *meeting,
                           uint32_t me,
                           struct device **ret_g,
                           struct backend **ret,
                           struct err *err)
{
    const struct device_config config = case_config(me, the_case->n);
    const struct backend_env env = {
        .rank = me, .size = the_case->n, .interrupted = the_case->interrupted};
    int rc = row->open(&config, (int)me, ret_g, err);

    return rc ? rc : row->comm_open(*ret_g, meeting, &env, case_ranks, ret, err);
}

static int
case_row_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    struct err err = ERR_INIT;
    struct device *g;
    struct backend *b;

    if (row_open(meeting, me, &g, &b, &err))
        return SAYS("open: %s", err.text);
    int rc = the_case->row_body(g, b, p, said);
    if (rc)
        row->abort(g);
    else
        b->ops->close(b);
    return row->close(g, NULL) && !rc ? SAYS("close") : rc;
}

/* --- memory --- */

/* Device memory that holds n floats of value v; NULL: failed. */
static inline float *floats_new(struct device *g, size_t n, float v, struct err *err)
{
    struct gpu_scope scope;
    cu_ptr p = 0;
    AUTOFREE float *host = mem_calloc(n, sizeof(*host));

    for (size_t i = 0; i < n && host; i++)
        host[i] = v;
    if (!host || gpu_enter(g, &scope, err))
        return NULL;
    int rc = memory_take(g->memory, n * sizeof(*host), g->streams[0], &p, err);
    if (rc == 0)
        rc = CUDA_TRY(g->cu, copy_up, err, p, host, n * sizeof(*host), g->streams[0]);
    gpu_leave(&scope);
    return rc ? NULL : (void *)(uintptr_t)p;
}

/* Are all n of them v, once our streams are idle? Frees them. */
static inline bool
floats_are(struct device *g, float *p, size_t n, float v, struct err *err)
{
    struct gpu_scope scope;
    AUTOFREE float *host = mem_calloc(n, sizeof(*host));
    bool are = host && gpu_enter(g, &scope, err) == 0;

    if (!are)
        return false;
    are = CUDA_TRY(g->cu, copy_down, err, host, (cu_ptr)(uintptr_t)p, n * sizeof(*host),
                   g->streams[0])
          == 0;
    for (size_t i = 0; i < n && are; i++) {
        are = host[i] == v;
        if (!are)
            (void)err_set(err, -EIO, "[%zu] is %g, not %g", i, (double)host[i],
                          (double)v);
    }
    gpu_leave(&scope);
    gpu_free(p, g->streams[0]);
    return are;
}

/* --- batches --- */

/* Sums of float32. */
static inline struct batch batch_of(struct batch_item *items, size_t n)
{
    return (struct batch){.coll = COLL_ALLREDUCE,
                          .place = PLACE_CUDA,
                          .dtype = DT_F32,
                          .op = OP_SUM,
                          .prescale = 1,
                          .postscale = 1,
                          .items = items,
                          .n_items = n};
}

static inline int
post_sum(struct backend *b, float *p, size_t n, uint64_t *ret_ticket, struct err *err)
{
    struct batch_item item = {.in = p, .out = p, .count = n};
    const struct batch batch = batch_of(&item, 1);

    return b->ops->post(b, &batch, ret_ticket, err);
}

/* 0: done, -ETIMEDOUT, or the result of poll. */
static inline int
wait_ticket(struct backend *b, uint64_t ticket, uint64_t s, struct err *err)
{
    const uint64_t deadline_ns = clock_now_ns() + s * NS_PER_S;
    uint64_t done = 0;
    int rc;

    while ((rc = b->ops->poll(b, &done, err)) == 0 && done < ticket) {
        if (clock_now_ns() > deadline_ns)
            return err_set(err, -ETIMEDOUT, "ticket %llu is not done",
                           (unsigned long long)ticket);
        (void)usleep(100);
    }
    return rc;
}

/* --- a gate --- */

static _Atomic bool gate_is_open; /* of this process */

static inline int gate_wait(void *arg)
{
    while (!atomic_load(&gate_is_open))
        (void)usleep(100);
    return 0;
}

/* What is behind it in our first stream waits until gate_is_open. */
static inline int gate_close(struct device *g, struct err *err)
{
    int (*enqueue)(cu_stream s, int (*fn)(void *arg), const void *arg, size_t bytes);
    struct gpu_scope scope;

    *(void **)&enqueue = fake_symbol("hvd_fake_enqueue");
    if (gpu_enter(g, &scope, err))
        return -EIO;
    int rc = enqueue(g->streams[0], gate_wait, "", 1);
    gpu_leave(&scope);
    return rc;
}

/* The NCCL calls of a rank so far, a line each; the caller frees. */
static inline char *nccl_log_of(uint32_t rank)
{
    void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    char *(*log_of)(int rank);

    *(void **)&log_of = dlsym(lib, "fake_nccl_log");
    return log_of((int)rank);
}

/* --- a case --- */

static int case_main(const void *c)
{
    the_case = c;
    struct party p = {.size = the_case->n,
                      .body = the_case->member     ? the_case->member
                              : the_case->row_body ? case_row_body
                                                   : case_body};
    pthread_t t[MAX_MEMBERS];
    struct seat s[MAX_MEMBERS];
    int failed = 0;

    (void)setenv("HVD_FAKE_GPUS", "6", 1);
    (void)setenv("HVD_FAKE_HANG_S", "30", 1);
    (void)setenv("HVD_FAKE_NCCL", the_case->version ? the_case->version : "22705", 1);
    (void)setenv("HVD_FAKE_FAULTS", the_case->faults ? the_case->faults : "", 1);
    if (the_case->env)
        (void)setenv(the_case->env, the_case->value, 1);
    if (the_case->n_streams > 1) /* else a rank sets it while another looks */
        (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
    p.deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    for (uint32_t i = 0; i < p.size; i++) {
        s[i] = (struct seat){.p = &p, .me = i};
        if (pthread_create(&t[i], NULL, seat_run, &s[i]) != 0)
            return 1;
    }
    for (uint32_t i = 0; i < p.size; i++)
        pthread_join(t[i], NULL);
    for (uint32_t i = 0; i < p.size; i++)
        if (p.said[i][0]) {
            (void)fprintf(stderr, "# %s\n", p.said[i]);
            failed = 1;
        }
    return failed && atomic_load(&case_was_slow) ? TOO_SLOW : failed;
}

static void run_case(const struct gpu_case *c)
{
    int status = 0;

    ASSERT_IN_TIME((status = in_child(case_main, c)) != TOO_SLOW);
    assert_int_equal(status, 0);
}
#define RUN_CASE(...) run_case(&(struct gpu_case){__VA_ARGS__})
/* Tests of one case; the body that follows is each member's. */
#define CASE_TEST(BODY, field, f, ...)                                                 \
    BODY(f##_member);                                                                  \
    UNIT_TEST(f)                                                                       \
    {                                                                                  \
        RUN_CASE(.field = f##_member, __VA_ARGS__);                                    \
    }                                                                                  \
    BODY(f##_member)
#define MEMBER_TEST(f, ...) CASE_TEST(MEMBER_BODY, body, f, __VA_ARGS__)
#define ROW_TEST(f, ...)    CASE_TEST(ROW_BODY, row_body, f, __VA_ARGS__)

/* One of each way in which NCCL keeps what is in progress. */
static const char *const versions[] = {"21805", "22105", "22505", "22605", "22809"};

/* A case with each of them, or every second one. */
static inline void run_versions(struct gpu_case c, size_t step)
{
    for (size_t i = 0; i < ARRAY_LEN(versions); i += step) {
        c.version = versions[i];
        run_case(&c);
    }
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What surviving ranks report: a killed peer, a peer that leaves, abort from another
 * thread, an interrupt by the caller, a stranger without the job's token, a description
 * from another version. */
#include <pthread.h>

#include "tests/unit/unit.h"

#include "runtime/backend/cpu/peers.h"
#include "tests/unit/cpu_world.h"
#include "tests/unit/timed.h"

/* Over TCP a dead neighbour is detected by sending more than the socket buffers
 * hold. */
static const uint64_t N_FLOATS = 1 << 20, N_FLOATS_TCP = 1 << 24;

/* Allreduces until one fails; ret_ns: when. The message is left in said. */
static int loop_until_failure(struct rank *r, uint64_t n_floats, uint64_t *ret_ns)
{
    struct err err = ERR_INIT;
    float *x = calloc(n_floats, sizeof(*x));
    int rc = 0;
    while (rc == 0 && clock_now_ns() < r->env.deadline_ns) {
        atomic_fetch_add(&r->m->flag, 1);
        rc = sum_run(r->b, DT_F32, x, n_floats, &err);
    }
    *ret_ns = clock_now_ns();
    (void)SAY(r, "%s", err.text);
    if (rc < 0) { /* broken for good, with the same message */
        struct err again = ERR_INIT;
        if (sum_run(r->b, DT_F32, x, n_floats, &again) != -EPIPE
            || strcmp(again.text, err.text) != 0)
            rc = 0;
    }
    free(x);
    return rc < 0 ? 0 : SAY(r, "no failure: %s", err.text);
}

static int body_kill_last(struct rank *r)
{
    uint64_t ns;
    struct err err = ERR_INIT;
    float x = 0;
    if (sum_run(r->b, DT_F32, &x, 1, &err) < 0)
        return SAY(r, "%s", err.text);
    if (r->rank == r->size - 1) {
        atomic_store(&r->m->when[r->rank], clock_now_ns());
        raise(SIGKILL);
    }
    int rc = loop_until_failure(r, *(const uint64_t *)r->arg, &ns);
    atomic_store(&r->m->when[r->rank], ns);
    world_meet(r, r->size - 1); /* else the first to leave is taken for a lost rank */
    return rc;
}

/* Leader b of host b dies: the followers on host a receive it through their leader. */
UNIT_TEST(killed_peer_is_named_within_a_second)
{
    struct world tcp = {.size = 3,
                        .tcp = true,
                        .body = body_kill_last,
                        .arg = &N_FLOATS_TCP,
                        .timeout_s = 60};
    struct world mixed = {.size = 4,
                          .hosts = "aaab",
                          .body = body_kill_last,
                          .arg = &N_FLOATS,
                          .timeout_s = 60};
    ASSERT_IN_TIME(world_names_last(&tcp, "lost rank 2 (host h): "));
    ASSERT_IN_TIME(world_names_last(&mixed, "lost rank 3 (host b): "));
}

/* --- a death inside each collective --- */

static const struct one {
    enum collective coll;
    enum reduce_op op;
} each[] = {
    {COLL_REDUCE, OP_MAX},       {COLL_REDUCESCATTER, OP_SUM}, {COLL_GATHER, OP_SUM},
    {COLL_ALLTOALL, OP_SUM},     {COLL_ALLGATHER, OP_SUM},     {COLL_BROADCAST, OP_SUM},
    {COLL_ALLREDUCE, OP_ADASUM}, {COLL_ALLREDUCE, OP_SUM},
};

enum { EACH_N = 1 << 16 }; /* floats of a member */

/* As the control channel does: for a rank whose own neighbours are alive. */
static int receive_loss(void *arg, struct err *err)
{
    struct rank *r = arg;
    if (atomic_load(&r->m->arrived) > 0)
        return err_set(err, -ECONNABORTED, "lost rank 3 by the control channel");
    return 0;
}

static int body_kill_in_each(struct rank *r)
{
    const struct one *one = r->arg;
    uint64_t counts[WORLD_MAX];
    float *in = calloc(EACH_N * r->size, sizeof(*in));
    float *out = calloc(EACH_N * r->size, sizeof(*out));
    struct batch_item it = {
        .in = in, .out = out, .count = EACH_N, .counts = counts, .send_counts = counts};
    struct batch b = {
        .coll = one->coll, .op = one->op, .dtype = DT_F32, .items = &it, .n_items = 1};
    struct err err = ERR_INIT;
    pid_t me = getpid();
    int rc = 0;
    for (uint32_t i = 0; i < r->size; i++)
        counts[i] = EACH_N;
    if (r->rank == r->size - 1 && fork() == 0) {
        while (atomic_load(&r->m->flag) < 20 * r->size)
            sched_yield();
        atomic_store(&r->m->when[r->rank], clock_now_ns());
        kill(me, SIGKILL);
        _exit(0);
    }
    while (rc == 0 && clock_now_ns() < r->env.deadline_ns) {
        atomic_fetch_add(&r->m->flag, 1);
        rc = run_batch(r, &b, &err);
    }
    atomic_store(&r->m->when[r->rank], clock_now_ns());
    (void)SAY(r, "%s", err.text);
    world_meet(r, r->size - 1);
    free(in);
    free(out);
    return rc < 0 ? 0 : SAY(r, "no failure: %s", err.text);
}

UNIT_TEST(death_inside_each_collective_is_reported)
{
    static const char *const shapes[] = {"aaaa", "abcd", "aabb"};
    for (size_t k = 0; k < ARRAY_LEN(each); k++)
        for (size_t shape = 0; shape < ARRAY_LEN(shapes); shape++) {
            struct world w = {.size = 4,
                              .hosts = shapes[shape],
                              .body = body_kill_in_each,
                              .interrupted = shape == 0 ? NULL : receive_loss,
                              .arg = &each[k],
                              .timeout_s = 60};
            bool is_seen = false;
            ASSERT_IN_TIME(world_names_last(
                &w, shape == 0 ? "lost rank 3 (host a): connection closed"
                               : "lost rank 3"));
            assert_true(WIFSIGNALED(w.status[3]));
            for (int i = 0; i < 3; i++)
                is_seen |= strstr(w.said[i], "lost rank 3 (host ") != NULL;
            assert_true(is_seen);
        }
}

/* --- memory runs out inside each collective, at each allocation of a leader in turn
 * --- */

static int receive_flag(void *arg, struct err *err)
{
    struct rank *r = arg;
    if (atomic_load(&r->m->flag) > 0)
        return err_set(err, -ECONNABORTED, "rank 0 gave up");
    return 0;
}

struct torture {
    struct one one;
    long k;
};

static int body_torture(struct rank *r)
{
    const struct torture *t = r->arg;
    uint64_t counts[WORLD_MAX] = {5, 6, 7, 8};
    float in[4 * 8] = {0}, out[4 * 26] = {0};
    bool is_alltoall = t->one.coll == COLL_ALLTOALL;
    uint64_t row[WORLD_MAX];
    for (uint32_t i = 0; i < r->size; i++) /* counts from i, equal rows of each */
        row[i] = is_alltoall ? counts[r->rank] : counts[i];
    struct batch_item it = {.in = in,
                            .out = out,
                            .count = is_alltoall || t->one.coll == COLL_GATHER
                                             || t->one.coll == COLL_ALLGATHER
                                         ? counts[r->rank]
                                         : 26,
                            .counts = counts,
                            .send_counts = row};
    struct batch b = {.coll = t->one.coll,
                      .op = t->one.op,
                      .dtype = DT_F32,
                      .root = 3,
                      .items = &it,
                      .n_items = 1};
    struct err err = ERR_INIT;
    if (r->rank == 0)
        mem_fail_after(t->k);
    int rc = run_batch(r, &b, &err);
    bool fired = mem_fail_fired();
    mem_fail_after(-1);
    if (r->rank == 0 && rc < 0)
        atomic_store(&r->m->flag, 1);
    atomic_store(&r->m->when[r->rank], fired);
    world_meet(r, r->size);
    if (r->rank == 0 && rc < 0 && !strstr(err.text, "no memory"))
        return SAY(r, "rank 0 says: %s", err.text);
    if (rc < 0 && r->rank > 0 && atomic_load(&r->m->flag) == 0)
        return SAY(r, "%s", err.text);
    return 0;
}

UNIT_TEST(memory_running_out_inside_each_collective)
{
    for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++)
        for (long k = 0;; k++) {
            struct torture t = {each[i], k};
            struct world w = {.size = 4,
                              .hosts = "aabb",
                              .body = body_torture,
                              .interrupted = receive_flag,
                              .arg = &t,
                              .timeout_s = 20};
            if (world_run(&w) != 0)
                fail_msg("%s, allocation %ld", collective_name(each[i].coll), k);
            if (w.when[0] == 0)
                break;
            assert_true(k < 60);
        }
}

/* It is alive, its connections are open, and it takes no part. */
static int body_last_is_silent(struct rank *r)
{
    uint64_t ns = 0;
    int rc = 0;

    if (r->rank < r->size - 1)
        rc = loop_until_failure(r, N_FLOATS, &ns);
    world_meet(r, r->size);
    return rc;
}

UNIT_TEST(silent_peer_ends_the_wait)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.size = 2,
                          .tcp = tcp,
                          .body = body_last_is_silent,
                          .timeout_s = 20,
                          .peer_timeout_ms = 300};
        assert_int_equal(world_run(&w), 0);
        assert_string_equal(w.said[0],
                            "rank 1 was silent inside an operation for 0.3 s");
    }
}

static int body_last_leaves(struct rank *r)
{
    uint64_t ns;
    if (r->rank == r->size - 1)
        return 0;
    int rc = loop_until_failure(r, N_FLOATS, &ns);
    world_meet(r, r->size - 1);
    return rc;
}

UNIT_TEST(peer_that_leaves_is_named)
{
    struct world w = {.size = 3, .body = body_last_leaves, .timeout_s = 20};
    assert_int_equal(world_run(&w), 0);
    assert_non_null(strstr(w.said[0], "lost rank 2 (host h): "));
    assert_non_null(strstr(w.said[1], "lost rank 2 (host h): "));
}

/* --- abort and interrupt: rank 0 waits for a rank that is late --- */

static int body_abort(struct rank *r)
{
    if (r->rank != 0) {
        world_meet(r, 2); /* live, but late */
        return 0;
    }
    pthread_t t;
    uint64_t ns;
    if (pthread_create(&t, NULL, abort_soon, r) != 0)
        return SAY(r, "no thread");
    int rc = loop_until_failure(r, N_FLOATS, &ns);
    pthread_join(t, NULL);
    uint64_t took = ns - atomic_load(&r->m->when[0]);
    atomic_store(&r->m->when[0], took);
    world_meet(r, 2);
    return rc;
}

static bool is_aborted_in_time(bool tcp)
{
    struct world w = {.size = 2, .tcp = tcp, .body = body_abort, .timeout_s = 20};
    assert_int_equal(world_run(&w), 0);
    assert_string_equal(w.said[0], "aborted");
    return w.when[0] < 200 * NS_PER_MS; /* 10 ms without other load */
}

UNIT_TEST(abort_ends_a_wait_soon)
{
    ASSERT_IN_TIME(is_aborted_in_time(false));
    ASSERT_IN_TIME(is_aborted_in_time(true));
}

static int interrupt_after_flag(void *arg, struct err *err)
{
    struct rank *r = arg;
    if (r->rank == 0 && atomic_load(&r->m->flag) > 0)
        return err_set(err, -ECONNABORTED, "lost rank 9 (host z): killed by signal 9");
    return 0;
}

static int body_interrupt(struct rank *r)
{
    uint64_t ns;
    int rc = 0;
    if (r->rank == 0)
        rc = loop_until_failure(r, N_FLOATS, &ns);
    world_meet(r, 2);
    return rc;
}

UNIT_TEST(interrupt_error_is_returned)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.size = 2,
                          .tcp = tcp,
                          .body = body_interrupt,
                          .interrupted = interrupt_after_flag,
                          .timeout_s = 20};
        assert_int_equal(world_run(&w), 0);
        assert_string_equal(w.said[0], "lost rank 9 (host z): killed by signal 9");
    }
}

/* --- connecting --- */

static int body_nothing(struct rank *r)
{
    (void)r;
    return 0;
}

/* Wrong token on one of two: no shared memory (logged), no TCP: an error on both. */
UNIT_TEST(stranger_without_token_is_refused)
{
    for (int tcp = 0; tcp < 2; tcp++) {
        struct world w = {.size = 2,
                          .tcp = tcp,
                          .body = body_nothing,
                          .connect_fails = 1,
                          .connect_ms = 1500,
                          .timeout_s = 20,
                          .stranger = 2};
        assert_int_equal(world_run(&w), 0);
        assert_non_null(strstr(w.said[0], "no data connection from rank 1"));
        assert_non_null(strstr(w.said[0], "token"));
        assert_non_null(strstr(w.said[1], "connect to rank 0 (host h)"));
    }
}

static int interrupt_at_once(void *arg, struct err *err)
{
    (void)arg;
    return err_set(err, -ECANCELED, "rank 1 was killed by signal 9");
}

/* Rank 1 does not reach rank 0, which would wait until the start timeout. */
UNIT_TEST(interrupt_ends_connecting)
{
    struct world w = {.size = 2,
                      .tcp = true,
                      .body = body_nothing,
                      .connect_fails = 1,
                      .connect_ms = 1500,
                      .timeout_s = 20,
                      .stranger = 2,
                      .interrupted = interrupt_at_once};
    assert_int_equal(world_run(&w), 0);
    assert_string_equal(w.said[0], "rank 1 was killed by signal 9");
}

UNIT_TEST(bad_transport_is_named)
{
    struct backend_env env = {.rank = 0, .size = 2};
    struct backend *b = NULL;
    struct err err = ERR_INIT;
    void *blob;
    uint32_t n;
    setenv("HVD_TRANSPORT", "infiniband", 1);
    assert_int_equal(backend_cpu.describe(&env, &b, &blob, &n, &err), -EINVAL);
    unsetenv("HVD_TRANSPORT");
    assert_string_equal(err.text,
                        "HVD_TRANSPORT: \"infiniband\" must be one of: auto, tcp");
    backend_cpu.close(b); /* accepts NULL */
}

UNIT_TEST(foreign_description_is_refused)
{
    struct backend_env env = {.rank = 0, .size = 1, .deadline_ns = UINT64_MAX};
    struct backend *b = NULL;
    struct err err = ERR_INIT;
    void *blob;
    uint32_t n;
    assert_int_equal(backend_cpu.describe(&env, &b, &blob, &n, &err), 0);
    uint8_t *blobs[] = {blob};
    uint32_t cut = n - 1;
    assert_int_equal(backend_cpu.connect(b, blobs, &cut, &err), -EPROTO);
    assert_non_null(strstr(err.text, "rank 0: backend description has"));
    blobs[0][4] ^= 1; /* version */
    assert_int_equal(backend_cpu.connect(b, blobs, &n, &err), -EPROTO);
    assert_non_null(strstr(err.text, "version 2 expected, got 3"));
    struct batch batch = {.coll = COLL_BARRIER};
    uint64_t ticket;
    assert_int_equal(backend_cpu.post(b, &batch, &ticket, &err), -EPIPE);
    backend_cpu.close(b);
    mem_free(blob);
}

UNIT_TEST(a_description_that_no_rank_sends_is_refused)
{
    struct peer good = {.host = "h", .addr = "10.0.0.1", .port = 1}, p;
    struct peer alone = {.host = "h"}, bad[5];
    struct err err = ERR_INIT;
    struct peer own;
    assert_int_equal(peer_describe(&own, &err), 0);
    good.magic = own.magic;
    good.version = own.version;
    assert_int_equal(peer_parse((const uint8_t *)&good, sizeof(good), 3, &p, &err), 0);
    alone.magic = own.magic;
    alone.version = own.version;
    assert_int_equal(peer_parse((const uint8_t *)&alone, sizeof(alone), 3, &p, &err),
                     0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].port = 0;
    bad[1].addr[0] = '\0';
    bad[2].wants_shm = 2;
    bad[3].host[0] = '\x1b';
    memset(bad[4].sock, 'x', sizeof(bad[4].sock));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(peer_parse((const uint8_t *)&bad[i], sizeof(p), 3, &p, &err),
                         -EPROTO);
        assert_string_equal(err.text, "rank 3: garbled backend description");
    }
}

UNIT_TEST(memory_running_out_is_an_error)
{
    struct backend_env env = {.rank = 0, .size = 1, .deadline_ns = UINT64_MAX};
    for (long k = 0;; k++) {
        struct backend *b = NULL;
        struct err err = ERR_INIT;
        void *blob = NULL;
        uint32_t n = 0;
        mem_fail_after(k);
        int rc = backend_cpu.describe(&env, &b, &blob, &n, &err);
        bool fired = mem_fail_fired();
        mem_fail_after(-1);
        if (rc == 0) {
            backend_cpu.close(b);
            mem_free(blob);
        }
        if (!fired)
            break;
        assert_true(k < 100);
    }
}

UNIT_MAIN(NULL, NULL)

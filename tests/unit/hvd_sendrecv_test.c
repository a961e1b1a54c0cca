/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives of real processes: in any order, both ways at once, beside
 * process sets, and where the peer leaves or dies. Values, types, mismatches and
 * joined ranks: tests/python/ranks/capi_sendrecv.py. */
#include <math.h>
#include <sys/resource.h>

#include "tests/unit/hvd_world.h"
#include "tests/unit/seeded.h"

static int
send_async(const char *name, const float *v, int64_t n, int dst, hvd_handle *h)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, NULL, &n);

    return hvd_send_async(&t, dst, h);
}

static int recv_async(const char *name, float *v, int64_t n, int src, hvd_handle *h)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, NULL, v, &n);

    return hvd_recv_async(&t, src, h);
}

static int send_now(const char *name, const float *v, int64_t n, int dst)
{
    hvd_handle h;

    return wait_release_if(send_async(name, v, n, dst, &h), &h);
}

static int recv_now(const char *name, float *v, int64_t n, int src)
{
    hvd_handle h;

    return wait_release_if(recv_async(name, v, n, src, &h), &h);
}

/* --- who sends what --- */

/* Ranks submit what they have in orders that contradict each other. */
INIT_TEST(any_order_will_do, 3)
{
    enum { NAMES = 24 };
    float v[2][NAMES];
    hvd_handle h[2][NAMES];

    for (int round = 0; rank < 2 && round < 4; round++) {
        for (int k = 0; k < 2 * NAMES; k++) {
            int i = rank == 0 ? k : 2 * NAMES - 1 - k, way = i / NAMES, id = i % NAMES;
            char name[16];

            (void)snprintf(name, sizeof(name), "t%d", id);
            v[way][id] = way == rank ? (float)(100 * way + id + round) : -1;
            if (way == rank)
                CHECK_OK(send_async(name, &v[way][id], 1, 1 - rank, &h[way][id]));
            else
                CHECK_OK(recv_async(name, &v[way][id], 1, 1 - rank, &h[way][id]));
        }
        for (int i = 0; i < 2 * NAMES; i++) {
            int way = i / NAMES, id = i % NAMES;

            CHECK_OK(wait_release(h[way][id]));
            CHECK(v[way][id] == (float)(100 * way + id + round), "tensor %d: %f", i,
                  (double)v[way][id]);
        }
    }
    CHECK_OK(barrier_now("the end")); /* the third rank has only met */
}

INIT_TEST(a_pair_is_no_process_set, 3)
{
    const int ranks[] = {0, 1};
    int id = -1, got[8];
    float v = (float)rank;

    if (rank == 0)
        CHECK_OK(send_now("x", &v, 1, 1));
    if (rank == 1)
        CHECK_OK(recv_now("x", &v, 1, 0));
    CHECK(v == (rank == 1 ? 0 : (float)rank), "%f", (double)v);
    CHECK(hvd_process_set_ids(got, 8) == 1, "a pair is no process set");
    CHECK_OK(hvd_process_set_add(ranks, 2, &id));
    CHECK(id == 1, "id %d", id);
    if (rank == 1)
        CHECK_OK(send_now("x", &v, 1, 2));
    if (rank == 2)
        CHECK_OK(recv_now("x", &v, 1, 1));
    CHECK_OK(hvd_process_set_remove(id));
    if (rank == 0)
        CHECK_OK(send_now("x", &v, 1, 1));
    if (rank == 1)
        CHECK_OK(recv_now("x", &v, 1, 0));
    CHECK_OK(barrier_now("the end"));
}

INIT_TEST(a_name_is_one_of_a_pair_and_direction, 3)
{
    float v = 1, w = 0;
    hvd_handle a, b, c;

    if (rank == 0) {
        CHECK_OK(send_async("x", &v, 1, 1, &a));
        CHECK_FAILS(send_async("x", &v, 1, 1, &b), HVD_INVALID_ARGUMENT,
                    "\"x (0 -> 1)\"");
        CHECK_OK(send_async("x", &v, 1, 2, &b));
        CHECK_OK(recv_async("x", &w, 1, 1, &c));
        CHECK_OK(wait_release(a));
        CHECK_OK(wait_release(b));
        CHECK_OK(wait_release(c));
        CHECK(w == 7, "%f", (double)w);
    } else {
        CHECK_OK(recv_now("x", &w, 1, 0));
        CHECK(w == 1, "%f", (double)w);
        w = 7;
        if (rank == 1)
            CHECK_OK(send_now("x", &w, 1, 0));
    }
    CHECK_OK(barrier_now("the end"));
}

INIT_TEST(what_cannot_be_is_refused_at_once, 2)
{
    char name[512], want[256];
    hvd_handle h;
    float v = 1;

    if (rank == 0) {
        CHECK_FAILS_AS(send_async("x", &v, 1, 0, &h), HVD_INVALID_ARGUMENT,
                       "tensor \"x\": dst_rank 0 is this rank itself");
        CHECK_FAILS_AS(recv_async("x", &v, 1, 2, &h), HVD_INVALID_ARGUMENT,
                       "tensor \"x\": src_rank 2 is not in the world of 2 ranks");
        CHECK_FAILS_AS(send_async("x", &v, 1, -1, &h), HVD_INVALID_ARGUMENT,
                       "tensor \"x\": dst_rank -1 is not in the world of 2 ranks");
        CHECK_FAILS_AS(send_async("x", NULL, 1, 1, &h), HVD_INVALID_ARGUMENT,
                       "tensor \"x\": data or output is NULL");
        CHECK_FAILS_AS(recv_async("x", NULL, 1, 1, &h), HVD_INVALID_ARGUMENT,
                       "tensor \"x\": data or output is NULL");
        CHECK_FAILS_AS(send_async("x", &v, -1, 1, &h), HVD_INVALID_ARGUMENT,
                       "tensor \"x\": shape: dimension 0 is -1, must be >= 0");
        memset(name, 'n', sizeof(name));
        name[503] = 0;
        (void)snprintf(want, sizeof(want),
                       "hvd_tensor.name: has 503 bytes, of a send or receive between "
                       "ranks 0 and 1 at most 502");
        CHECK_FAILS_AS(send_async(name, &v, 1, 1, &h), HVD_INVALID_ARGUMENT, want);
    }
    memset(name, 'n', sizeof(name));
    name[502] = 0;
    CHECK_OK(rank == 0 ? send_now(name, &v, 1, 1) : recv_now(name, &v, 1, 0));
    CHECK_OK(barrier_now("the end"));
}

/* --- several at once --- */

enum { LARGE = 3 << 20 }; /* floats: more than all buffers hold */

/* Each rank sends on to the next one; waiting for the sends first needs no order. */
INIT_TEST(a_ring_moves_at_once, 4)
{
    float *out = calloc(LARGE, sizeof(*out)), *in = calloc(LARGE, sizeof(*in));
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    hvd_handle sent, received;

    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < LARGE; i++)
            out[i] = (float)(1000 * rank + i % 997 + round);
        CHECK_OK(send_async("on", out, LARGE, next, &sent));
        CHECK_OK(recv_async("on", in, LARGE, last, &received));
        CHECK_OK(wait_release(sent));
        CHECK_OK(wait_release(received));
        for (int i = 0; i < LARGE; i++)
            CHECK(in[i] == (float)(1000 * last + i % 997 + round), "%d: %f", i,
                  (double)in[i]);
    }
    free(out);
    free(in);
}

static void hold_seat(void *arg, int status, const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    stage_set(1, 1);
    go_wait(3);
}

/* Rank 1 is held in a callback, in the middle of what it carries out: its transfer to
 * rank 0 does not move. That of rank 2 does, although it was begun later. */
INIT_BODY(held_body)
{
    const int64_t one = 1;
    float v = (float)rank, held = -1, free_one = -1;
    hvd_handle a, b;
    struct hvd_tensor t = tensor_1d("callback", HVD_FLOAT32, &v, NULL, &one);

    if (rank == 0) { /* the pairs are connected, which all ranks do */
        CHECK_OK(recv_now("before", &held, 1, 1));
        CHECK_OK(recv_now("before", &held, 1, 2));
    } else if (rank < 3) {
        CHECK_OK(send_now("before", &v, 1, 0));
    }
    if (rank == 1)
        CHECK_OK(send_now("before", &v, 1, 3));
    if (rank == 3)
        CHECK_OK(recv_now("before", &v, 1, 1));
    CHECK_OK(barrier_now("all are here"));
    switch (rank) {
    case 0:
        go_wait(1);
        CHECK_OK(recv_async("held", &held, 1, 1, &a));
        CHECK_OK(recv_async("free", &free_one, 1, 2, &b));
        stage_set(0, 1);
        CHECK_OK(hvd_wait(b, -1));
        CHECK(free_one == 2, "%f", (double)free_one);
        CHECK(hvd_poll(a) == HVD_IN_PROGRESS, "rank 1 is held");
        stage_set(0, 2);
        CHECK_OK(hvd_release(b));
        CHECK_OK(wait_release(a));
        CHECK(held == 1, "%f", (double)held);
        break;
    case 1:
        t.done = hold_seat;
        CHECK_OK(send_async("held", &v, 1, 0, &a));
        CHECK_OK(hvd_send_async(&t, 3, &b));
        CHECK_OK(wait_release(a));
        CHECK_OK(wait_release(b));
        break;
    case 2:
        go_wait(2);
        CHECK_OK(send_now("free", &v, 1, 0));
        break;
    default:
        CHECK_OK(recv_now("callback", &v, 1, 1));
    }
    CHECK_OK(barrier_now("the end"));
}

UNIT_TEST(a_transfer_does_not_wait_for_one_with_another_peer)
{
    struct proc_world w;

    world_start(&w, 4, held_body);
    stage_wait(1, 1);
    go_set(1);
    stage_wait(0, 1);
    go_set(2);
    stage_wait(0, 2);
    go_set(3);
    world_end(&w, -1);
}

enum { RANDOM_OPS = 24, RANDOM_MAX = 200000 };

struct random_op {
    int src, dst; /* equal: an allreduce of all */
    bool is_odd;  /* the receiver has another size */
    int64_t n;
    float *v;
    hvd_handle h;
};

static float value_of(const struct random_op *o, int64_t i, int number)
{
    return (float)(i % 89 + 100 * o->src + number);
}

static void random_submit(struct random_op *o, int number, int rank, int size)
{
    char name[16];
    int64_t n = o->n + (o->is_odd && rank == o->dst);

    (void)snprintf(name, sizeof(name), "op%d", number);
    o->h = 0;
    if (o->src != o->dst && rank != o->src && rank != o->dst)
        return;
    o->v = calloc((size_t)n + 1, sizeof(*o->v));
    for (int64_t i = 0; i < n; i++)
        o->v[i] = o->src == o->dst ? (float)(rank + number)
                  : rank == o->src ? value_of(o, i, number)
                                   : -1;
    CHECK_OK(o->src == o->dst ? sum_async(name, o->v, n, &o->h)
             : rank == o->src ? send_async(name, o->v, n, o->dst, &o->h)
                              : recv_async(name, o->v, n, o->src, &o->h));
    (void)size;
}

static void random_end(struct random_op *o, int number, int rank, int size)
{
    int r;

    if (!o->h)
        return;
    r = wait_release(o->h);
    if (o->is_odd) {
        CHECK_KEPT(r, HVD_INVALID_ARGUMENT, "Mismatched SENDRECV tensor shapes");
        shared->r[rank].text[0] = 0;
    } else {
        CHECK(r == HVD_OK, "op %d: %s", number, shared->r[rank].text);
    }
    for (int64_t i = 0; i < o->n && r == HVD_OK; i++) {
        float want = o->src == o->dst
                         ? (float)size * (float)(size - 1) / 2 + (float)(size * number)
                         : value_of(o, i, number);

        CHECK(o->v[i] == want, "op %d, %d -> %d: [%lld] is %f", number, o->src, o->dst,
              (long long)i, (double)o->v[i]);
    }
    free(o->v);
}

/* Ranks submit and wait in orders of their own. */
INIT_TEST(any_graph_of_transfers_ends, 5)
{
    for (uint64_t seed = 1; seed <= 12 / FEWER; seed++) {
        struct seeded all = {seed}, own = {seed * 100 + (uint64_t)rank};
        struct random_op op[RANDOM_OPS];
        int order[RANDOM_OPS];

        for (int i = 0; i < RANDOM_OPS; i++) {
            op[i].src = (int)seeded_below(&all, (uint32_t)size);
            op[i].dst = (int)seeded_below(&all, (uint32_t)size);
            op[i].n = 1 + seeded_below(&all, seeded_below(&all, 2) ? 9 : RANDOM_MAX);
            op[i].is_odd = op[i].src != op[i].dst && seeded_below(&all, 12) == 0;
            order[i] = i;
        }
        for (uint32_t i = RANDOM_OPS; i > 1; i--) {
            uint32_t k = seeded_below(&own, i);
            int at = order[i - 1];

            order[i - 1] = order[k];
            order[k] = at;
        }
        for (int i = 0; i < RANDOM_OPS; i++)
            random_submit(&op[order[i]], order[i], rank, size);
        for (int i = 0; i < RANDOM_OPS; i++)
            random_end(&op[(i + rank) % RANDOM_OPS], (i + rank) % RANDOM_OPS, rank,
                       size);
    }
    CHECK_OK(barrier_now("the end")); /* transfers of other ranks */
}

/* --- leave, die --- */

INIT_GO_TEST(a_rank_that_leaves_ends_it, 3, 1u << 0 | 1u << 2)
{
    float v = 1;
    int r;

    if (rank < 2)
        CHECK_OK(rank == 0 ? send_now("x", &v, 1, 1) : recv_now("x", &v, 1, 0));
    CHECK_OK(barrier_now("all are here"));
    if (rank == 1)
        return;
    r = rank == 0 ? send_now("x", &v, 1, 1) : recv_now("y", &v, 1, 0);
    CHECK_KEPT(r, HVD_PRECONDITION, "rank 1");
    stage_set(rank, 1);
    go_wait(1);
}

INIT_BODY(dying_body)
{
    enum { MANY = 1 << 22 };
    static float v[MANY];
    int r = HVD_OK;

    for (uint32_t i = 0; r == HVD_OK; i++) {
        r = rank == 0   ? send_now("x", v, MANY, 1)
            : rank == 1 ? recv_now("x", v, MANY, 0)
                        : r;
        if (i < 3 || rank == 2)
            stage_set(rank, i + 1);
        if (rank == 2) {
            go_wait(1);
            r = recv_now("never", v, 1, 1);
        }
    }
    for (int i = 0; i < 2; i++) { /* a later submission gets the same error */
        CHECK_KEPT(r, HVD_ABORTED, "rank 1");
        shared->r[rank].text[0] = 0;
        r = rank == 0 ? send_now("x", v, 1, 1) : recv_now("x", v, 1, 1);
    }
}

UNIT_TEST(a_rank_that_dies_in_it_is_named)
{
    struct proc_world w;

    world_start(&w, 3, dying_body);
    stage_wait(1, 3);
    stage_wait(2, 1);
    go_set(1);
    (void)kill(w.pid[1], SIGKILL);
    world_end(&w, 1);
}

/* All send much to all; rank 2 dies in the middle of it. */
INIT_BODY(dying_among_many_body)
{
    float *v = calloc(LARGE, sizeof(*v));
    int r = HVD_OK;

    for (uint32_t i = 0; r == HVD_OK; i++) {
        hvd_handle h[8];
        int n = 0;

        for (int peer = 0; peer < size && r == HVD_OK; peer++) {
            if (peer == rank)
                continue;
            r = send_async("x", v, LARGE, peer, &h[n]);
            n += r == HVD_OK;
            r = r != HVD_OK ? r : recv_async("x", v, LARGE, peer, &h[n]);
            n += r == HVD_OK;
        }
        if (r != HVD_OK)
            keep_error();
        if (i == 1)
            stage_set(rank, 1);
        for (int k = 0; k < n; k++) {
            int ended = wait_release(h[k]);

            r = r != HVD_OK ? r : ended;
        }
    }
    shared->r[rank].status = r;
    free(v);
}

UNIT_TEST(a_rank_that_dies_among_many_transfers_is_named)
{
    struct proc_world w;
    uint64_t t0 = world_kill(&w, 4, dying_among_many_body, 2, 0xf, 1);

    (void)world_end_killed(&w, 2, t0);
}

/* Rank 1 has no descriptor left for a pair: all ranks get the error. */
INIT_TEST(a_pair_that_cannot_connect_names_the_cause, 3)
{
    float v = 0;
    int fd, r;

    CHECK_OK(barrier_now("all are here"));
    fd = dup(0);
    if (rank == 1) {
        const struct rlimit none = {(rlim_t)fd, (rlim_t)fd};

        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "%s", strerror(errno));
    }
    (void)close(fd);
    r = rank == 0   ? send_now("x", &v, 1, 1)
        : rank == 1 ? recv_now("x", &v, 1, 0)
                    : barrier_now("never");
    CHECK(r == HVD_ABORTED, "%d", r);
    CHECK(strstr(shared->r[rank].text, "send and receive of ranks 0 and 1: ")
              && strstr(shared->r[rank].text, "rank 1: ")
              && strstr(shared->r[rank].text, strerror(EMFILE)),
          "%s", shared->r[rank].text);
}

/* Rank 1 does not send: after a second the receivers get an error that names it. */
WORLD_GO_TEST(a_stall_names_the_missing_rank_of_a_pair, 3, 1u << 2)
{
    float v = 1;

    (void)setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "0", 1);
    (void)setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "1", 1);
    CHECK_OK(hvd_init(NULL));
    if (rank == 2) {
        CHECK_KEPT(recv_now("x", &v, 1, 1), HVD_ABORTED,
                   "tensor \"x (1 -> 2)\" (SENDRECV) has waited 1 s for rank 1 (host ");
    }
    stage_set(rank, 1);
    go_wait(1);
    CHECK_OK(hvd_shutdown());
}

/* A receiver's memory is no input. */
WORLD_TEST(a_nan_is_looked_for_where_it_is_sent, 2)
{
    float v = rank == 0 ? 1 : NAN;
    int r;

    (void)setenv("HVD_NANCHECK", "1", 1);
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(rank == 0 ? send_now("x", &v, 1, 1) : recv_now("x", &v, 1, 0));
    CHECK(v == 1, "%f", (double)v);
    v = rank == 0 ? v : NAN;
    r = rank == 0 ? recv_now("y", &v, 1, 1) : send_now("y", &v, 1, 0);
    CHECK(r == HVD_ABORTED, "%d", r);
    CHECK(strstr(shared->r[rank].text, "NaN on rank 1 (host ")
              && strstr(shared->r[rank].text, "\"y (1 -> 0)\", input of SENDRECV"),
          "%s", shared->r[rank].text);
    CHECK_OK(hvd_shutdown());
}

INIT_TEST(what_travels_is_counted_on_its_side, 3)
{
    struct hvd_stats s = {.size_bytes = sizeof(s)};
    float v[5] = {0};

    if (rank < 2)
        CHECK_OK(rank == 0 ? send_now("x", v, 5, 1) : recv_now("x", v, 5, 0));
    CHECK_OK(hvd_stats(&s));
    CHECK(s.tensors[11] == (rank < 2), "tensors %llu",
          (unsigned long long)s.tensors[11]);
    CHECK(s.bytes_in[11] == (rank == 0 ? 20 : 0), "in");
    CHECK(s.bytes_out[11] == (rank == 1 ? 20 : 0), "out");
    CHECK_OK(barrier_now("the end"));
}

/* --- groups --- */

INIT_TEST(a_group_of_both_directions, 3)
{
    float v[2] = {1, 2};
    int64_t n = 1;
    hvd_handle h[2];

    if (rank < 2)
        for (int i = 0; i < 2; i++) {
            struct hvd_tensor t =
                tensor_1d(i ? "b" : "a", HVD_FLOAT32, &v[i], &v[i], &n);

            t.group = "swap";
            t.group_size = 2;
            v[i] = (float)rank;
            CHECK_OK(i == rank ? hvd_send_async(&t, 1 - rank, &h[i])
                               : hvd_recv_async(&t, 1 - rank, &h[i]));
            if (i == 0)
                CHECK(hvd_wait(h[0], 20) == HVD_TIMEOUT, "half of a group");
        }
    for (int i = 0; rank < 2 && i < 2; i++) {
        CHECK_OK(wait_release(h[i]));
        CHECK(v[i] == (float)i, "%d: %f", i, (double)v[i]);
    }
    CHECK_OK(barrier_now("the end"));
}

UNIT_MAIN(NULL, NULL)

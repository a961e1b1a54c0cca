/* SPDX-License-Identifier: Apache-2.0 */
/* Sends and receives of real processes: in any order, both ways at once, beside
 * process sets, and where the peer leaves or dies. Values, types, mismatches and
 * joined ranks: tests/python/ranks/capi_sendrecv.py. */
#include <math.h>
#include <sys/resource.h>

#include "tests/unit/hvd_world.h"

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
            CHECK_OK(wait_release(h[i / NAMES][i % NAMES]));
            CHECK(v[i / NAMES][i % NAMES]
                      == (float)(100 * (i / NAMES) + i % NAMES + round),
                  "tensor %d: %f", i, (double)v[i / NAMES][i % NAMES]);
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

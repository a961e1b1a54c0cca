/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks, waits and the end of a world, in real processes. Results against numpy:
 * tests/python/ranks/capi_data.py and capi_random.py. */
#include <sched.h>

#include "tests/unit/hvd_world.h"

/* A rank enters the barrier only when the parent lets it: nobody is through before. */
INIT_GO_TEST(barrier_waits_for_the_last, 3, 1u << 0)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = "bar", .device = -1};
    hvd_handle h;

    if (rank == 1) {
        stage_set(rank, 1);
        go_wait(1);
    }
    CHECK_OK(hvd_barrier_async(&t, 0, &h));
    if (rank == 0) {
        CHECK(hvd_wait(h, 50) == HVD_TIMEOUT, "barrier ended early");
        CHECK(hvd_poll(h) == HVD_IN_PROGRESS, "poll");
        stage_set(rank, 1);
    }
    CHECK_OK(wait_release(h));
}

/* --- ways to submit and to wait --- */

struct seen {
    _Atomic int calls;
    int status;
    bool has_error;
};

static void on_done(void *arg, int status, const char *error)
{
    struct seen *s = arg;

    s->status = status;
    s->has_error = error != NULL;
    atomic_fetch_add(&s->calls, 1);
}

INIT_TEST(callback_runs_once_and_poll_sees_the_end, 2)
{
    struct seen s = {0};
    float v = (float)rank;
    int64_t n = 1;
    struct hvd_tensor t = tensor_1d("c", HVD_FLOAT32, &v, &v, &n);
    hvd_handle h;

    t.done = on_done;
    t.done_arg = &s;
    CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    while (hvd_poll(h)
           == HVD_IN_PROGRESS) /* nobody waits: the background thread does it */
        (void)sched_yield();
    CHECK(hvd_poll(h) == HVD_OK, "%s", hvd_last_error());
    CHECK(atomic_load(&s.calls) == 1 && s.status == HVD_OK && !s.has_error,
          "calls %d status %d", atomic_load(&s.calls), s.status);
    CHECK_OK(hvd_wait(h, -1));
    CHECK(atomic_load(&s.calls) == 1, "called twice");
    CHECK_OK(hvd_release(h));
    CHECK_FAILS(hvd_poll(h), HVD_INVALID_ARGUMENT, "unknown or released");
    CHECK(hvd_release(h) == HVD_INVALID_ARGUMENT, "released twice");
}

/* Inside its callback an operation has ended: what an alltoall received can be asked
 * for, by the handle that was written before it was submitted. */
struct received {
    hvd_handle handle;
    int64_t rows[2], shape[HVD_MAX_DIMS];
    int n, result, ndim;
    void *data;
};

static void result_callback(void *arg, int status, const char *error)
{
    struct received *r = arg;

    (void)status;
    (void)error;
    r->n = hvd_received_splits(r->handle, r->rows, 2);
    r->result = hvd_result(r->handle, &r->data, &r->ndim, r->shape);
    (void)hvd_release(r->handle); /* allowed here too; r->n says what went wrong */
}

WORLD_TEST(callbacks_may_query_results, 2)
{
    float v[3] = {(float)rank, 10, 11};
    int64_t n = rank + 2, splits[2] = {1, rank + 1};
    struct hvd_tensor t = tensor_1d("a", HVD_FLOAT32, v, NULL, &n);
    struct hvd_tensor last = {.size_bytes = sizeof(last), .name = "b", .device = -1};
    struct received r = {0};
    hvd_handle h;

    t.done = result_callback;
    t.done_arg = &r;
    CHECK_OK(hvd_init(NULL));
    CHECK_OK(hvd_alltoall_async(&t, splits, size, NULL, NULL, 0, &r.handle));
    CHECK_OK(hvd_barrier_async(&last, 0, &h));
    CHECK_OK(wait_release(h));
    CHECK_OK(hvd_shutdown()); /* all callbacks have run */
    CHECK(r.n == 2 && r.rows[0] == 1 && r.rows[1] == (rank ? 2 : 1), "%d %lld %lld",
          r.n, (long long)r.rows[0], (long long)r.rows[1]);
    CHECK(r.result == HVD_OK && r.ndim == 1 && r.shape[0] == rank + 2, "%d", r.result);
}

/* Inside a callback: submitting is allowed, also the same name; waiting and shutdown
 * are refused. */
static hvd_handle chained;
static float chained_value = 1;
static _Atomic int chained_results;

static void chain_callback(void *arg, int status, const char *error)
{
    int rc = 0;

    (void)error;
    if (status == HVD_OK && sum_async("c", &chained_value, 1, &chained) == HVD_OK)
        rc |= 1;
    if (hvd_wait(chained, -1) == HVD_INVALID_ARGUMENT)
        rc |= 2;
    if (hvd_shutdown() == HVD_INVALID_ARGUMENT)
        rc |= 4;
    (void)arg;
    atomic_store(&chained_results, rc);
}

INIT_TEST(callbacks_may_submit_but_not_wait, 2)
{
    float v = (float)rank;
    int64_t n = 1;
    struct hvd_tensor t = tensor_1d("c", HVD_FLOAT32, &v, &v, &n);
    hvd_handle h;

    t.done = chain_callback;
    CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK_OK(wait_release(h));
    CHECK(atomic_load(&chained_results) == 7, "%d", atomic_load(&chained_results));
    CHECK_OK(wait_release(chained));
    CHECK(chained_value == (float)size, "%g", (double)chained_value);
}

/* --- worlds one after another --- */

/* The last operation before shutdown ends well on every rank, in any order of arrival. */
WORLD_TEST(a_quick_shutdown_spoils_nothing, 3)
{
    static float v[50000];

    for (int i = 0; i < 15; i++) {
        CHECK_OK(hvd_init(NULL));
        CHECK_OK(sum_now("x", v, ARRAY_LEN(v)));
        if (rank == i % size)
            CHECK_OK(hvd_shutdown());
        CHECK_OK(hvd_shutdown());
    }
}

static bool is_socket(int fd)
{
    char path[64], link[64];
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    n = readlink(path, link, sizeof(link) - 1);
    link[n > 0 ? n : 0] = 0;
    return strncmp(link, "socket:", 7) == 0;
}

WORLD_TEST(a_world_of_one_opens_no_socket, 1)
{
    char buf[512];

    for (int fd = 0; fd < 64; fd++) /* the parent's rendezvous socket is inherited */
        if (is_socket(fd))
            (void)close(fd);
    CHECK_OK(hvd_init(NULL));
    for (int fd = 0; fd < 64; fd++)
        CHECK(!is_socket(fd), "fd %d", fd);
    CHECK(hvd_describe(buf, sizeof(buf)) < sizeof(buf), "%s", buf);
    CHECK(strstr(buf, "\"size\":1") && strstr(buf, "\"control\":[\"self\"]"), "%s",
          buf);
    CHECK_OK(hvd_shutdown());
}

UNIT_MAIN(NULL, NULL)

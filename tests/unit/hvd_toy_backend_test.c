/* SPDX-License-Identifier: Apache-2.0 */
/* A backend written by runtime/backend/README.md, in real worlds. It is a bulletin board
 * in shared memory: every member pins its input, all look, then the board is cleared.
 * Four collectives, no process sets, no agreements. */
#include <fcntl.h>
#include <sched.h>

#include "runtime/backend/backend.h"
#include "tests/unit/hvd_world.h"

/* --- the backend --- */

enum { PIN_MAX = 1 << 16 }; /* bytes of one member's input */

struct pin {
    _Atomic uint64_t round; /* the round that the bytes belong to */
    uint8_t bytes[PIN_MAX];
};

struct toy {
    struct backend base; /* first member */
    struct backend_env env;
    int fd;           /* member 0's memory */
    struct pin *pins; /* [size] */
    uint64_t round, n_tickets;
    _Atomic bool is_aborted;
};

static const struct backend_ops toy_ops;

static struct toy *toy_of(struct backend *b)
{
    return (struct toy *)(void *)b; /* base is the first member */
}

static int toy_describe(const struct backend_env *env,
                        struct backend **ret,
                        void **ret_blob,
                        uint32_t *ret_n,
                        struct err *err)
{
    struct toy *t = mem_zalloc(sizeof(*t));
    char *path = mem_alloc(64);

    if (!t || !path) {
        mem_free(t);
        mem_free(path);
        return err_set(err, -ENOMEM, "out of memory");
    }
    t->base.ops = &toy_ops;
    t->env = *env;
    t->fd = -1;
    if (env->rank == 0)
        t->fd = memfd_create("board", MFD_CLOEXEC);
    *ret_n = (uint32_t)snprintf(path, 64, "/proc/%d/fd/%d", (int)getpid(), t->fd) + 1;
    *ret_blob = path;
    *ret = &t->base;
    return 0;
}

/* No connection is opened: the path comes from member 0 through the rendezvous, which
 * is authenticated, and the kernel lets only this user open it. */
static int toy_connect(struct backend *b,
                       uint8_t *const *blobs,
                       const uint32_t *sizes,
                       struct err *err)
{
    struct toy *t = toy_of(b);
    size_t n = t->env.size * sizeof(*t->pins);
    uint8_t **none;
    uint32_t *none_sizes;
    int rc;

    (void)sizes;
    if (t->env.rank == 0 && (t->fd < 0 || ftruncate(t->fd, (off_t)n) < 0))
        return err_errno(err, errno, "toy: board of %zu bytes", n);
    /* a round of its own: the board has its size when this returns */
    rc = t->env.exchange(t->env.arg, "", 0, &none, &none_sizes, err);
    if (rc < 0)
        return rc;
    mem_free(none);
    if (t->env.rank != 0)
        t->fd = open((const char *)blobs[0], O_RDWR | O_CLOEXEC);
    t->pins = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (t->pins == MAP_FAILED) {
        t->pins = NULL;
        return err_errno(err, errno, "toy: %s", (const char *)blobs[0]);
    }
    return 0;
}

/* Waits until all members are in this round. */
static int toy_wait(struct toy *t, uint64_t round, struct err *err)
{
    for (uint32_t i = 0; i < t->env.size; i++)
        while (atomic_load(&t->pins[i].round) < round) {
            int rc = t->env.interrupted(t->env.arg, err); /* a lost rank, or shutdown */

            if (rc < 0)
                return rc;
            if (atomic_load(&t->is_aborted))
                return err_set(err, -ECONNABORTED, "toy: aborted");
            (void)sched_yield();
        }
    return 0;
}

/* Two rounds: all have pinned; all have read, and the board may be written again. */
static int toy_pin(struct toy *t, const void *in, uint64_t bytes, struct err *err)
{
    struct pin *mine = &t->pins[t->env.rank];

    if (bytes > PIN_MAX)
        return err_set(err, -E2BIG, "toy: %llu bytes, at most %d fit the board",
                       (unsigned long long)bytes, PIN_MAX);
    if (bytes > 0)
        memcpy(mine->bytes, in, bytes);
    atomic_store(&mine->round, ++t->round);
    return toy_wait(t, t->round, err);
}

static int toy_unpin(struct toy *t, struct err *err)
{
    atomic_store(&t->pins[t->env.rank].round, ++t->round);
    return toy_wait(t, t->round, err);
}

static void toy_sum(const struct toy *t, const struct batch *b, float *out, uint64_t n)
{
    double scale = b->prescale * b->postscale;

    if (b->op == OP_AVERAGE)
        scale /= t->env.size;
    for (uint64_t i = 0; i < n; i++) {
        float sum = 0;

        for (uint32_t m = 0; m < t->env.size; m++)
            sum += ((const float *)(const void *)t->pins[m].bytes)[i];
        out[i] = (float)(sum * scale);
    }
}

static void
toy_gather(const struct toy *t, const struct batch_item *item, uint64_t width)
{
    uint8_t *out = item->out;

    for (uint32_t m = 0; m < t->env.size; m++) {
        memcpy(out, t->pins[m].bytes, item->counts[m] * width);
        out += item->counts[m] * width;
    }
}

static int toy_run_item(struct toy *t,
                        const struct batch *b,
                        struct batch_item *item,
                        struct err *err)
{
    uint64_t width = dtype_size(b->dtype), n = item->count;
    int rc;

    if (b->coll == COLL_ALLREDUCE
        && (b->dtype != DT_F32 || (b->op != OP_SUM && b->op != OP_AVERAGE)))
        return err_set(err, -ENOTSUP, "toy: only sums and averages of float32");
    if (b->coll == COLL_ALLGATHER)
        n = item->counts[t->env.rank];
    if (b->coll == COLL_BROADCAST && t->env.rank != b->root)
        n = 0;
    rc = toy_pin(t, item->in, n * width, err);
    if (rc < 0)
        return rc;
    if (b->coll == COLL_ALLREDUCE)
        toy_sum(t, b, item->out, n);
    else if (b->coll == COLL_ALLGATHER)
        toy_gather(t, item, width);
    else if (b->coll == COLL_BROADCAST)
        memcpy(item->out, t->pins[b->root].bytes, item->count * width);
    return toy_unpin(t, err);
}

static int toy_post(struct backend *b,
                    const struct batch *batch,
                    uint64_t *ret_ticket,
                    struct err *err)
{
    struct toy *t = toy_of(b);
    struct batch_item nothing = {.count = 0};
    int rc = 0;

    switch (batch->coll) {
    case COLL_ALLREDUCE:
    case COLL_ALLGATHER:
    case COLL_BROADCAST:
        for (size_t i = 0; i < batch->n_items && rc == 0; i++)
            rc = toy_run_item(t, batch, &batch->items[i], err);
        break;
    case COLL_BARRIER:
        rc = toy_run_item(t, batch, &nothing, err);
        break;
    case COLL_REDUCE:
    case COLL_GATHER:
    case COLL_ALLTOALL:
    case COLL_REDUCESCATTER:
    case COLL_SENDRECV:
    case COLL_JOIN:
    case COLL_SET_ADD:
    case COLL_SET_REMOVE:
    case COLL_REGISTER:
    case COLL_PROBE:
    case COLL_COUNT:
        rc = err_set(err, -ENOTSUP, "toy: %s is not supported",
                     collective_name(batch->coll));
    }
    *ret_ticket = ++t->n_tickets;
    return rc;
}

static int toy_poll(struct backend *b, uint64_t *ret_done, struct err *err)
{
    (void)err;
    *ret_done = toy_of(b)->n_tickets;
    return 0;
}

static int toy_subset(struct backend *b,
                      const uint32_t *ranks,
                      uint32_t n,
                      uint64_t deadline_ns,
                      struct backend **ret,
                      struct err *err)
{
    (void)b, (void)ranks, (void)n, (void)deadline_ns, (void)ret;
    return err_set(err, -ENOTSUP, "toy: process sets are not supported");
}

static void toy_abort(struct backend *b)
{
    atomic_store(&toy_of(b)->is_aborted, true);
}

static void toy_close(struct backend *b)
{
    struct toy *t = b ? toy_of(b) : NULL;

    if (!t)
        return;
    if (t->pins)
        (void)munmap(t->pins, t->env.size * sizeof(*t->pins));
    fd_close(&t->fd);
    mem_free(t);
}

static const struct backend_ops toy_ops = {.name = "toy",
                                           .describe = toy_describe,
                                           .connect = toy_connect,
                                           .post = toy_post,
                                           .poll = toy_poll,
                                           .subset = toy_subset,
                                           .abort = toy_abort,
                                           .close = toy_close};

extern const struct backend_ops *const hvd_backend_linked;
const struct backend_ops *const hvd_backend_linked = &toy_ops;

/* --- worlds with it --- */

enum { STEPS = 200, N = 1000 };

static int broadcast_now(const char *name, float *v, int64_t n, int root)
{
    struct hvd_tensor t = tensor_1d(name, HVD_FLOAT32, v, v, &n);
    hvd_handle h;
    int rc = hvd_broadcast_async(&t, root, 0, &h);

    return wait_release_if(rc, &h);
}

/* Rank r has r + 1 rows. */
static void check_allgather(int rank, int size)
{
    const int64_t n = rank + 1;
    float mine[WORLD_MAX], *all;
    struct hvd_tensor t = tensor_1d("rows", HVD_FLOAT32, mine, NULL, &n);
    int64_t shape[HVD_MAX_DIMS];
    int ndim = HVD_MAX_DIMS, at = 0;
    hvd_handle h;
    void *p;

    for (int i = 0; i <= rank; i++)
        mine[i] = (float)rank;
    CHECK_OK(hvd_allgather_async(&t, NULL, NULL, 0, &h));
    CHECK_OK(hvd_wait(h, -1));
    CHECK_OK(hvd_result(h, &p, &ndim, shape));
    all = p;
    CHECK(shape[0] == size * (size + 1) / 2, "rows: %d", (int)shape[0]);
    for (int r = 0; r < size; r++)
        for (int i = 0; i <= r; i++, at++)
            CHECK(all[at] == (float)r, "row %d is %g", at, (double)all[at]);
    CHECK_OK(hvd_release(h));
}

INIT_TEST(a_toy_backend_carries_out_collectives, 3)
{
    struct hvd_stats s;

    for (int i = 0; i < STEPS; i++) {
        float a[N], b[N];

        for (int k = 0; k < N; k++) {
            a[k] = (float)(rank + k % 7);
            b[k] = (float)(rank == 1 ? i : -1);
        }
        CHECK_OK(sum_now("a", a, N));
        CHECK_OK(broadcast_now("b", b, N, 1));
        for (int k = 0; k < N; k++) {
            CHECK(a[k] == (float)(3 + 3 * (k % 7)), "sum %d: %g", k, (double)a[k]);
            CHECK(b[k] == (float)i, "broadcast %d: %g", k, (double)b[k]);
        }
    }
    check_allgather(rank, size);
    s = stats_now();
    CHECK(s.plans == 0, "a backend without agreements has %d plans", (int)s.plans);
    CHECK(s.cache_hits > STEPS, "the response cache is used: %d", (int)s.cache_hits);
}

INIT_TEST(what_a_toy_backend_refuses_ends_the_world, 2)
{
    int64_t n = 4;
    double v[4] = {0};
    struct hvd_tensor t = tensor_1d("d", HVD_FLOAT64, v, v, &n);
    hvd_handle h;

    CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    CHECK_KEPT(wait_release(h), HVD_ABORTED, "toy: only sums and averages of float32");
}

INIT_KILL_TEST(a_toy_backend_names_a_lost_rank, 3, 1)
{
    float v[N] = {0};
    int rc = HVD_OK;

    CHECK_OK(sum_now("first", v, N));
    stage_set(rank, 1);
    while (rc == HVD_OK)
        rc = sum_now("next", v, N);
    end_report(rc);
}

UNIT_MAIN(NULL, NULL)

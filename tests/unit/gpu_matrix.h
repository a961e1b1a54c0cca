/* SPDX-License-Identifier: Apache-2.0 */
/* One batch of device memory against a plain reference: each member lays its tensors
 * out in an arena of its own, runs the batch, and checks every byte afterwards. */
#ifndef TESTS_UNIT_GPU_MATRIX_H
#define TESTS_UNIT_GPU_MATRIX_H

#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/backend/nccl/table.h"
#include "tests/unit/gpu_members.h"
#include "tests/unit/gpu_values.h"

enum {
    ARENA = 768 * 1024,
    ITEMS = 80,
    MARGIN = 64,
    ELEMENTS = 20000,
    SENTINEL = 0xa5,
    PASSES = 8
};

struct ask {
    enum collective coll;
    enum dtype dtype;
    enum reduce_op op;
    double pre, post;
    size_t n_items;
    uint32_t root;
    bool is_in_place, is_uneven;
    bool has_joined; /* member 1 has no input */
    bool is_tight;   /* tensors of whole vectors, without gaps */
    bool is_wide;    /* integers whose sums wrap */
    bool is_registered;
    uint64_t more; /* elements a tensor, beyond the few that it has */
};

struct tensor {
    uint64_t n_in, n_out; /* elements */
    uint64_t in, out;     /* places in the arena */
    uint64_t counts[MAX_MEMBERS], send[MAX_MEMBERS];
};

struct bench { /* of one member */
    struct device *g;
    struct backend *b;
    uint32_t me, n;
    uint32_t n_asked, mask; /* not 0: of batches of the matrix only some are run */
    struct ask a;
    struct tensor t[ITEMS];
    double of[MAX_MEMBERS][ELEMENTS]; /* ADASUM: the members' */
    cu_ptr memory;                    /* on the device: */
    void *arena;                      /* in it, at another address in each pass */
    uint64_t bytes, split; /* of the arena that are checked; where outputs begin */
    uint8_t before[ARENA], after[ARENA];
    struct gpu_launch launch;
    struct tables tables;
};

/* --- reference --- */

static double slack_of(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 ? 0.01 : t == DT_F32 ? 1e-6 : 1e-14;
}

static bool is_reduction(enum collective c)
{
    return c == COLL_ALLREDUCE || c == COLL_REDUCE || c == COLL_REDUCESCATTER;
}

/* The integer v as type t holds it. */
static double int_wrapped(enum dtype t, double v)
{
    const unsigned shift = 64 - 8 * (unsigned)dtype_size(t);
    const uint64_t u = (uint64_t)(int64_t)v << shift;

    return t == DT_I8 || t == DT_I16 || t == DT_I32 ? (double)((int64_t)u >> shift)
                                                    : (double)(u >> shift);
}

/* Of member r: small, so that no sum is rounded, or integers of the whole range. */
static double value_of(const struct ask *a, uint32_t r, size_t i, uint64_t e)
{
    const uint64_t x = r * 5 + i * 3 + e * 7 + (e >> 3);

    if (a->has_joined && r == 1 && is_reduction(a->coll))
        return 0;
    if (a->is_wide)
        return int_wrapped(a->dtype, (double)(x * 2654435761u));
    if (a->dtype == DT_BOOL)
        return (double)(x % 3 != 0);
    if (a->op == OP_PRODUCT)
        return (double)(1 + x % 2);
    if (a->dtype == DT_U8 || a->dtype == DT_U16)
        return (double)(x % 8);
    return (double)(x % 8) - 4;
}

static double value_scaled(enum dtype t, double v, double by)
{
    if (t == DT_BOOL)
        return by != 0 ? v : 0;
    return cast_is_float(t) ? v * by : trunc(v * by);
}

static double values_combined(const struct ask *a, double x, double y)
{
    if (a->op == OP_MIN || (a->dtype == DT_BOOL && a->op == OP_PRODUCT))
        return fmin(x, y);
    if (a->op == OP_MAX || a->dtype == DT_BOOL)
        return fmax(x, y);
    return a->op == OP_PRODUCT ? x * y : x + y;
}

static double value_reduced(const struct bench *w, size_t i, uint64_t e)
{
    const struct ask *a = &w->a;
    double v = value_scaled(a->dtype, value_of(a, 0, i, e), a->pre);

    for (uint32_t r = 1; r < w->n; r++)
        v = values_combined(a, v, value_scaled(a->dtype, value_of(a, r, i, e), a->pre));
    if (a->is_wide)
        v = int_wrapped(a->dtype, v);
    return value_scaled(a->dtype, v, a->op == OP_AVERAGE ? a->post / w->n : a->post);
}

/* Vectors of some members, one after the other, into the first: in pairs of
 * neighbours. */
static void vectors_combine(double *a, const double *b, uint64_t n)
{
    double ab = 0, aa = 0, bb = 0;

    for (uint64_t e = 0; e < n; e++) {
        ab += a[e] * b[e];
        aa += a[e] * a[e];
        bb += b[e] * b[e];
    }
    for (uint64_t e = 0; e < n; e++)
        a[e] = (aa > 0 ? 1 - ab / aa / 2 : 1) * a[e]
               + (bb > 0 ? 1 - ab / bb / 2 : 1) * b[e];
}

static void vectors_adasum(struct bench *w, size_t i, uint64_t n)
{
    const struct ask *a = &w->a;
    uint32_t p = 1;

    while (2 * p <= w->n)
        p *= 2;
    for (uint32_t r = 0; r < w->n; r++)
        for (uint64_t e = 0; e < n; e++)
            w->of[r][e] = value_of(a, r, i, e) * a->pre;
    for (uint32_t r = p; r < w->n; r++)
        vectors_combine(w->of[r - p], w->of[r], n);
    for (uint32_t d = 1; d < p; d *= 2)
        for (uint32_t r = 0; r < p; r += 2 * d)
            vectors_combine(w->of[r], w->of[r + d], n);
}

/* What comes from member s to member d. */
static uint64_t part_count(const struct ask *a, size_t i, uint32_t s, uint32_t d)
{
    if (a->is_tight)
        return 16;
    return a->more + (a->is_uneven ? (s * 5 + d * 3 + i) % 7 : 4 + i % 3);
}

static double value_expected(const struct bench *w, size_t i, uint64_t e)
{
    const struct tensor *t = &w->t[i];
    uint64_t before = 0;
    uint32_t s = 0;

    if (w->a.op == OP_ADASUM)
        return w->of[0][e] * w->a.post;
    if (w->a.coll == COLL_REDUCESCATTER) {
        for (uint32_t j = 0; j < w->me; j++)
            e += t->counts[j];
        return value_reduced(w, i, e);
    }
    if (is_reduction(w->a.coll))
        return value_reduced(w, i, e);
    if (w->a.coll == COLL_BROADCAST || w->a.coll == COLL_SENDRECV)
        return value_of(&w->a, w->a.root, i, e);
    for (; e >= t->counts[s]; s++)
        e -= t->counts[s];
    for (uint32_t d = 0; d < w->me && w->a.coll == COLL_ALLTOALL; d++)
        before += part_count(&w->a, i, s, d);
    return value_of(&w->a, s, i, before + e);
}

/* --- one batch --- */

static uint64_t counts_total(const uint64_t *v, uint32_t n)
{
    uint64_t s = 0;

    for (uint32_t i = 0; i < n; i++)
        s += v[i];
    return s;
}

static void tensor_shape(struct bench *w, size_t i)
{
    const struct ask *a = &w->a;
    struct tensor *t = &w->t[i];
    const bool is_root = a->root == w->me;

    *t = (struct tensor){.n_in = part_count(a, i, 0, 0)};
    t->n_out = t->n_in;
    for (uint32_t j = 0; j < w->n; j++) {
        t->counts[j] = part_count(a, i, j, a->coll == COLL_ALLTOALL ? w->me : 0);
        t->send[j] = part_count(a, i, w->me, j);
    }
    if (a->coll == COLL_REDUCESCATTER)
        t->n_in = counts_total(t->counts, w->n), t->n_out = t->counts[w->me];
    if (a->coll == COLL_ALLGATHER || a->coll == COLL_GATHER)
        t->n_in = t->counts[w->me], t->n_out = counts_total(t->counts, w->n);
    if (a->coll == COLL_ALLTOALL)
        t->n_in = counts_total(t->send, w->n), t->n_out = counts_total(t->counts, w->n);
    if ((a->coll == COLL_REDUCE || a->coll == COLL_GATHER) && !is_root)
        t->n_out = 0;
    if (a->coll == COLL_SENDRECV)
        *(is_root ? &t->n_out : &t->n_in) = 0;
    if (a->coll == COLL_BROADCAST && !is_root)
        t->n_in = 0;
}

static uint64_t tensor_room(const struct ask *a, uint64_t n)
{
    const uint64_t bytes = n * dtype_size(a->dtype);

    return a->is_tight ? bytes : (bytes + 15) / 8 * 8; /* some are not at a vector */
}

static bool lay_out(struct bench *w)
{
    const struct ask *a = &w->a;
    const uint64_t size = dtype_size(a->dtype);
    uint64_t at = 0;

    for (size_t i = 0; i < a->n_items; i++) {
        tensor_shape(w, i);
        w->t[i].in = at;
        at += tensor_room(a, w->t[i].n_in);
    }
    at = w->split = (at + 15) / 16 * 16;
    for (size_t i = 0; i < a->n_items; i++) {
        struct tensor *t = &w->t[i];
        const uint64_t mine = counts_total(t->counts, w->me) * size;

        t->out = at;
        at += tensor_room(a, t->n_out);
        if (!a->is_in_place || t->n_out == 0 || t->n_in == 0)
            continue;
        if (a->coll == COLL_REDUCESCATTER)
            t->out = t->in + mine;
        else if (a->coll == COLL_ALLGATHER || a->coll == COLL_GATHER)
            t->in = t->out + mine;
        else if (a->coll != COLL_ALLTOALL)
            t->in = t->out;
    }
    w->bytes = at + MARGIN;
    return w->bytes <= ARENA;
}

static bool has_input(const struct bench *w)
{
    return !(w->a.has_joined && w->me == 1 && is_reduction(w->a.coll));
}

static void bench_fill(struct bench *w)
{
    memset(w->before, SENTINEL, w->bytes);
    for (size_t i = 0; i < w->a.n_items; i++)
        for (uint64_t e = 0; e < w->t[i].n_in && has_input(w); e++)
            value_put(w->a.dtype, w->before + w->t[i].in, e,
                      value_of(&w->a, w->me, i, e));
}

static int bench_copy(struct bench *w, bool is_up, struct err *err)
{
    const cu_ptr at = gcoll_ptr(w->arena);
    struct gpu_scope scope;
    int rc = gpu_enter(w->g, &scope, err);

    if (rc)
        return rc;
    rc = is_up ? CUDA_TRY(w->g->cu, copy_up, err, at, w->before, w->bytes,
                          w->g->streams[0])
               : CUDA_TRY(w->g->cu, copy_down, err, w->after, at, w->bytes,
                          w->g->streams[0]);
    gpu_leave(&scope);
    return rc;
}

static int bench_post(struct bench *w, struct err *err)
{
    struct batch_item items[ITEMS];
    uint8_t *base = w->arena;
    /* an allreduce has none: -1 where it was submitted, 0 where a rank has joined */
    const uint32_t root = w->a.coll != COLL_ALLREDUCE ? w->a.root
                          : has_input(w)              ? UINT32_MAX
                                                      : 0;
    struct batch batch = {.coll = w->a.coll,
                          .place = PLACE_CUDA,
                          .dtype = w->a.dtype,
                          .op = w->a.op,
                          .root = root,
                          .prescale = w->a.pre,
                          .postscale = w->a.post,
                          .items = items,
                          .n_items = w->a.n_items,
                          .region = w->a.is_registered};
    struct device_event *ready;
    uint64_t ticket;
    int rc = gpu_record(w->g, w->g->streams[0], &ready, err);

    for (size_t i = 0; i < w->a.n_items && !rc; i++) {
        const struct tensor *t = &w->t[i];

        items[i] = (struct batch_item){.in = has_input(w) ? base + t->in : NULL,
                                       .out = base + t->out,
                                       .count = part_count(&w->a, i, 0, 0),
                                       .counts = t->counts,
                                       .send_counts = t->send,
                                       .ready = ready};
        if (!has_input(w) && i % 2) /* its output is not read */
            items[i].out = NULL;
        if (w->a.coll == COLL_REDUCE && t->n_out == 0 && i % 2)
            items[i].out = NULL;
    }
    if (rc)
        return rc;
    rc = w->b->ops->post(w->b, &batch, &ticket, err);
    event_unref(ready);
    return rc ? rc : wait_ticket(w->b, ticket, 30, err);
}

/* Outputs are as expected, and nothing else has changed. */
static int bench_check(struct bench *w, struct err *err)
{
    const uint64_t size = dtype_size(w->a.dtype);
    const double more = w->a.op == OP_ADASUM ? 8 : 0; /* differences of such numbers */

    for (size_t i = 0; i < w->a.n_items; i++) {
        if (w->a.op == OP_ADASUM)
            vectors_adasum(w, i, w->t[i].n_out);
        for (uint64_t e = 0; e < w->t[i].n_out; e++) {
            const uint64_t at = w->t[i].out + e * size;
            const double is = value_get(w->a.dtype, w->after + at, 0),
                         to = value_expected(w, i, e);

            if (!has_input(w) && i % 2)
                break;
            if (!(fabs(is - to) <= slack_of(w->a.dtype) * (fabs(to) + more)))
                return err_set(err, -EIO, "tensor %zu[%llu] is %g, not %g", i,
                               (unsigned long long)e, is, to);
            memcpy(w->before + at, w->after + at, size);
        }
    }
    for (size_t i = 0; i < w->bytes; i++)
        if (w->before[i] != w->after[i])
            return err_set(err, -EIO, "byte %zu is overwritten", i);
    return 0;
}

/* --- registered buffers --- */

/* Outputs of the other collectives are the runtime's memory. */
static bool has_own_output(enum collective c)
{
    return c == COLL_ALLREDUCE || c == COLL_REDUCE || c == COLL_BROADCAST;
}

/* Every second batch of a case that registers. The fake compares what is registered
 * on all members. */
static void choose_region(struct bench *w)
{
    struct ask *a = &w->a;

    a->is_registered = the_case->registers && w->g->nccl->has_register && w->n_asked % 2
                       && !a->has_joined && a->op != OP_ADASUM
                       && a->coll != COLL_SENDRECV;
    if (a->is_registered && !has_own_output(a->coll))
        a->is_in_place = false;
}

static int bench_register(struct bench *w, struct err *err)
{
    uint8_t *out = (uint8_t *)w->arena + w->split;
    int rc = w->split ? comm_register(w->b, w->arena, w->split, err) : 0;

    if (!rc && has_own_output(w->a.coll))
        rc = comm_register(w->b, out, w->bytes - w->split, err);
    return rc;
}

static void bench_forget(struct bench *w)
{
    comm_forget(w->b, w->arena);
    if (has_own_output(w->a.coll))
        comm_forget(w->b, (uint8_t *)w->arena + w->split);
}

static int run_one(struct bench *w, char *said)
{
    struct err err = ERR_INIT;
    const struct ask *a = &w->a;

    if (++w->n_asked * 2654435761u >> 16 & w->mask)
        return 0;
    choose_region(w);
    int rc = lay_out(w) ? 0 : err_set(&err, -ENOSPC, "the arena is small");

    if (!rc)
        bench_fill(w);
    rc = rc ? rc : bench_copy(w, true, &err);
    if (!rc && a->is_registered)
        rc = bench_register(w, &err);
    rc = rc ? rc : bench_post(w, &err);
    if (!rc && a->is_registered)
        bench_forget(w);
    rc = rc ? rc : bench_copy(w, false, &err);
    rc = rc ? rc : bench_check(w, &err);
    return rc ? SAYS(
               "rank %u of %u: %s %s %s of %zu, scales %g %g, root %u%s%s%s%s%s%s: %s",
               w->me, w->n, collective_name(a->coll), dtype_name(a->dtype),
               reduce_op_name(a->op), a->n_items, a->pre, a->post, a->root,
               a->is_in_place ? ", in place" : "", a->is_uneven ? ", uneven" : "",
               a->has_joined ? ", joined" : "", a->is_tight ? ", tight" : "",
               a->is_wide ? ", wide" : "", a->is_registered ? ", registered" : "",
               err.text)
              : 0;
}

/* --- all of them --- */

/* All members have taken the memory of the test. */
static void bench_set_faults(struct bench *w, struct party *p)
{
    void (*set_faults)(const char *text);

    if (!the_case->late_faults)
        return;
    meet_all(p, 1);
    *(void **)&set_faults = fake_symbol("hvd_fake_set_faults");
    if (w->me == 0)
        set_faults(the_case->late_faults);
    meet_all(p, 2);
}

static int bench_begin(struct bench *w,
                       struct device *g,
                       struct backend *meeting,
                       struct party *p,
                       char *said)
{
    const struct backend_env env = env_of(g);
    struct err err = ERR_INIT;
    struct gpu_scope scope;

    w->g = g;
    w->me = env.rank;
    w->n = env.size;
    HOLDS(gpu_enter(g, &scope, &err) == 0);
    HOLDS(memory_take(g->memory, ARENA + PASSES * 16, g->streams[0], &w->memory, &err)
          == 0);
    w->arena = (void *)(uintptr_t)w->memory;
    HOLDS(launch_init(&w->launch, g->cu, kernels_image,
                      (size_t)(kernels_image_end - kernels_image), g->sm, 2, false,
                      &err)
          == 0);
    tables_init(&w->tables, g->cu, g->memory, &g->scratch, NULL, NULL);
    gpu_leave(&scope);
    g->launch = &w->launch;
    g->tables = &w->tables;
    bench_set_faults(w, p);
    HOLDS(comm_open(g, meeting, &env, case_ranks, &w->b, &err) == 0);
    return 0;
}

static int bench_end(struct bench *w, char *said)
{
    struct device *g = w->g;
    struct err err = ERR_INIT;
    struct gpu_scope scope;

    w->b->ops->close(w->b);
    HOLDS(launcher_drain(&g->launcher, clock_now_ns() + 10 * NS_PER_S) == 0);
    HOLDS(gpu_enter(g, &scope, &err) == 0);
    tables_release(&w->tables);
    launch_release(&w->launch);
    gpu_leave(&scope);
    gpu_free((void *)(uintptr_t)w->memory, g->streams[0]);
    return 0;
}

/* The body of all cases: runs the case's `bench`. */
MEMBER_BODY(bench_body)
{
    struct bench *w = mem_zalloc(sizeof(*w));
    int rc = w ? bench_begin(w, g, meeting, p, said) : SAYS("out of memory");

    rc = rc ? rc : the_case->bench(w, said);
    if (rc || the_case->aborts)
        return rc; /* the launcher may still use it */
    rc = bench_end(w, said);
    if (!rc)
        mem_free(w);
    return rc;
}

#endif

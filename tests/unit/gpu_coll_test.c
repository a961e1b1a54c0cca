/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of device memory on the fakes, by the row that libhvd.so sees, against
 * the cpu backend: random batches that are equal on all ranks up to addresses. */
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/backend/nccl/graph.h"
#include "runtime/core/half.h"
#include "tests/unit/gpu_members.h"
#include "tests/unit/seeded.h"

enum { N_REPEATED = 25 }; /* batches of a case with graphs */
enum { MAX_ITEMS = 24, MAX_ROUND_BYTES = 1 << 20 };

static const struct device_ops *const row = &hvd_cuda_device_ops;
static unsigned n_rounds = 150; /* of a case */

struct rounds { /* of one rank */
    struct backend *host, *gpu;
    struct device *d;
    uint32_t me, n;
    void *stream;
    struct seeded all, own; /* all: equal on all ranks */
};

struct round { /* one batch */
    struct batch batch;
    struct batch_item host[MAX_ITEMS], gpu[MAX_ITEMS];
    uint64_t counts[MAX_ITEMS][MAX_MEMBERS], sends[MAX_ITEMS][MAX_MEMBERS];
    uint64_t n_in[MAX_ITEMS], n_out[MAX_ITEMS]; /* elements of ours */
    size_t in_at[MAX_ITEMS], out_at[MAX_ITEMS]; /* bytes */
    size_t in_bytes, out_bytes;
    bool is_in_place, has_joined;
    uint8_t *in, *want, *got;
    uint8_t *dev_in, *dev_out;
};

/* --- what to do --- */

static uint64_t some_count(struct seeded *r)
{
    static const uint64_t counts[] = {0, 1, 3, 8, 16, 100, 1000, 5000};

    return counts[seeded_below(r, ARRAY_LEN(counts))];
}

static double some_scale(struct seeded *r)
{
    static const double scales[] = {1, 1, 1, 0.5, 3};

    return scales[seeded_below(r, ARRAY_LEN(scales))];
}

static uint64_t sum_counts(const uint64_t *v, uint32_t n)
{
    uint64_t s = 0;

    for (uint32_t i = 0; i < n; i++)
        s += v[i];
    return s;
}

/* even: elements to each; 0: some. */
static void draw_rows(struct rounds *t, struct round *d, size_t i, uint64_t even)
{
    for (uint32_t from = 0; from < t->n; from++)
        for (uint32_t to = 0; to < t->n; to++) {
            uint64_t k = even ? even : seeded_below(&t->all, 50);
            if (from == t->me)
                d->sends[i][to] = k;
            if (to == t->me)
                d->counts[i][from] = k;
        }
    d->n_in[i] = sum_counts(d->sends[i], t->n);
    d->n_out[i] = sum_counts(d->counts[i], t->n);
    d->host[i].send_counts = d->sends[i];
}

static void draw_item(struct rounds *t, struct round *d, size_t i)
{
    const bool is_even = seeded_below(&t->all, 2);
    uint64_t first = some_count(&t->all);

    d->host[i] = (struct batch_item){.count = first};
    for (uint32_t j = 0; j < t->n; j++)
        d->counts[i][j] = is_even ? first : seeded_below(&t->all, 50);
    d->n_in[i] = d->n_out[i] = first;
    if (d->batch.coll == COLL_ALLGATHER || d->batch.coll == COLL_GATHER) {
        d->n_in[i] = d->counts[i][t->me];
        d->n_out[i] = sum_counts(d->counts[i], t->n);
    } else if (d->batch.coll == COLL_REDUCESCATTER) {
        d->n_in[i] = sum_counts(d->counts[i], t->n);
        d->n_out[i] = d->counts[i][t->me];
    } else if (d->batch.coll == COLL_ALLTOALL) {
        draw_rows(t, d, i, is_even ? first : 0);
    } else {
        return;
    }
    d->host[i].count = d->n_in[i];
    d->host[i].counts = d->counts[i];
}

static void round_draw(struct rounds *t, struct round *d)
{
    static const enum collective colls[] = {
        COLL_ALLREDUCE, COLL_ALLREDUCE,     COLL_ALLREDUCE,
        COLL_REDUCE,    COLL_BROADCAST,     COLL_ALLGATHER,
        COLL_GATHER,    COLL_REDUCESCATTER, COLL_ALLTOALL};
    static const size_t n_items[] = {1, 1, 2, 3, MAX_ITEMS};
    struct batch *b = &d->batch;

    memset(d, 0, sizeof(*d));
    b->coll = colls[seeded_below(&t->all, ARRAY_LEN(colls))];
    b->n_items = n_items[seeded_below(&t->all, ARRAY_LEN(n_items))];
    b->root = seeded_below(&t->all, t->n);
    b->prescale = some_scale(&t->all);
    b->postscale = some_scale(&t->all);
    do {
        b->dtype = (enum dtype)seeded_below(&t->all, DT_COUNT);
        b->op = (enum reduce_op)seeded_below(&t->all, OP_COUNT);
    } while (b->op == OP_ADASUM || !reduction_supported(b->op, b->dtype));
    if (b->coll == COLL_ALLGATHER || b->coll == COLL_ALLTOALL
        || b->coll == COLL_REDUCESCATTER || b->coll == COLL_GATHER)
        b->n_items = b->n_items > 3 ? 3 : b->n_items;
    d->has_joined = b->coll == COLL_ALLREDUCE && seeded_below(&t->all, 6) == 0
                    && seeded_below(&t->all, t->n) == t->me;
    d->is_in_place = (b->coll == COLL_ALLREDUCE || b->coll == COLL_REDUCE
                      || b->coll == COLL_BROADCAST)
                     && seeded_below(&t->own, 2);
    for (size_t i = 0; i < b->n_items; i++)
        draw_item(t, d, i);
}

/* --- values --- */

static void value_put(enum dtype t, void *p, size_t i, uint32_t v)
{
    switch (t) {
    case DT_F16:
        ((uint16_t *)p)[i] = f16_of_f32((float)(v % 16) / 4 - 2);
        break;
    case DT_BF16:
        ((uint16_t *)p)[i] = bf16_of_f32((float)(v % 16) / 4 - 2);
        break;
    case DT_F32:
        ((float *)p)[i] = (float)(v % 1000) / 8 - 60;
        break;
    case DT_F64:
        ((double *)p)[i] = (double)(v % 1000) / 8 - 60;
        break;
    case DT_BOOL:
        ((uint8_t *)p)[i] = v % 3 == 0;
        break;
    case DT_U8:
    case DT_I8:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    case DT_U16:
    case DT_I16:
        ((uint16_t *)p)[i] = (uint16_t)v;
        break;
    case DT_I32:
        ((uint32_t *)p)[i] = v;
        break;
    case DT_I64:
        ((uint64_t *)p)[i] = (uint64_t)v << (v % 32);
        break;
    case DT_COUNT:
        break;
    }
}

static double value_get(enum dtype t, const void *p, size_t i)
{
    if (t == DT_F16)
        return (double)f32_of_f16(((const uint16_t *)p)[i]);
    if (t == DT_BF16)
        return (double)f32_of_bf16(((const uint16_t *)p)[i]);
    return t == DT_F32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static bool is_float(enum dtype t)
{
    return t == DT_F16 || t == DT_BF16 || t == DT_F32 || t == DT_F64;
}

static bool are_same(const struct batch *b, const void *want, const void *got, size_t n)
{
    const size_t size = dtype_size(b->dtype);
    const bool reduces = b->coll == COLL_ALLREDUCE || b->coll == COLL_REDUCE
                         || b->coll == COLL_REDUCESCATTER;

    if (!is_float(b->dtype) || !reduces)
        return memcmp(want, got, n * size) == 0;
    for (size_t i = 0; i < n; i++) {
        double x = value_get(b->dtype, want, i), y = value_get(b->dtype, got, i);
        double unit = size == 2 ? 0.02 : 1e-5;

        if (fabs(x - y) > unit * (4 + fabs(x)) && !(x == y))
            return false;
    }
    return true;
}

/* --- memory --- */

/* Items lie one behind the other, or with gaps of this rank's own. */
static void lay_out(struct rounds *t, struct round *d)
{
    const size_t size = dtype_size(d->batch.dtype);
    const bool has_gaps = seeded_below(&t->own, 2);

    for (size_t i = 0; i < d->batch.n_items; i++) {
        d->in_at[i] = d->in_bytes;
        d->out_at[i] = d->out_bytes;
        size_t gap = has_gaps ? size * seeded_below(&t->own, 9) : 0;
        d->in_bytes += d->n_in[i] * size + gap;
        d->out_bytes += d->n_out[i] * size + gap;
    }
    if (d->is_in_place)
        memcpy(d->out_at, d->in_at, sizeof(d->in_at));
}

static int round_copy(struct rounds *t, bool is_up, void *dev, void *host, size_t n)
{
    struct gpu_scope scope;
    struct device *g = t->d;

    if (gpu_enter(g, &scope, NULL))
        return -EIO;
    int rc = is_up ? g->cu->copy_up((cu_ptr)(uintptr_t)dev, host, n, t->stream)
                   : g->cu->copy_down(host, (cu_ptr)(uintptr_t)dev, n, t->stream);
    gpu_leave(&scope);
    return rc;
}

static int round_fill(struct rounds *t, struct round *d, struct err *err)
{
    const struct batch *b = &d->batch;

    d->in = mem_zalloc(d->in_bytes + 64);
    d->want = mem_zalloc(d->out_bytes + 64);
    d->got = mem_zalloc(d->out_bytes + 64);
    for (size_t i = 0; i < b->n_items && !d->has_joined; i++)
        for (uint64_t k = 0; k < d->n_in[i]; k++)
            value_put(b->dtype, d->in + d->in_at[i], k, (uint32_t)seeded_next(&t->own));
    int rc = alloc_on(row, t->d, d->in_bytes + 64, t->stream, (void **)&d->dev_in, err);
    if (!rc)
        rc = alloc_on(row, t->d, d->out_bytes + 64, t->stream, (void **)&d->dev_out,
                      err);
    if (!rc)
        rc = round_copy(t, true, d->dev_in, d->in, d->in_bytes);
    for (size_t i = 0; i < b->n_items && !rc; i++) {
        struct batch_item *h = &d->host[i], *g = &d->gpu[i];

        h->in = d->in + d->in_at[i];
        h->out = d->want + d->out_at[i];
        *g = *h;
        g->in = d->has_joined ? NULL : d->dev_in + d->in_at[i];
        g->out = d->has_joined    ? NULL
                 : d->is_in_place ? d->dev_in + d->in_at[i]
                                  : d->dev_out + d->out_at[i];
        if ((b->coll == COLL_REDUCE || b->coll == COLL_GATHER) && b->root != t->me) {
            h->out = NULL;
            g->out = NULL;
        }
    }
    return rc;
}

static void round_drop(struct rounds *t, struct round *d)
{
    row->free(d->dev_in, t->stream);
    row->free(d->dev_out, t->stream);
    mem_free(d->in);
    mem_free(d->want);
    mem_free(d->got);
}

/* --- a round --- */

static int run_gpu(struct rounds *t, struct round *d, struct err *err)
{
    struct device_event *ready = NULL;
    uint64_t ticket;
    int rc = row->record(t->d, t->stream, &ready, err);

    if (rc)
        return rc;
    d->batch.items = d->gpu;
    d->batch.place = PLACE_CUDA;
    for (size_t i = 0; i < d->batch.n_items; i++)
        d->gpu[i].ready = ready;
    rc = t->gpu->ops->post(t->gpu, &d->batch, &ticket, err);
    row->event_unref(ready);
    struct device_event *done = rc ? NULL : row->ticket_event(t->gpu, ticket);
    if (done) /* the user's stream goes on behind it */
        rc = row->wait(t->d, done, t->stream, clock_now_ns() + 20 * NS_PER_S, err);
    row->event_unref(done);
    return rc ? rc : wait_ticket(t->gpu, ticket, 20, err);
}

static int run_host(struct rounds *t, struct round *d, struct err *err)
{
    uint64_t ticket, done;

    d->batch.items = d->host;
    d->batch.place = PLACE_HOST;
    int rc = t->host->ops->post(t->host, &d->batch, &ticket, err);
    return rc ? rc : t->host->ops->poll(t->host, &done, err);
}

static int round_compare(struct rounds *t, struct round *d, unsigned k, char *said)
{
    const struct batch *b = &d->batch;
    uint8_t *from = d->is_in_place ? d->dev_in : d->dev_out;

    if (round_copy(t, false, from, d->got, d->out_bytes))
        return SAYS("copy");
    for (size_t i = 0; i < b->n_items; i++)
        if (d->gpu[i].out
            && !are_same(b, d->want + d->out_at[i], d->got + d->out_at[i], d->n_out[i]))
            return SAYS("rank %u of %u, round %u: %s %s %s x %g %g, item %zu of %zu, "
                        "%llu elements, root %u, in place %d",
                        t->me, t->n, k, collective_name(b->coll), dtype_name(b->dtype),
                        reduce_op_name(b->op), b->prescale, b->postscale, i, b->n_items,
                        (unsigned long long)d->n_out[i], b->root, d->is_in_place);
    return 0;
}

/* Inputs are registered, and outputs but those whose memory is the runtime's; the fake
 * compares that of all members. */
static bool has_own_output(enum collective coll)
{
    return coll == COLL_ALLREDUCE || coll == COLL_BROADCAST || coll == COLL_REDUCE;
}

static int in_region(struct rounds *t, struct round *d, struct err *err)
{
    int rc = row->buffer_register(t->gpu, d->dev_in, d->in_bytes + 64, err);

    if (!rc && has_own_output(d->batch.coll))
        rc = row->buffer_register(t->gpu, d->dev_out, d->out_bytes + 64, err);
    if (!rc)
        d->batch.region = 1;
    return rc;
}

static void drop_region(struct rounds *t, struct round *d)
{
    if (d->batch.region == 0)
        return;
    row->buffer_forget(t->gpu, d->dev_in);
    if (has_own_output(d->batch.coll))
        row->buffer_forget(t->gpu, d->dev_out);
}

static int one_round(struct rounds *t, unsigned k, char *said)
{
    const bool is_in_region = the_case->registers && k % 2 == 1;
    struct err err = ERR_INIT;
    struct round d;

    round_draw(t, &d);
    if (is_in_region) /* who has joined has no memory there */
        d.has_joined = false;
    lay_out(t, &d);
    int rc = round_fill(t, &d, &err);
    if (!rc)
        rc = run_host(t, &d, &err);
    if (!rc && is_in_region)
        rc = in_region(t, &d, &err);
    if (!rc)
        rc = run_gpu(t, &d, &err);
    if (rc)
        (void)SAYS("rank %u, round %u, %s: %s", t->me, k, collective_name(d.batch.coll),
                   err.text);
    if (!rc && !d.has_joined)
        rc = round_compare(t, &d, k, said);
    drop_region(t, &d);
    round_drop(t, &d);
    return rc;
}

static bool has_replayed(struct backend *gpu)
{
    const struct graphs *v = ((struct comm *)(void *)gpu)->graphs;
    uint64_t n_captured = 0, n_replayed = 0;

    for (uint32_t i = 0; v && i < GPU_MAX_STREAMS; i++) {
        n_captured += v[i].n_captured;
        n_replayed += v[i].n_replayed;
    }
    return n_captured > 0 && n_replayed > 2 * n_captured;
}

/* After an abort, in time. */
static bool has_no_graphs(struct rounds *t)
{
    const uint64_t deadline_ns = clock_now_ns() + 20 * NS_PER_S;

    while (atomic_load(&t->d->life) != GPU_ENDED) {
        if (clock_now_ns() > deadline_ns)
            return false;
        usleep(1000);
    }
    return !((struct comm *)(void *)t->gpu)->graphs;
}

static int
rounds_body(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const struct device_config config = {
        .rank = me,
        .size = p->size,
        .local_rank = me,
        .n_streams = the_case->n_streams ? the_case->n_streams : 1,
        .direct_bytes = 3000,
        .is_deterministic = the_case->is_deterministic,
        .uses_graphs = the_case->uses_graphs,
        .registers = the_case->registers,
        .init_timeout_ns = 30 * NS_PER_S,
        .pool_bytes = 1u << 20,
    };
    const struct backend_env env = {.rank = me, .size = p->size};
    struct rounds t = {.host = meeting,
                       .me = me,
                       .n = p->size,
                       .all = {p->size + config.n_streams * 100},
                       .own = {me + 1000}};
    struct err err = ERR_INIT;

    if (row->open(&config, (int)me, &t.d, &err))
        return SAYS("open: %s", err.text);
    int rc = row->comm_open(t.d, meeting, &env, case_ranks, &t.gpu, &err);
    if (rc)
        (void)SAYS("comm_open: %s", err.text);
    /* all graphs are replayed often */
    const unsigned n = config.uses_graphs ? n_rounds : n_rounds / FEWER;
    for (unsigned k = 0; k < n && !rc; k++) {
        if (config.uses_graphs) /* the same ones over and over, at other addresses */
            t.all = (struct seeded){k % N_REPEATED};
        rc = one_round(&t, k, said);
    }
    if (!rc && config.uses_graphs && !has_replayed(t.gpu))
        rc = SAYS("rank %u: no graph was replayed", me);
    if (rc || the_case->aborts)
        row->abort(t.d);
    else
        t.gpu->ops->close(t.gpu);
    if (!rc && the_case->aborts && !has_no_graphs(&t))
        rc = SLOW("rank %u: graphs were left", me); /* so by a launcher that is late */
    struct device_parked *parked;
    if (row->close(t.d, &parked) && !rc)
        return SAYS("close");
    return rc;
}

static void random_batches_of(uint32_t n)
{
    run_case(&(struct gpu_case){.n = n, .row_body = rounds_body});
}

static void batches_of_one(void **state)
{
    (void)state;
    random_batches_of(1);
}

static void batches_of_two(void **state)
{
    (void)state;
    random_batches_of(2);
}

static void batches_of_three(void **state)
{
    (void)state;
    random_batches_of(3);
}

static void batches_of_five(void **state)
{
    (void)state;
    n_rounds = 60;
    random_batches_of(5);
}

static void batches_on_several_streams(void **state)
{
    (void)state;
    n_rounds = 60;
    run_case(&(struct gpu_case){.n = 2, .n_streams = 3, .row_body = rounds_body});
    run_case(&(struct gpu_case){
        .n = 2, .n_streams = 2, .version = "21706", .row_body = rounds_body});
}

static void batches_that_may_not_depend_on_fusion(void **state)
{
    (void)state;
    run_case(
        &(struct gpu_case){.n = 3, .is_deterministic = true, .row_body = rounds_body});
}

/* Every second one is of registered buffers, the others go by one that is. */
static void batches_of_registered_memory(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 3; n++)
        run_case(
            &(struct gpu_case){.n = n, .registers = true, .row_body = rounds_body});
    n_rounds = 80;
    run_case(&(struct gpu_case){
        .n = 2, .n_streams = 2, .registers = true, .row_body = rounds_body});
    n_rounds = 400;
    run_case(&(struct gpu_case){
        .n = 3, .registers = true, .uses_graphs = true, .row_body = rounds_body});
    n_rounds = 80;
    run_case(&(struct gpu_case){/* an older one: terms that mean nothing */
                                .n = 2,
                                .version = "21804",
                                .row_body = rounds_body});
}

static void batches_as_graphs(void **state)
{
    (void)state;
    n_rounds = 400;
    run_case(&(struct gpu_case){.n = 2, .uses_graphs = true, .row_body = rounds_body});
    run_case(&(struct gpu_case){
        .n = 3, .n_streams = 2, .uses_graphs = true, .row_body = rounds_body});
    run_case(&(struct gpu_case){.n = 3,
                                .is_deterministic = true,
                                .uses_graphs = true,
                                .row_body = rounds_body});
}

static void abort_ends_graphs_before_communicators(void **state)
{
    (void)state;
    n_rounds = 300;
    run_case(&(struct gpu_case){
        .n = 2, .uses_graphs = true, .aborts = true, .row_body = rounds_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_of_one),
        cmocka_unit_test(batches_of_two),
        cmocka_unit_test(batches_of_three),
        cmocka_unit_test(batches_of_five),
        cmocka_unit_test(batches_on_several_streams),
        cmocka_unit_test(batches_that_may_not_depend_on_fusion),
        cmocka_unit_test(batches_of_registered_memory),
        cmocka_unit_test(batches_as_graphs),
        cmocka_unit_test(abort_ends_graphs_before_communicators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

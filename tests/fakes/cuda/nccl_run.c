/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel: the calls of one group on one communicator, run on the stream's thread.
 * Every collective starts with an exchange of its signature with all members, and
 * every send is preceded by its signature: a mismatch ends the test with a message.
 * Members reduce in their order, step by step in the element's type, so all get the
 * same bits.
 *
 * Kernels of one communicator run in the order of their launches, whatever streams
 * they are on. Nothing runs on a communicator that is aborted or revoked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/core/half.h"
#include "tests/fakes/cuda/nccl_fake.h"

static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

size_t fake_dtype_bytes(uint32_t dtype)
{
    return dtype < sizeof(sizes) / sizeof(sizes[0]) ? sizes[dtype] : 0;
}

void fake_sign_text(const struct fake_sign *s, char *ret, size_t bytes)
{
    static const char *const colls[] = {"nothing",   "AllReduce", "Reduce",
                                        "Broadcast", "AllGather", "ReduceScatter",
                                        "Send",      "Recv",      "Split"};
    static const char *const dtypes[] = {"i8",  "u8",  "i32", "u32", "i64",
                                         "u64", "f16", "f32", "f64", "bf16"};
    static const char *const ops[] = {"sum", "prod", "max", "min", "avg"};

    (void)snprintf(
        ret, bytes, "%s of %llu %s, %s, root %u%s%s",
        s->coll <= FAKE_SPLIT ? colls[s->coll] : "?", (unsigned long long)s->count,
        s->dtype < 10 ? dtypes[s->dtype] : "?", s->op < 5 ? ops[s->op] : "?", s->root,
        s->is_captured ? ", captured" : "", s->is_registered ? ", registered" : "");
}

/* --- arithmetic --- */

#define FOLD_INT(a, b, op, type)                                                       \
    ((op) == NCCL_PROD  ? (type)((uint64_t)(a) * (uint64_t)(b))                        \
     : (op) == NCCL_MAX ? ((a) > (b) ? (a) : (b))                                      \
     : (op) == NCCL_MIN ? ((a) < (b) ? (a) : (b))                                      \
                        : (type)((uint64_t)(a) + (uint64_t)(b)))
#define EACH_INT(type)                                                                 \
    for (size_t i = 0; i < n; i++)                                                     \
        ((type *)acc)[i] =                                                             \
            FOLD_INT(((type *)acc)[i], ((const type *)in)[i], op, type);               \
    break

/* Of a NaN and a number the least and the greatest is the number, as NCCL's. */
static double fold_real(double a, double b, uint32_t op)
{
    switch (op) {
    case NCCL_PROD:
        return a * b;
    case NCCL_MAX:
        return a > b || b != b ? a : b;
    case NCCL_MIN:
        return a < b || b != b ? a : b;
    default:
        return a + b;
    }
}

static void
values_fold(void *acc, const void *in, size_t n, uint32_t dtype, uint32_t op)
{
    uint16_t *h = acc;
    const uint16_t *g = in;

    switch (dtype) {
    case NCCL_I8:
        EACH_INT(int8_t);
    case NCCL_U8:
        EACH_INT(uint8_t);
    case NCCL_I32:
        EACH_INT(int32_t);
    case NCCL_U32:
        EACH_INT(uint32_t);
    case NCCL_I64:
        EACH_INT(int64_t);
    case NCCL_U64:
        EACH_INT(uint64_t);
    case NCCL_F16:
        for (size_t i = 0; i < n; i++)
            h[i] = f16_of_f32((float)fold_real((double)f32_of_f16(h[i]),
                                               (double)f32_of_f16(g[i]), op));
        break;
    case NCCL_BF16:
        for (size_t i = 0; i < n; i++)
            h[i] = bf16_of_f32((float)fold_real((double)f32_of_bf16(h[i]),
                                                (double)f32_of_bf16(g[i]), op));
        break;
    case NCCL_F32:
        for (size_t i = 0; i < n; i++)
            ((float *)acc)[i] = (float)fold_real((double)((float *)acc)[i],
                                                 (double)((const float *)in)[i], op);
        break;
    default:
        for (size_t i = 0; i < n; i++)
            ((double *)acc)[i] =
                fold_real(((double *)acc)[i], ((const double *)in)[i], op);
    }
}

static void values_average(void *acc, size_t n, uint32_t dtype, int members)
{
    uint16_t *h = acc;

    for (size_t i = 0; i < n; i++)
        switch (dtype) {
        case NCCL_F16:
            h[i] = f16_of_f32(f32_of_f16(h[i]) / (float)members);
            break;
        case NCCL_BF16:
            h[i] = bf16_of_f32(f32_of_bf16(h[i]) / (float)members);
            break;
        case NCCL_F32:
            ((float *)acc)[i] /= (float)members;
            break;
        case NCCL_F64:
            ((double *)acc)[i] /= members;
            break;
        default:
            fake_die("an average of integers, which we never ask for");
        }
}

/* --- collectives --- */

/* Which elements of whose input member `at` needs: from, n; false: none. */
static bool part_for(const struct fake_op *op, int at, int of, size_t *from, size_t *n)
{
    *from = 0;
    *n = op->sign.count;
    switch ((enum fake_coll)op->sign.coll) {
    case FAKE_ALL_REDUCE:
    case FAKE_ALL_GATHER:
        return true;
    case FAKE_REDUCE:
        return at == (int)op->sign.root;
    case FAKE_BROADCAST:
        return of == (int)op->sign.root;
    case FAKE_REDUCE_SCATTER:
        *from = (size_t)at * op->sign.count;
        return true;
    case FAKE_SEND:
    case FAKE_RECV:
    case FAKE_SPLIT:
        break;
    }
    return false;
}

static int exchange_signs(struct nccl_comm_s *c, const struct fake_op *op)
{
    struct fake_xfer v[2 * FAKE_MAX_MEMBERS];
    struct fake_sign theirs[FAKE_MAX_MEMBERS], ours = op->sign;
    size_t n = 0;

    for (int i = 0; i < c->n; i++)
        if (i != c->rank) {
            v[n++] = (struct fake_xfer){i, true, NULL, &ours, sizeof(ours), 0};
            v[n++] =
                (struct fake_xfer){i, false, &op->sign, &theirs[i], sizeof(ours), 0};
        }
    return fake_net_run(c, v, n);
}

/* all: room for each member's part, in member order; ours is copied. */
static int
exchange_data(struct nccl_comm_s *c, const struct fake_op *op, char *all, size_t size)
{
    struct fake_xfer v[2 * FAKE_MAX_MEMBERS];
    size_t n = 0, from, count;

    for (int i = 0; i < c->n; i++) {
        if (part_for(op, i, c->rank, &from, &count) && i != c->rank && count)
            v[n++] = (struct fake_xfer){
                i, true, NULL, (char *)(uintptr_t)op->in + from * size, count * size,
                0};
        if (!part_for(op, c->rank, i, &from, &count) || !count)
            continue;
        char *place = all + (size_t)i * op->sign.count * size;
        if (i == c->rank)
            memcpy(place, (const char *)op->in + from * size, count * size);
        else
            v[n++] = (struct fake_xfer){i, false, NULL, place, count * size, 0};
    }
    return fake_net_run(c, v, n);
}

static void op_finish(struct nccl_comm_s *c, const struct fake_op *op, char *all)
{
    const struct fake_sign *s = &op->sign;
    const size_t bytes = s->count * fake_dtype_bytes(s->dtype);
    size_t from, count;

    if (s->coll == FAKE_ALL_GATHER) {
        memcpy(op->out, all, bytes * (size_t)c->n);
        return;
    }
    if (s->coll == FAKE_BROADCAST) {
        memcpy(op->out, all + s->root * bytes, bytes);
        return;
    }
    if (!part_for(op, c->rank, 0, &from, &count))
        return;
    for (int i = 1; i < c->n; i++)
        values_fold(all, all + (size_t)i * bytes, s->count, s->dtype, s->op);
    if (s->op == NCCL_AVG)
        values_average(all, s->count, s->dtype, c->n);
    memcpy(op->out, all, bytes);
}

static int run_collective(struct nccl_comm_s *c, const struct fake_op *op)
{
    const size_t size = fake_dtype_bytes(op->sign.dtype);
    char *all = fake_zalloc(op->sign.count * size * (size_t)c->n + 1);
    int rc = exchange_signs(c, op);

    if (!rc)
        rc = exchange_data(c, op, all, size);
    if (!rc && op->sign.count)
        op_finish(c, op, all);
    free(all);
    return rc;
}

/* --- send and receive, all of a group at once --- */

static void copy_own(struct fake_kernel *k)
{
    size_t r = 0;

    for (size_t i = 0; i < k->n; i++) {
        if (k->ops[i].sign.coll != FAKE_SEND || k->ops[i].peer != k->c->rank)
            continue;
        while (r < k->n
               && (k->ops[r].sign.coll != FAKE_RECV || k->ops[r].peer != k->c->rank))
            r++;
        if (r == k->n || k->ops[r].sign.count != k->ops[i].sign.count)
            fake_die("member %d sends itself what it does not receive", k->c->rank);
        memcpy(k->ops[r].out, k->ops[i].in,
               k->ops[i].sign.count * fake_dtype_bytes(k->ops[i].sign.dtype));
        r++;
    }
}

static int run_pairs(struct fake_kernel *k)
{
    struct fake_xfer *v = fake_zalloc(2 * k->n * sizeof(*v));
    struct fake_sign *signs = fake_zalloc(2 * k->n * sizeof(*signs));
    size_t n = 0;

    for (size_t i = 0; i < k->n; i++) {
        const struct fake_op *op = &k->ops[i];
        const bool is_send = op->sign.coll == FAKE_SEND;
        const size_t bytes = op->sign.count * fake_dtype_bytes(op->sign.dtype);

        if ((!is_send && op->sign.coll != FAKE_RECV) || op->peer == k->c->rank)
            continue;
        signs[i] = signs[k->n + i] = op->sign;
        signs[i].coll = signs[k->n + i].coll = FAKE_SEND; /* what it is for both */
        v[n++] = (struct fake_xfer){
            op->peer,  is_send,        is_send ? NULL : &signs[k->n + i],
            &signs[i], sizeof(*signs), 0};
        if (bytes)
            v[n++] = (struct fake_xfer){
                op->peer, is_send, NULL, is_send ? (void *)(uintptr_t)op->in : op->out,
                bytes,    0};
    }
    int rc = fake_net_run(k->c, v, n);
    free(v);
    free(signs);
    return rc;
}

static int run_all(struct fake_kernel *k)
{
    bool has_pairs = false;
    int rc = NCCL_OK;

    for (size_t i = 0; i < k->n && !rc; i++)
        if (k->ops[i].sign.coll == FAKE_SEND || k->ops[i].sign.coll == FAKE_RECV)
            has_pairs = true;
        else
            rc = run_collective(k->c, &k->ops[i]);
    if (!rc && has_pairs) {
        copy_own(k);
        rc = run_pairs(k);
    }
    return rc;
}

/* --- the kernel --- */

/* False: the communicator is stopped. */
static bool kernel_begin(struct fake_kernel *k)
{
    struct nccl_comm_s *c = k->c;

    LOCK_HERE(&c->lock);
    for (;;) {
        if (c->is_dead || c->is_revoked || fake_is_stopped(c))
            return false;
        if (k->is_captured ? c->n_begun == c->n_ended : c->n_ended >= k->number)
            break;
        pthread_mutex_unlock(&c->lock); /* behind one of another stream */
        (void)fake_sleep_us(c, 50);
        pthread_mutex_lock(&c->lock);
    }
    c->n_begun++;
    c->n_running++;
    return true;
}

static void kernel_end(struct fake_kernel *k, int rc)
{
    struct nccl_comm_s *c = k->c;

    pthread_mutex_lock(&c->lock);
    if (rc == NCCL_REMOTE && fake_fault_is("peer_death=error"))
        c->async = NCCL_REMOTE;
    pthread_mutex_unlock(&c->lock);
    if (rc)
        fake_hang(c);
    pthread_mutex_lock(&c->lock);
    c->n_ended++;
    c->n_running--;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static int kernel_fault(struct fake_kernel *k)
{
    struct nccl_comm_s *c = k->c;
    const int code = fake_fault("async_error", c->rank, k->number);

    if (fake_fault("nccl_hang", c->rank, k->number))
        return NCCL_INTERNAL;
    if (!code)
        return NCCL_OK;
    fake_set_error("member %d of %s: an injected error", c->rank, c->name);
    LOCK_HERE(&c->lock);
    c->async = code;
    return code;
}

int fake_run(void *arg)
{
    struct fake_kernel *k = *(struct fake_kernel **)arg;

    if (kernel_begin(k)) {
        int rc = kernel_fault(k);

        kernel_end(k, rc ? rc : run_all(k));
    }
    if (!k->is_captured)
        free(k);
    return CU_OK;
}

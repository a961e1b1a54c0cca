/* SPDX-License-Identifier: Apache-2.0 */
/* The symbols of collectives and groups. A group belongs to the thread; at its end the
 * calls of each communicator become one kernel on their stream. On a non-blocking
 * communicator the end is ncclInProgress where it is in real NCCL: at first use
 * (connections), and from 2.23.4 always (a thread per group). Mutable globals: the log
 * of kernels, and those that graphs hold, under a lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/cuda/nccl_fake.h"

#define MAX_CALLS 4096

struct call {
    nccl_comm c;
    cu_stream s;
    struct fake_op op;
};

static _Thread_local struct call *calls;
static _Thread_local size_t n_calls;
static _Thread_local int depth;
static _Thread_local int group_error; /* of a call of the group: none is launched */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *lines;                   /* under lock */
static size_t n_bytes, room;          /* under lock */
static struct fake_kernel *of_graphs; /* under lock */

/* --- the log --- */

static void kernel_log(const struct fake_kernel *k)
{
    char line[192], what[128];

    LOCK_HERE(&lock);
    for (size_t i = 0; i < k->n; i++) {
        fake_sign_text(&k->ops[i].sign, what, sizeof(what));
        int n = snprintf(line, sizeof(line), "%d/%d %s%s\n", k->c->rank, k->c->n,
                         i ? "+ " : "", what);
        if (n_bytes + (size_t)n + 1 > room) {
            room = 2 * room + 4096;
            char *more = realloc(lines, room);
            if (!more)
                fake_die("out of memory");
            lines = more;
        }
        memcpy(lines + n_bytes, line, (size_t)n + 1);
        n_bytes += (size_t)n;
    }
}

char *fake_nccl_log(int rank)
{
    char mine[16], *at = NULL;

    pthread_mutex_lock(&lock);
    char *copy = strdup(lines ? lines : ""), *ret = fake_zalloc(n_bytes + 1);
    pthread_mutex_unlock(&lock);
    (void)snprintf(mine, sizeof(mine), "%d/", rank);
    if (!copy)
        fake_die("out of memory");
    for (char *l = strtok_r(copy, "\n", &at); l; l = strtok_r(NULL, "\n", &at))
        if (strncmp(l, mine, strlen(mine)) == 0) {
            strcat(ret, l + strlen(mine));
            strcat(ret, "\n");
        }
    free(copy);
    return ret;
}

/* --- launches --- */

/* Real NCCL reads and writes there when the kernel runs. */
static void need_memory(const struct fake_kernel *k, const struct fake_op *op)
{
    const struct fake_driver *d = fake_driver();
    size_t in, out;

    fake_op_bytes(k->c, op, &in, &out);
    if (d->need_device) {
        d->need_device("NCCL's input", op->in, in);
        d->need_device("NCCL's output", op->out, out);
    }
}

static bool is_registered(const struct nccl_comm_s *c, const void *at)
{
    const char *p = at;

    for (size_t r = 0; r < sizeof(c->regions) / sizeof(c->regions[0]); r++) {
        const struct fake_region *g = &c->regions[r];
        if (g->p && p >= g->p && p < g->p + g->bytes)
            return true;
    }
    return false;
}

/* What is sent from counts 1, what is received into 2; memory that a call does not use
 * on this member is as the other one. The ends of a transfer differ as they like. */
static void mark_registered(const struct fake_kernel *k, struct fake_op *op)
{
    const bool is_root = op->sign.root == (uint32_t)k->c->rank;
    bool in = is_registered(k->c, op->in), out = is_registered(k->c, op->out);

    if (op->sign.coll == FAKE_SEND || op->sign.coll == FAKE_RECV)
        return;
    if (op->sign.coll == FAKE_REDUCE && !is_root)
        out = in;
    if (op->sign.coll == FAKE_BROADCAST && !is_root)
        in = out;
    op->sign.is_registered = (uint32_t)in + 2 * (uint32_t)out;
}

static void kernel_mark(struct fake_kernel *k)
{
    const struct fake_driver *d = fake_driver();

    k->is_captured = d->is_capturing && d->is_capturing(k->s);
    for (size_t i = 0; i < k->n; i++) {
        struct fake_op *op = &k->ops[i];

        need_memory(k, op);
        op->sign.is_captured = k->is_captured;
        mark_registered(k, op);
    }
    if (!k->is_captured)
        return;
    LOCK_HERE(&lock);
    k->next = of_graphs;
    of_graphs = k;
}

static int put_on_stream(void *arg)
{
    struct fake_kernel *k = arg;
    struct nccl_comm_s *c = k->c;

    if (fake_fault("enqueue_hang", c->rank, k->number)) {
        fake_hang(c);
        free(k);
        return NCCL_INTERNAL;
    }
    kernel_mark(k);
    kernel_log(k);
    int rc = fake_driver()->launch(k->s, fake_run, &k, sizeof(k));
    if (rc == CU_OK)
        return NCCL_OK;
    fake_set_error("launch of a kernel: CUDA result %d", rc);
    free(k);
    return NCCL_CUDA;
}

/* All calls of c in the group; they are taken out. */
static struct fake_kernel *kernel_of(nccl_comm c)
{
    struct fake_kernel *k = fake_zalloc(sizeof(*k) + n_calls * sizeof(k->ops[0]));

    k->c = c;
    for (size_t i = 0; i < n_calls; i++) {
        if (calls[i].c != c)
            continue;
        if (k->n && k->s != calls[i].s)
            fake_die("a group with two streams on one communicator");
        k->s = calls[i].s;
        k->ops[k->n++] = calls[i].op;
        calls[i].c = NULL;
    }
    return k;
}

static int comm_launch(nccl_comm c)
{
    struct fake_kernel *k = kernel_of(c);

    fake_enter(c, "ncclGroupEnd", 0, 0);
    fake_check_overlap(k);
    fake_join(c);
    pthread_mutex_lock(&c->lock);
    k->number = c->n_launched++;
    bool is_at_once = c->is_used && fake_version() < 22304;
    c->is_used = true;
    pthread_mutex_unlock(&c->lock);
    int rc = fake_keep_error(c, fake_do(c, put_on_stream, k, is_at_once));
    fake_leave(c);
    return rc;
}

static void group_clear(void)
{
    free(calls);
    calls = NULL;
    n_calls = 0;
    group_error = NCCL_OK;
}

/* All of its communicators have the error then. */
static int group_drop(void)
{
    const int rc = group_error;

    for (size_t i = 0; i < n_calls; i++)
        (void)fake_keep_error(calls[i].c, rc);
    group_clear();
    return rc;
}

int ncclGroupStart(void)
{
    int rc = fake_job_group_start();

    depth += rc == NCCL_OK;
    return rc;
}

int ncclGroupEnd(void)
{
    int ret = NCCL_OK;

    if (depth == 0)
        return NCCL_USAGE;
    if (--depth > 0)
        return NCCL_OK;
    if (group_error)
        return group_drop();
    for (size_t i = 0; i < n_calls; i++) {
        int rc = calls[i].c ? comm_launch(calls[i].c) : NCCL_OK;

        if (ret == NCCL_OK || (ret == NCCL_IN_PROGRESS && rc != NCCL_OK))
            ret = rc;
    }
    group_clear();
    return ret;
}

static bool is_valid(const struct nccl_comm_s *c, const struct fake_op *op)
{
    return fake_dtype_bytes(op->sign.dtype) && op->sign.op <= NCCL_AVG
           && op->sign.root < (uint32_t)c->n && op->peer >= 0 && op->peer < c->n;
}

static int group_add(const char *name, nccl_comm c, cu_stream s, struct fake_op op)
{
    fake_enter(c, name, 0, 0);
    fake_job_check(c, name);
    int rc = fake_ready(c);
    if (!rc && !is_valid(c, &op)) {
        fake_set_error("%s: a number out of range", name);
        rc = NCCL_ARGUMENT;
    }
    (void)fake_keep_error(c, rc);
    fake_leave(c);
    if (!calls)
        calls = fake_zalloc(MAX_CALLS * sizeof(*calls));
    if (n_calls == MAX_CALLS)
        fake_die("more than %d calls in a group", MAX_CALLS);
    if (rc)
        group_error = rc;
    else
        calls[n_calls++] = (struct call){c, s, op};
    depth++;
    int ended = ncclGroupEnd();
    return rc ? rc : ended;
}

static struct fake_op op_of(enum fake_coll coll,
                            const void *in,
                            void *out,
                            size_t n,
                            int dtype,
                            int op,
                            int root)
{
    return (struct fake_op){.sign = {.coll = coll,
                                     .dtype = (uint32_t)dtype,
                                     .op = (uint32_t)op,
                                     .root = (uint32_t)root,
                                     .count = n},
                            .in = in,
                            .out = out};
}

int ncclAllReduce(
    const void *in, void *out, size_t n, int dtype, int op, nccl_comm c, cu_stream s)
{
    return group_add("ncclAllReduce", c, s,
                     op_of(FAKE_ALL_REDUCE, in, out, n, dtype, op, 0));
}

int ncclReduce(const void *in,
               void *out,
               size_t n,
               int dtype,
               int op,
               int root,
               nccl_comm c,
               cu_stream s)
{
    return group_add("ncclReduce", c, s,
                     op_of(FAKE_REDUCE, in, out, n, dtype, op, root));
}

int ncclBroadcast(
    const void *in, void *out, size_t n, int dtype, int root, nccl_comm c, cu_stream s)
{
    return group_add("ncclBroadcast", c, s,
                     op_of(FAKE_BROADCAST, in, out, n, dtype, 0, root));
}

int ncclAllGather(
    const void *in, void *out, size_t n_in, int dtype, nccl_comm c, cu_stream s)
{
    return group_add("ncclAllGather", c, s,
                     op_of(FAKE_ALL_GATHER, in, out, n_in, dtype, 0, 0));
}

int ncclReduceScatter(const void *in,
                      void *out,
                      size_t n_out,
                      int dtype,
                      int op,
                      nccl_comm c,
                      cu_stream s)
{
    return group_add("ncclReduceScatter", c, s,
                     op_of(FAKE_REDUCE_SCATTER, in, out, n_out, dtype, op, 0));
}

int ncclSend(const void *in, size_t n, int dtype, int peer, nccl_comm c, cu_stream s)
{
    struct fake_op op = op_of(FAKE_SEND, in, NULL, n, dtype, 0, 0);

    op.peer = peer;
    return group_add("ncclSend", c, s, op);
}

int ncclRecv(void *out, size_t n, int dtype, int peer, nccl_comm c, cu_stream s)
{
    struct fake_op op = op_of(FAKE_RECV, NULL, out, n, dtype, 0, 0);

    op.peer = peer;
    return group_add("ncclRecv", c, s, op);
}

/* --- buffers --- */

int ncclMemAlloc(void **ret, size_t bytes)
{
    const struct fake_driver *d = fake_driver();
    cu_ptr p = 0;

    if (fake_version() < 21901)
        fake_die("ncclMemAlloc is not in NCCL %d", fake_version());
    if (!d->mem_alloc || d->mem_alloc(&p, bytes) != CU_OK)
        return NCCL_CUDA;
    *ret = (void *)(uintptr_t)p;
    return NCCL_OK;
}

int ncclMemFree(void *p)
{
    const struct fake_driver *d = fake_driver();

    return d->mem_free && d->mem_free((cu_ptr)(uintptr_t)p) == CU_OK ? NCCL_OK
                                                                     : NCCL_CUDA;
}

int ncclCommRegister(nccl_comm c, void *p, size_t bytes, void **ret)
{
    int rc = NCCL_SYSTEM, code = fake_fault("register_error", c->rank, 0);

    fake_enter(c, "ncclCommRegister", 21901, 0);
    if (code) {
        fake_leave(c);
        return code;
    }
    const char *local = getenv("NCCL_LOCAL_REGISTER");
    if (local && *local == '0') { /* as NCCL reports it */
        *ret = NULL;
        rc = NCCL_OK;
    }
    for (size_t i = 0; i < sizeof(c->regions) / sizeof(c->regions[0]) && rc; i++)
        if (!c->regions[i].p) {
            c->regions[i] = (struct fake_region){p, bytes};
            *ret = &c->regions[i];
            rc = NCCL_OK;
        }
    fake_leave(c);
    return rc;
}

int ncclCommDeregister(nccl_comm c, void *handle)
{
    struct fake_region *r = handle;

    fake_enter(c, "ncclCommDeregister", 21901, 0);
    if (!r || r < c->regions || r >= c->regions + 64 || !r->p)
        fake_die("ncclCommDeregister of what is not registered");
    if (c->n_ended < c->n_launched)
        fake_die("ncclCommDeregister while a kernel may use the memory");
    if (fake_driver()->need_device)
        fake_driver()->need_device("memory that is registered", r->p, r->bytes);
    r->p = NULL;
    fake_leave(c);
    return NCCL_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_NANCHECK of device memory: a kernel looks at a batch's inputs in front of it, on
 * the same stream, and what it finds comes to pinned memory, which the seat reads when
 * the batch is done. That memory is made for each batch: this is for finding a mistake,
 * not for training. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/base/mem.h"

struct check {
    struct check *next; /* of comm.lost */
    size_t n;
    struct scan_cell cells[]; /* up to the device and back */
};

static int kernel_of(enum dtype t)
{
    static const struct {
        enum dtype t;
        enum kernel_id k;
    } rows[] = {
        {DT_F32, KERNEL_scan_f32},
        {DT_F64, KERNEL_scan_f64},
        {DT_F16, KERNEL_scan_f16},
        {DT_BF16, KERNEL_scan_bf16},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].t == t)
            return (int)rows[i].k;
    return -1; /* all of its values are finite */
}

void check_free(struct device *g, struct check *check)
{
    struct err ignored = ERR_INIT; /* no context: nothing to give back */
    struct gpu_scope scope;

    if (!check || gpu_enter(g, &scope, &ignored))
        return;
    while (check) {
        struct check *next = check->next;

        (void)g->cu->host_free(check);
        check = next;
    }
    gpu_leave(&scope);
}

static int
check_new(struct device *g, const struct batch *b, struct check **ret, struct err *err)
{
    const size_t bytes = sizeof(struct check) + b->n_items * sizeof(struct scan_cell);
    struct gpu_scope scope;
    void *p = NULL;
    int rc = gpu_enter(g, &scope, err);

    if (rc)
        return rc;
    rc = CUDA_TRY(g->cu, host_alloc, err, &p, bytes, 0);
    gpu_leave(&scope);
    if (rc)
        return rc;
    struct check *c = p;
    c->next = NULL;
    c->n = b->n_items;
    for (size_t i = 0; i < c->n; i++)
        c->cells[i] = (struct scan_cell){
            .base = gcoll_ptr(b->items[i].in), .first = SCAN_NONE, .n = 0, .pad = 0};
    *ret = c;
    return 0;
}

/* --- the seat --- */

/* The batch that it was for was refused. The device may be at it still. */
static void lose(struct comm *c)
{
    struct check *check = TAKE(c->check);

    if (!check)
        return;
    check->next = c->lost;
    c->lost = check;
}

int check_post(struct backend *b, const struct batch *batch, struct err *err)
{
    struct comm *c = (struct comm *)b;
    struct check *check;
    int rc = gpu_check(c->g, err);

    lose(c);
    if (rc || kernel_of(batch->dtype) < 0 || batch->n_items == 0)
        return rc;
    rc = check_new(c->g, batch, &check, err);
    if (rc)
        return rc;
    struct job *job = job_new(JOB_CHECK, batch, NULL, NULL, sizeof(struct check *));
    rc = job ? 0 : err_set(err, -ENOMEM, "out of memory for a batch");
    if (!rc) {
        memcpy(job->extra, &check, sizeof(struct check *));
        job->comm = c;
        job->stream_index = c->n_nc > 1 ? (uint32_t)(c->n_calls % c->n_nc) : 0;
        job->stream = c->g->streams[job->stream_index]; /* of the batch that follows */
        rc = launcher_push(&c->g->launcher, job, err);
    }
    if (rc) {
        job_free(job);
        check_free(c->g, check);
        return rc;
    }
    c->check = check;
    return 0;
}

int check_finish(struct comm *c, struct ticket *t, struct err *err)
{
    struct check *check = TAKE(t->check);
    int rc = 0;

    for (size_t i = 0; check && i < check->n && !rc; i++) {
        const struct scan_cell *cell = &check->cells[i];

        if (cell->first == SCAN_NONE)
            continue;
        c->has_bad = true;
        c->bad_item = i;
        c->bad = (struct nonfinite){
            .at = cell->first >> 1, .is_nan = (cell->first & 1) == 0, .n = cell->n};
        rc = err_set(err, -EDOM, "tensor %zu of a batch has %s at %llu", i,
                     c->bad.is_nan ? "NaN" : "an infinity",
                     (unsigned long long)c->bad.at);
    }
    check_free(c->g, check);
    return rc;
}

int check_bad_item(struct backend *b, size_t *ret_item, struct nonfinite *ret)
{
    const struct comm *c = (const struct comm *)b;

    if (!c->has_bad)
        return -ENOENT;
    *ret_item = c->bad_item;
    *ret = c->bad;
    return 0;
}

/* --- the launcher --- */

static int scan(struct post *p, struct check *check, cu_ptr cells, struct err *err)
{
    const size_t bytes = check->n * sizeof(check->cells[0]);
    const uint32_t size = (uint32_t)dtype_size(p->batch->dtype);
    struct args_scan args = {.cells = cells};
    AUTOFREE struct fuse_move *m = mem_calloc(check->n, sizeof(*m));
    size_t n = 0;

    if (!m)
        return err_set(err, -ENOMEM, "out of memory for a batch");
    for (size_t i = 0; i < check->n; i++) {
        const struct batch_item *it = &p->batch->items[i];
        uint64_t count = it->count;

        for (uint32_t j = 0;
             it->counts && p->batch->coll == COLL_REDUCESCATTER && j < p->c->n; j++)
            count = (j ? count : 0) + it->counts[j];
        if (it->in)
            m[n++] = (struct fuse_move){gcoll_ptr(it->in), 0, count, size, size,
                                        (uint32_t)i};
    }
    cu_ptr table = 0;
    int rc = gcoll_table(p, m, n, &table, &args.n, err);
    if (rc || args.n == 0)
        return rc;
    args.chunks = table;
    rc = CUDA_TRY(p->g->cu, copy_up, err, cells, check->cells, bytes, p->s);
    if (!rc)
        rc = launch_kernel(p->g->launch, (enum kernel_id)kernel_of(p->batch->dtype),
                           args.n, &args, p->s, err);
    return rc ? rc
              : CUDA_TRY(p->g->cu, copy_down, err, check->cells, cells, bytes, p->s);
}

int check_run(struct device *g, struct job *job, struct err *err)
{
    struct post p = gcoll_post(g, job);
    struct check *check;
    cu_ptr cells;

    memcpy(&check, job->extra, sizeof(struct check *));
    int rc =
        memory_take(g->memory, check->n * sizeof(check->cells[0]), p.s, &cells, err);
    if (!rc) {
        rc = scan(&p, check, cells, err);
        memory_give(g->memory, cells, p.s);
    }
    return rc == 0 || rc == -ECONNABORTED ? rc : gpu_name_rank(g, rc, err);
}

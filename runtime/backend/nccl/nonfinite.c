/* SPDX-License-Identifier: Apache-2.0 */
/* HVD_NANCHECK of device memory. A kernel scans a batch's inputs before it, on the
 * same stream. Its findings are copied to pinned memory, which the seat reads when the
 * batch is done. The launcher allocates that memory and the seat only passes it on for
 * reuse: freeing pinned memory waits for the whole device, which may never be idle if
 * a peer has died, and the seat must stay responsive. */
#include <errno.h>
#include <string.h>

#include "runtime/backend/nccl/gcoll.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/base/mem.h"

struct nan_check {
    struct nan_check *next; /* of comm.lost */
    size_t n;
    struct pin *pin; /* cells, copied to the device and back; the launcher's until the
                        batch is done; NULL: it has not run */
};

static struct scan_cell *cells_of(const struct nan_check *check)
{
    return (struct scan_cell *)(void *)check->pin->at;
}

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
    return -1; /* all values are finite */
}

void check_free(struct device *g, struct nan_check *check)
{
    while (check) {
        struct nan_check *next = check->next;

        scratch_pin_give(&g->scratch, check->pin);
        mem_free(check);
        check = next;
    }
}

/* --- the seat --- */

/* Its batch was refused. The device may still be using it. */
static void check_set_aside(struct comm *c)
{
    struct nan_check *check = TAKE(c->check);

    if (!check)
        return;
    check->next = c->lost;
    c->lost = check;
}

int check_post(struct backend *b, const struct batch *batch, struct err *err)
{
    struct comm *c = (struct comm *)b;
    struct nan_check *check;
    int rc = gpu_check(c->g, err);

    check_set_aside(c);
    if (rc || kernel_of(batch->dtype) < 0 || batch->n_items == 0)
        return rc;
    check = mem_zalloc(sizeof(*check));
    struct gpu_job *job =
        job_new(JOB_CHECK, batch, NULL, NULL, sizeof(struct nan_check *));
    rc = check && job ? 0 : err_set(err, -ENOMEM, "out of memory for a batch");
    if (!rc) {
        check->n = batch->n_items;
        memcpy(job->extra, &check, sizeof(struct nan_check *));
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

int check_finish(struct comm *c, struct comm_ticket *t, struct err *err)
{
    struct nan_check *check = TAKE(t->check);
    int rc = 0;

    for (size_t i = 0; check && check->pin && i < check->n && !rc; i++) {
        const struct scan_cell *cell = &cells_of(check)[i];

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

static int
check_scan(struct gcoll_post *p, struct nan_check *check, cu_ptr cells, struct err *err)
{
    struct scan_cell *found = cells_of(check);
    const size_t bytes = check->n * sizeof(*found);
    const uint32_t size = (uint32_t)dtype_size(p->batch->dtype);
    struct args_scan args = {.cells = cells};
    AUTOFREE struct fuse_move *m = mem_calloc(check->n, sizeof(*m));
    size_t n = 0;

    if (!m)
        return err_set(err, -ENOMEM, "out of memory for a batch");
    for (size_t i = 0; i < check->n; i++) {
        const struct batch_item *it = &p->batch->items[i];
        uint64_t count = it->count;

        found[i] = (struct scan_cell){
            .base = gcoll_ptr(it->in), .first = SCAN_NONE, .n = 0, .pad = 0};
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
    rc = CUDA_TRY(p->g->cu, copy_up, err, cells, found, bytes, p->s);
    if (!rc)
        rc = launch_kernel(p->g->launch, (enum kernel_id)kernel_of(p->batch->dtype),
                           args.n, &args, p->s, err);
    return rc ? rc : CUDA_TRY(p->g->cu, copy_down, err, found, cells, bytes, p->s);
}

int check_run(struct device *g, struct gpu_job *job, struct err *err)
{
    struct gcoll_post p = gcoll_post_of(g, job);
    struct nan_check *check;
    cu_ptr cells;

    memcpy(&check, job->extra, sizeof(struct nan_check *));
    const size_t bytes = check->n * sizeof(struct scan_cell);
    int rc = scratch_pin_take(&g->scratch, bytes, &check->pin, err);
    if (!rc)
        rc = memory_take(g->memory, bytes, p.s, &cells, err);
    if (!rc) {
        rc = check_scan(&p, check, cells, err);
        memory_give(g->memory, cells, p.s);
    }
    return rc == 0 || rc == -ECONNABORTED ? rc : gpu_name_rank(g, rc, err);
}

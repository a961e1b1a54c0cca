/* SPDX-License-Identifier: Apache-2.0 */
/* The exported C API: init and shutdown, queries, waiting and releasing. Collectives
 * are in api_submit.c, process sets in api_sets.c. Checks arguments and calls; no
 * logic. The error text of the calling thread is the only state here. */
#include "runtime/api/api.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

static __thread struct err last;

_Static_assert((int)HVD_UINT8 == (int)DT_U8 && (int)HVD_BOOL == (int)DT_BOOL
                   && (int)HVD_BFLOAT16 == (int)DT_BF16,
               "hvd.h and core/types.h agree on dtypes");
_Static_assert((int)HVD_AVERAGE == (int)OP_AVERAGE
                   && (int)HVD_PRODUCT == (int)OP_PRODUCT,
               "hvd.h and core/types.h agree on operations");
_Static_assert(HVD_MAX_DIMS == TENSOR_MAX_DIMS,
               "hvd.h and core/types.h agree on dimensions");

struct err *api_fresh_error(void)
{
    err_init(&last);
    return &last;
}

/* --- life --- */

int hvd_init(const struct hvd_config *config)
{
    struct err *err = api_fresh_error();
    struct hvd_config c = {0};
    struct static_sets sets;
    struct part_ranks ranks;

    if (config && config->size_bytes < sizeof(config->size_bytes))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_config.size_bytes: %zu, must be sizeof",
                       config->size_bytes);
    if (config)
        memcpy(&c, config,
               config->size_bytes < sizeof(c) ? config->size_bytes : sizeof(c));
    if (c.start_timeout_ms > 86400000)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_config.start_timeout_ms: %llu, must be at most 86400000",
                       (unsigned long long)c.start_timeout_ms);
    if (c.n_sets < 0 || (c.n_sets > 0 && (!c.set_sizes || !c.set_ranks)))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_config.n_sets: %d, must be at least 0, with set_sizes and "
                       "set_ranks when there are any",
                       c.n_sets);
    if (c.n_ranks < 0 || (c.n_ranks > 0 && !c.ranks))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "hvd_config.n_ranks: %d, must be at least 0, with ranks when "
                       "there are any",
                       c.n_ranks);
    ranks = (struct part_ranks){c.n_ranks, c.ranks};
    sets = (struct static_sets){c.n_sets, c.set_sizes, c.set_ranks};
    return runtime_init(c.start_timeout_ms * NS_PER_MS, &ranks, &sets, err);
}

int hvd_shutdown(void)
{
    return runtime_shutdown(api_fresh_error());
}

int hvd_is_initialized(void)
{
    struct world *w;
    int rc = runtime_get(&w, NULL);

    if (rc == 0)
        runtime_put(w);
    return rc == 0;
}

static int world_place_value(size_t offset)
{
    struct world *w;
    uint32_t v;
    int rc = runtime_get(&w, api_fresh_error());

    if (rc < 0)
        return rc;
    memcpy(&v, (const char *)&w->contract.place + offset, sizeof(v));
    runtime_put(w);
    return (int)v;
}

int hvd_rank(void)
{
    return world_place_value(offsetof(struct place, rank));
}

int hvd_size(void)
{
    return world_place_value(offsetof(struct place, size));
}

int hvd_local_rank(void)
{
    return world_place_value(offsetof(struct place, local_rank));
}

int hvd_local_size(void)
{
    return world_place_value(offsetof(struct place, local_size));
}

int hvd_cross_rank(void)
{
    return world_place_value(offsetof(struct place, cross_rank));
}

int hvd_cross_size(void)
{
    return world_place_value(offsetof(struct place, cross_size));
}

int hvd_is_homogeneous(void)
{
    struct world *w;
    int rc = runtime_get(&w, api_fresh_error());

    if (rc < 0)
        return rc;
    rc = w->is_homogeneous;
    runtime_put(w);
    return rc;
}

/* --- ends --- */

struct op *api_find(hvd_handle h, struct err *err)
{
    struct op *op;

    if (runtime_is_forked()) {
        struct world *w;

        (void)runtime_get(&w, err); /* for the error text */
        return NULL;
    }
    op = handles_get(runtime_handles(), h);
    if (!op)
        (void)err_set(err, HVD_INVALID_ARGUMENT, "handle %lld: unknown or released",
                      (long long)h);
    return op;
}

int api_report_status(const struct op *op, int status, struct err *err)
{
    return status < 0 ? err_set(err, status, "%s", op->error) : status;
}

int hvd_poll(hvd_handle h)
{
    struct err *err = api_fresh_error();
    struct op *op = api_find(h, err);
    int rc;

    if (!op)
        return err->code;
    rc = api_report_status(op, op_status(op), err);
    op_unref(op);
    return rc;
}

uint64_t api_deadline(int64_t timeout_ms)
{
    if (timeout_ms >= 0 && (uint64_t)timeout_ms < UINT64_MAX / NS_PER_MS / 2)
        return clock_now_ns() + (uint64_t)timeout_ms * NS_PER_MS;
    return UINT64_MAX;
}

int api_may_wait(const struct op *op, const char *call, struct err *err)
{
    if (!op_in_callback() && !atomic_load(&op->is_held))
        return 0;
    return err_set(err, HVD_INVALID_ARGUMENT, "%s: called %s", call,
                   op_in_callback() ? "inside a callback"
                                    : "for what hvd_submit_held has not submitted");
}

int hvd_wait(hvd_handle h, int64_t timeout_ms)
{
    struct err *err = api_fresh_error();
    struct op *op = api_find(h, err);
    int rc;

    if (!op)
        return err->code;
    rc = api_may_wait(op, "hvd_wait", err);
    if (rc < 0) {
        op_unref(op);
        return rc;
    }
    rc = coordinator_wait(op, OP_ENDED, api_deadline(timeout_ms));
    if (rc == HVD_IN_PROGRESS)
        rc = err_set(err, HVD_TIMEOUT, "tensor \"%.200s\" is not done after %lld ms",
                     op->req.name, (long long)timeout_ms);
    else
        rc = api_report_status(op, rc, err);
    op_unref(op);
    return rc;
}

/* A result on a GPU may be used from when it is posted, in the order of streams. */
static int op_result_status(const struct op *op)
{
    int status = op_status_in_callback(op);

    /* pairs with op_set_posted */
    if (status == HVD_IN_PROGRESS && atomic_load(&op->is_posted))
        return HVD_OK;
    return status;
}

int hvd_result(hvd_handle h, void **ret_data, int *ret_ndim, int64_t *ret_shape)
{
    struct err *err = api_fresh_error();
    struct op *op = api_find(h, err);
    int rc;

    if (!op)
        return err->code;
    rc = api_report_status(op, op_result_status(op), err);
    if (rc == HVD_OK && !op_has_result(op))
        rc = err_set(err, HVD_INVALID_ARGUMENT,
                     "tensor \"%.200s\": %s has no result of its own", op->req.name,
                     collective_name(op->req.coll));
    if (rc == HVD_OK) {
        *ret_data = op->result;
        *ret_ndim = op->result_ndim;
        memcpy(ret_shape, op->result_shape,
               (size_t)op->result_ndim * sizeof(*ret_shape));
    }
    op_unref(op);
    return rc;
}

/* An op of this kind that has succeeded; NULL with an error. A pending one is an error,
 * because its results are not known before the end. */
static struct op *api_find_ended(hvd_handle h, enum collective coll, struct err *err)
{
    struct op *op = api_find(h, err);
    int status;

    if (!op)
        return NULL;
    status = op_result_status(op);
    if (op->req.coll != coll)
        status = err_set(err, HVD_INVALID_ARGUMENT, "tensor \"%.200s\": is no %s",
                         op->req.name, collective_name(coll));
    else if (status == HVD_IN_PROGRESS)
        status = err_set(err, HVD_INVALID_ARGUMENT,
                         "tensor \"%.200s\": is not complete yet", op->req.name);
    else
        status = api_report_status(op, status, err);
    if (status == HVD_OK)
        return op;
    op_unref(op);
    return NULL;
}

int hvd_received_splits(hvd_handle h, int64_t *ret, int n)
{
    struct err *err = api_fresh_error();
    struct op *op = api_find_ended(h, COLL_ALLTOALL, err);
    int count;

    if (!op)
        return err->code;
    count = (int)op->n_members;
    for (int i = 0; i < n && i < count; i++)
        ret[i] = op->received[i];
    op_unref(op);
    return count;
}

static int api_result_rank(hvd_handle h, enum collective coll)
{
    struct err *err = api_fresh_error();
    struct op *op = api_find_ended(h, coll, err);
    int rank;

    if (!op)
        return err->code;
    rank = (int)op->result_rank;
    op_unref(op);
    return rank;
}

int hvd_joined_last(hvd_handle h)
{
    return api_result_rank(h, COLL_JOIN);
}

int hvd_probed_rank(hvd_handle h)
{
    return api_result_rank(h, COLL_PROBE);
}

int hvd_release(hvd_handle h)
{
    struct err *err = api_fresh_error();

    if (runtime_is_forked())
        return 0; /* a forked child has no runtime */
    if (handles_remove(runtime_handles(), h) < 0)
        return err_set(err, HVD_INVALID_ARGUMENT, "handle %lld: unknown or released",
                       (long long)h);
    return 0;
}

/* --- about --- */

const char *hvd_last_error(void)
{
    return last.text;
}

const char *hvd_version(void)
{
    return HVD_VERSION_STRING;
}

size_t hvd_describe(char *buf, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct world *w = NULL;
    const struct place *p;

    strbuf_init(&b, 65536);
    if (runtime_get(&w, NULL) < 0) {
        strbuf_puts(&b, "{\"initialized\":false}");
    } else {
        p = &w->contract.place;
        strbuf_printf(
            &b,
            "{\"initialized\":true,\"rank\":%u,\"size\":%u,\"local_rank\":%u,"
            "\"local_size\":%u,\"cross_rank\":%u,\"cross_size\":%u,\"launcher\":\"%s\","
            "\"job_rank\":%u,\"job_size\":%u,\"backend\":\"%s\",\"address\":\"%s\","
            "\"replica_check\":%u,\"replica_warns\":%s,\"control\":[",
            p->rank, p->size, p->local_rank, p->local_size, p->cross_rank,
            p->cross_size, launcher_name(w->contract.launcher), w->job.rank,
            w->job.size, w->backend->ops->name, w->local_addr,
            w->settings.guard.check_steps,
            w->settings.guard.is_warning ? "true" : "false");
        for (uint32_t r = 0; r < p->size && r < 1024; r++)
            strbuf_printf(&b, "%s\"%s\"", r ? "," : "",
                          control_transport(w->control, r));
        strbuf_puts(&b, "]}");
    }
    runtime_put(w);
    if (n > 0)
        (void)snprintf(buf, n, "%s", strbuf_str(&b));
    return b.n;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* part.c: one tensor of a job: TensorFlow's input and output, and the runtime's
 * operation on their memory.
 *
 * No copies: the runtime reads the input's memory and writes the output's. An allreduce
 * or a broadcast writes into its input if TensorFlow does not use it otherwise; the
 * root of a broadcast returns its input. The number of rows from other ranks is known
 * only when the operation runs: part_alloc then allocates the output, on the thread
 * that runs it.
 *
 * On a GPU, TensorFlow reveals neither the stream that produces the inputs nor the one
 * in whose order it reuses memory. So the runtime starts after everything that is in
 * any stream of the device at the submit, and outputs are allocated before that: memory
 * that TensorFlow returns while work is queued on it may be in use until then. (For
 * part_alloc the time of its return counts.) The callback runs when the GPU is done, so
 * work that TensorFlow queues afterwards finds the outputs.
 *
 * host_device belongs to the process, as TensorFlow's kernels do: it is set once,
 * before the first operation is created. */
#include "runtime/tensorflow/part.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/tensorflow/kernel.h"
#include "runtime/tensorflow/tf_c_api.h"

#define ANY_DIMS_MAX 254 /* TensorFlow's */

/* For tensors in host memory; relaxed, as it publishes nothing else. */
static atomic_int host_device = HVD_DEVICE_HOST;

void part_has_no_gpu(void)
{
    atomic_store_explicit(&host_device, HVD_DEVICE_NONE, memory_order_relaxed);
}

/* --- results --- */

/* The output `index` with these dimensions; NULL after the job has failed. */
static struct TF_Tensor *make_output(
    struct tf_job *j, int index, int type, const int64_t *dims, int n, size_t bytes)
{
    struct TF_Status *s = TF_NewStatus();
    struct TF_Tensor *output =
        TF_AllocateOutput(j->context, index, type, dims, n, bytes, s);

    if (TF_GetCode(s) != TF_OK) {
        job_fail(j, TF_GetCode(s), TF_Message(s));
        output = NULL; /* TensorFlow allocates none either */
    }
    TF_DeleteStatus(s);
    return output;
}

/* Copies TensorFlow's dimensions of a tensor; returns how many. */
static int dims_of(const struct TF_Tensor *t, int64_t *ret)
{
    int n = TF_NumDims(t);

    for (int i = 0; i < n; i++)
        ret[i] = TF_Dim(t, i);
    return n;
}

/* An empty tensor has no memory, but NULL would mean out of memory. */
static void *memory_of(const struct TF_Tensor *t, void *otherwise)
{
    void *data = TF_TensorData(t);

    return data ? data : otherwise;
}

static void *part_alloc(void *arg, int ndim, const int64_t *shape, size_t size_bytes)
{
    struct tf_part *p = arg;
    int64_t dims[ANY_DIMS_MAX];
    int n = dims_of(p->input, dims);

    (void)ndim;
    dims[0] = shape[0];
    p->output =
        make_output(p->job, p->index, TF_TensorType(p->input), dims, n, size_bytes);
    return p->output ? memory_of(p->output, p) : NULL;
}

/* Output 1 of an alltoall: the number of rows from each rank. */
static void set_received_splits(struct tf_part *p)
{
    struct tf_job *j = p->job;
    int n = hvd_received_splits(p->handle, NULL, 0);
    int64_t *rows = n > 0 ? calloc((size_t)n, sizeof(*rows)) : NULL;
    struct TF_Tensor *output;
    int32_t *to;

    if (!rows) {
        if (n > 0)
            job_fail(j, TF_RESOURCE_EXHAUSTED, "no memory for received splits");
        else
            job_fail(j, TF_INTERNAL, hvd_last_error());
        return;
    }
    output =
        make_output(j, 1, TF_INT32, (const int64_t[]){n}, 1, (size_t)n * sizeof(*to));
    if (output) {
        (void)hvd_received_splits(p->handle, rows, n);
        to = TF_TensorData(output);
        for (int i = 0; i < n; i++)
            to[i] = (int32_t)rows[i];
        TF_DeleteTensor(output);
    }
    free(rows);
}

static void set_joined_last(struct tf_part *p)
{
    struct TF_Tensor *output =
        make_output(p->job, 0, TF_INT32, NULL, 0, sizeof(int32_t));

    if (!output)
        return;
    *(int32_t *)TF_TensorData(output) = hvd_joined_last(p->handle);
    TF_DeleteTensor(output);
}

void part_finish(struct tf_part *p)
{
    if (p->job->k->type->kind == KIND_ALLTOALL)
        set_received_splits(p);
    else if (p->job->k->type->kind == KIND_JOIN)
        set_joined_last(p);
}

/* --- inputs --- */

static int hvd_dtype_from(int tf_type)
{
    switch (tf_type) {
    case TF_FLOAT:
        return HVD_FLOAT32;
    case TF_DOUBLE:
        return HVD_FLOAT64;
    case TF_INT32:
        return HVD_INT32;
    case TF_UINT8:
        return HVD_UINT8;
    case TF_INT16:
        return HVD_INT16;
    case TF_INT8:
        return HVD_INT8;
    case TF_INT64:
        return HVD_INT64;
    case TF_BOOL:
        return HVD_BOOL;
    case TF_BFLOAT16:
        return HVD_BFLOAT16;
    case TF_UINT16:
        return HVD_UINT16;
    case TF_HALF:
        return HVD_FLOAT16;
    default:
        return -1; /* not our enum: TensorFlow has more types */
    }
}

/* The runtime's shape: dimensions beyond its limit are multiplied into the last one. */
static void
part_describe_input(struct hvd_tensor *t, const struct TF_Tensor *input, int64_t *shape)
{
    int n = TF_NumDims(input);

    t->ndim = n < HVD_MAX_DIMS ? n : HVD_MAX_DIMS;
    for (int i = 0; i < t->ndim; i++)
        shape[i] = TF_Dim(input, i);
    for (int i = t->ndim; i < n; i++)
        shape[t->ndim - 1] *= TF_Dim(input, i);
    t->shape = shape;
    t->dtype = hvd_dtype_from(TF_TensorType(input));
}

static int take_input(struct tf_job *j, int index, struct TF_Tensor **ret)
{
    struct TF_Status *s = TF_NewStatus();
    int rc = 0;

    TF_GetInput(j->context, index, ret, s);
    if (TF_GetCode(s) != TF_OK) {
        job_fail(j, TF_GetCode(s), TF_Message(s));
        *ret = NULL;
        rc = -1;
    }
    TF_DeleteStatus(s);
    return rc;
}

/* An output like the input: the input's own memory if nothing else uses it. TensorFlow
 * can only see that while we hold no reference. 0 or -1. */
static int make_output_like(struct tf_part *p)
{
    struct tf_job *j = p->job;
    struct TF_Status *s = TF_NewStatus();
    int64_t dims[ANY_DIMS_MAX];
    int n = dims_of(p->input, dims), forwarded = -1, rc = 0;

    TF_DeleteTensor(p->input);
    p->input = NULL;
    p->output = TF_ForwardInputOrAllocateOutput(j->context, &p->index, 1, p->index,
                                                dims, n, &forwarded, s);
    if (TF_GetCode(s) != TF_OK) {
        job_fail(j, TF_GetCode(s), TF_Message(s));
        p->output = NULL;
        rc = -1;
    } else if (forwarded < 0) {
        rc = take_input(j, p->index, &p->input);
    }
    TF_DeleteStatus(s);
    return rc;
}

/* The root's result is its input. */
static int output_input(struct tf_part *p)
{
    struct TF_Status *s = TF_NewStatus();
    int rc = 0;

    TF_SetOutput(p->job->context, p->index, p->input, s);
    if (TF_GetCode(s) != TF_OK) {
        job_fail(p->job, TF_GetCode(s), TF_Message(s));
        rc = -1;
    }
    TF_DeleteStatus(s);
    return rc;
}

int part_prepare(struct tf_part *p)
{
    const struct tf_kernel *k = p->job->k;

    switch (k->type->kind) {
    case KIND_JOIN:
    case KIND_BARRIER:
    case KIND_COUNT:
        return 0;
    case KIND_ALLGATHER:
    case KIND_ALLTOALL:
    case KIND_REDUCESCATTER:
        return take_input(p->job, p->index, &p->input);
    case KIND_ALLREDUCE:
    case KIND_BROADCAST:
        break;
    }
    if (take_input(p->job, p->index, &p->input))
        return -1;
    if (k->type->kind == KIND_BROADCAST && hvd_rank() == k->root_rank)
        return output_input(p);
    return make_output_like(p);
}

static int submit_alltoall(struct tf_part *p, const struct hvd_tensor *t)
{
    struct TF_Tensor *splits = NULL;
    int64_t n;
    int64_t *rows;
    bool is_vector;
    int status;

    if (take_input(p->job, 1, &splits))
        return HVD_INTERNAL;
    n = TF_NumDims(splits) == 1 ? TF_Dim(splits, 0) : -1;
    is_vector = n >= 0 && n <= INT32_MAX;
    rows = is_vector ? calloc((size_t)n + 1, sizeof(*rows)) : NULL;
    if (!rows) {
        if (is_vector)
            job_fail(p->job, TF_RESOURCE_EXHAUSTED, "alltoall: no memory for splits");
        else
            job_fail(
                p->job, TF_INVALID_ARGUMENT,
                "alltoall: splits must be a vector, of a number of rows for each rank");
        TF_DeleteTensor(splits);
        return HVD_INTERNAL;
    }
    for (int64_t i = 0; i < n; i++)
        rows[i] = ((const int32_t *)TF_TensorData(splits))[i];
    TF_DeleteTensor(splits);
    status = hvd_alltoall_async(t, n > 0 ? rows : NULL, (int)n, part_alloc, p,
                                p->job->k->process_set, &p->handle);
    free(rows);
    return status;
}

static int part_start_operation(struct tf_part *p, const struct hvd_tensor *t)
{
    const struct tf_kernel *k = p->job->k;

    switch (k->type->kind) {
    case KIND_ALLREDUCE:
        return hvd_allreduce_async(t, k->reduce_op, k->prescale, k->postscale,
                                   k->process_set, &p->handle);
    case KIND_ALLGATHER:
        return hvd_allgather_async(t, part_alloc, p, k->process_set, &p->handle);
    case KIND_BROADCAST:
        return hvd_broadcast_async(t, k->root_rank, k->process_set, &p->handle);
    case KIND_ALLTOALL:
        return submit_alltoall(p, t);
    case KIND_REDUCESCATTER:
        return hvd_reducescatter_async(t, k->reduce_op, k->prescale, k->postscale,
                                       part_alloc, p, k->process_set, &p->handle);
    case KIND_JOIN:
        return hvd_join_async(t, &p->handle);
    case KIND_BARRIER:
        return hvd_barrier_async(t, k->process_set, &p->handle);
    case KIND_COUNT:
        break;
    }
    return HVD_INTERNAL;
}

int part_submit(struct tf_part *p, const char *job_name, hvd_done_fn done)
{
    struct tf_job *j = p->job;
    const struct tf_kernel *k = j->k;
    int64_t shape[HVD_MAX_DIMS];
    char name[PART_NAME_MAX];
    struct hvd_tensor t = {.size_bytes = sizeof(t),
                           .device = HVD_DEVICE_HOST,
                           .name = job_name,
                           .done = done,
                           .done_arg = p};
    struct TF_Tensor *data = p->input ? p->input : p->output;
    int status;

    if (k->type->is_grouped) {
        (void)snprintf(name, sizeof(name), "%s_%dof%d", job_name, p->index + 1,
                       j->n_parts);
        t.name = name;
        t.group = job_name;
        t.group_size = j->n_parts;
        t.is_held = 1;
    }
    if (data) {
        t.device = k->is_on_gpu
                       ? HVD_DEVICE_OF_POINTER
                       : atomic_load_explicit(&host_device, memory_order_relaxed);
        t.stream = k->is_on_gpu ? HVD_STREAM_ALL : NULL;
        part_describe_input(&t, data, shape);
        t.data = memory_of(data, p);
        t.output = p->output ? memory_of(p->output, p) : memory_of(data, p);
    }
    if (k->has_compression)
        t.compression = k->compression;
    status = part_start_operation(p, &t);
    if (status == HVD_OK)
        return 0;
    p->handle = 0;
    job_fail_by_status(j, status, hvd_last_error(), false);
    return -1;
}

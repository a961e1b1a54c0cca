/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_tf.c: TensorFlow operations over libhvd.so, on TensorFlow's C kernel API.
 *
 * One binary for all TensorFlow versions: pure C, no TensorFlow header, linked by
 * soname alone. tf.load_op_library() loads it, which runs register_all(). Python side:
 * _hvd/tensorflow.
 *
 *   HvdAllreduce   tensor -> sum, on CPU, asynchronous: compute() submits and returns;
 * the runtime's completion callback sets the status and calls TensorFlow's `done`.
 *   HvdSelfTest    x -> x + 1, completed by another thread after compute() has
 * returned: run at first use to prove that the clone of `done` works in this TensorFlow
 * (done.h).
 *
 * When the self-test says no, Python sets the attribute `blocking`: compute() then
 * waits for the operation and completes before it returns, and Python chains the
 * operations of a graph by control dependencies, because blocking operations in free
 * order would deadlock between ranks.
 *
 * Names. A collective needs one name on all ranks: the attribute tensor_name, else, in
 * a graph, the node's name (unique in the graph, equal on all ranks), else, eagerly, a
 * count of this process.
 *
 * Invariants: a job owns references to both tensors until the operation has ended.
 * `refs` is 2 when the submitter and the callback both still need the job; the later of
 * them releases the handle, as the callback may run before the submitter knows its
 * handle. The one mutable global is the counter of eager names. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hvd.h"
#include "runtime/tensorflow/done.h"
#include "runtime/tensorflow/tf_c_api.h"

#define NAME_MAX_BYTES 512

static atomic_ulong eager_count;

/* --- helpers
 * ---------------------------------------------------------------------------------- */

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

static int tf_code_from(int status)
{
    switch (status) {
    case HVD_INVALID_ARGUMENT:
        return TF_INVALID_ARGUMENT;
    case HVD_NOT_INITIALIZED:
    case HVD_PRECONDITION:
        return TF_FAILED_PRECONDITION;
    case HVD_ABORTED:
        return TF_ABORTED;
    case HVD_NO_MEMORY:
        return TF_RESOURCE_EXHAUSTED;
    default:
        return TF_UNKNOWN; /* what Horovod's operations give for the rest */
    }
}

static void fail(struct TF_OpKernelContext *context, int code, const char *text)
{
    struct TF_Status *s = TF_NewStatus();

    TF_SetStatus(s, code, text);
    TF_OpKernelContext_Failure(context, s);
    TF_DeleteStatus(s);
}

static const char *hvd_sentence(int status)
{
    const char *text = hvd_last_error();

    if (status == HVD_NOT_INITIALIZED)
        return "Horovod has not been initialized; use hvd.init().";
    return text && text[0] ? text : "libhvd failed without a sentence";
}

/* --- HvdAllreduce
 * ------------------------------------------------------------------------------ */

struct kernel {
    int32_t op;
    int32_t process_set;
    float prescale;
    float postscale;
    unsigned char is_eager;
    unsigned char is_blocking;
    char name[NAME_MAX_BYTES]; /* "" when eager without a name */
};

struct job {
    atomic_int refs;
    hvd_handle handle;
    struct TF_OpKernelContext *context;
    struct TF_Tensor *input;
    struct TF_Tensor *output;
    struct done *done; /* NULL when blocking */
};

/* Reads tensor_name, or takes the node's name in a graph. */
static void kernel_read_name(struct kernel *k,
                             struct TF_OpKernelConstruction *c,
                             struct TF_Status *s)
{
    char given[NAME_MAX_BYTES] = "";
    int32_t list_size = 0, length = 0;
    struct tf_string_view node;

    TF_OpKernelConstruction_GetAttrSize(c, "tensor_name", &list_size, &length, s);
    if (TF_GetCode(s) != TF_OK)
        return;
    if (length >= NAME_MAX_BYTES - 16) {
        TF_SetStatus(s, TF_INVALID_ARGUMENT,
                     "allreduce: name is longer than 495 bytes");
        return;
    }
    if (length > 0)
        TF_OpKernelConstruction_GetAttrString(c, "tensor_name", given,
                                              sizeof(given) - 1, s);
    if (TF_GetCode(s) != TF_OK)
        return;
    node = TF_OpKernelConstruction_GetName(c);
    if (length > 0)
        snprintf(k->name, sizeof(k->name), "allreduce.%.*s", (int)length, given);
    else if (!k->is_eager)
        snprintf(k->name, sizeof(k->name), "allreduce.%.*s", (int)node.len, node.data);
}

static void *allreduce_create(struct TF_OpKernelConstruction *c)
{
    struct kernel *k = calloc(1, sizeof(*k));
    struct TF_Status *s = TF_NewStatus();

    if (!k) {
        TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "allreduce: out of memory");
        TF_OpKernelConstruction_Failure(c, s);
        TF_DeleteStatus(s);
        return NULL;
    }
    TF_OpKernelConstruction_GetAttrInt32(c, "reduce_op", &k->op, s);
    if (TF_GetCode(s) == TF_OK)
        TF_OpKernelConstruction_GetAttrInt32(c, "process_set_id", &k->process_set, s);
    if (TF_GetCode(s) == TF_OK)
        TF_OpKernelConstruction_GetAttrFloat(c, "prescale_factor", &k->prescale, s);
    if (TF_GetCode(s) == TF_OK)
        TF_OpKernelConstruction_GetAttrFloat(c, "postscale_factor", &k->postscale, s);
    if (TF_GetCode(s) == TF_OK)
        TF_OpKernelConstruction_GetAttrBool(c, "eager", &k->is_eager, s);
    if (TF_GetCode(s) == TF_OK)
        TF_OpKernelConstruction_GetAttrBool(c, "blocking", &k->is_blocking, s);
    if (TF_GetCode(s) == TF_OK)
        kernel_read_name(k, c, s);
    if (TF_GetCode(s) != TF_OK)
        TF_OpKernelConstruction_Failure(c, s);
    TF_DeleteStatus(s);
    return k;
}

static void allreduce_delete(void *kernel)
{
    free(kernel);
}

static void job_unref(struct job *j, int n)
{
    /* acq_rel: the later of submitter and callback sees what the earlier one wrote */
    if (atomic_fetch_sub_explicit(&j->refs, n, memory_order_acq_rel) != n)
        return;
    if (j->handle > 0)
        (void)hvd_release(j->handle); /* nothing to do about an error here */
    free(j);
}

/* Gives the tensors back and tells TensorFlow. After this the context is gone. */
static void job_end(struct job *j, struct TF_AsyncOpKernelDoneCallback *callback)
{
    if (j->input)
        TF_DeleteTensor(j->input);
    if (j->output)
        TF_DeleteTensor(j->output);
    if (j->done)
        done_run(j->done);
    else
        TF_RunAsyncOpKernelDoneCallback(callback);
}

static void allreduce_done(void *arg, int status, const char *error)
{
    struct job *j = arg;

    if (status != HVD_OK)
        fail(j->context, tf_code_from(status), error ? error : "allreduce failed");
    job_end(j, NULL);
    job_unref(j, 1);
}

/* Takes input and makes output; 0 or -1 after telling the context why. */
static int job_tensors(struct job *j, struct hvd_tensor *t, int64_t *shape)
{
    struct TF_Status *s = TF_NewStatus();
    char text[96];
    int result = -1;

    TF_GetInput(j->context, 0, &j->input, s);
    if (TF_GetCode(s) != TF_OK)
        goto out;
    t->ndim = TF_NumDims(j->input);
    t->dtype = hvd_dtype_from(TF_TensorType(j->input));
    if (t->ndim > HVD_MAX_DIMS || t->dtype < 0) {
        snprintf(text, sizeof(text),
                 "allreduce: a tensor of %d dimensions and type %d is not supported",
                 t->ndim, TF_TensorType(j->input));
        TF_SetStatus(s, TF_INVALID_ARGUMENT, text);
        goto out;
    }
    for (int i = 0; i < t->ndim; i++)
        shape[i] = TF_Dim(j->input, i);
    j->output = TF_AllocateOutput(j->context, 0, TF_TensorType(j->input), shape,
                                  t->ndim, TF_TensorByteSize(j->input), s);
    if (TF_GetCode(s) != TF_OK)
        goto out;
    t->shape = shape;
    t->data = TF_TensorData(j->input);
    t->output = TF_TensorData(j->output);
    result = 0;
out:
    if (result)
        TF_OpKernelContext_Failure(j->context, s);
    TF_DeleteStatus(s);
    return result;
}

static void allreduce_compute(void *kernel,
                              struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *callback)
{
    const struct kernel *k = kernel;
    int64_t shape[HVD_MAX_DIMS];
    char name[NAME_MAX_BYTES];
    struct hvd_tensor t = {.size_bytes = sizeof(t), .device = -1, .name = k->name};
    struct job *j = calloc(1, sizeof(*j));
    int status;

    if (!j) {
        fail(context, TF_RESOURCE_EXHAUSTED, "allreduce: out of memory");
        TF_RunAsyncOpKernelDoneCallback(callback);
        return;
    }
    atomic_init(&j->refs, 2);
    j->context = context;
    if (!k->is_blocking) {
        t.done = allreduce_done;
        t.done_arg = j;
        j->done = done_is_clonable(callback) ? done_clone(callback) : NULL;
        if (!j->done) {
            fail(context, TF_INTERNAL,
                 "allreduce: TensorFlow's completion callback cannot be kept");
            TF_RunAsyncOpKernelDoneCallback(callback);
            free(j);
            return;
        }
    }
    if (job_tensors(j, &t, shape)) {
        job_end(j, callback);
        free(j);
        return;
    }
    if (!k->name[0]) {
        snprintf(name, sizeof(name), "allreduce.eager.%lu",
                 atomic_fetch_add_explicit(&eager_count, 1, memory_order_relaxed));
        t.name = name;
    }
    status = hvd_allreduce_async(&t, k->op, (double)k->prescale, (double)k->postscale,
                                 k->process_set, &j->handle);
    if (status == HVD_OK && k->is_blocking)
        status = hvd_wait(j->handle, -1);
    if (status != HVD_OK)
        fail(context, tf_code_from(status), hvd_sentence(status));
    if (status == HVD_OK && !k->is_blocking) {
        job_unref(j, 1);
        return;
    }
    job_end(j, callback);
    job_unref(j, 2); /* no callback will come: its reference too */
}

/* --- HvdSelfTest
 * -------------------------------------------------------------------------------- */

struct self_test {
    pthread_mutex_t returned; /* held by compute() until it is about to return */
    struct TF_OpKernelContext *context;
    struct done *done;
};

static void self_test_complete(struct TF_OpKernelContext *context)
{
    struct TF_Status *s = TF_NewStatus();
    struct TF_Tensor *in = NULL, *out = NULL;

    TF_GetInput(context, 0, &in, s);
    if (TF_GetCode(s) == TF_OK)
        out = TF_AllocateOutput(context, 0, TF_INT32, NULL, 0, sizeof(int32_t), s);
    if (TF_GetCode(s) == TF_OK)
        *(int32_t *)TF_TensorData(out) = *(const int32_t *)TF_TensorData(in) + 1;
    else
        TF_OpKernelContext_Failure(context, s);
    if (in)
        TF_DeleteTensor(in);
    if (out)
        TF_DeleteTensor(out);
    TF_DeleteStatus(s);
}

static void *self_test_thread(void *arg)
{
    struct self_test *t = arg;

    pthread_mutex_lock(&t->returned);
    pthread_mutex_unlock(&t->returned);
    self_test_complete(t->context);
    done_run(t->done);
    pthread_mutex_destroy(&t->returned);
    free(t);
    return NULL;
}

static void self_test_compute(void *kernel,
                              struct TF_OpKernelContext *context,
                              struct TF_AsyncOpKernelDoneCallback *callback)
{
    struct self_test *t = calloc(1, sizeof(*t));
    pthread_mutex_t *returned;
    pthread_t thread;

    (void)kernel;
    if (!t || !done_is_clonable(callback)) {
        fail(context, TF_FAILED_PRECONDITION,
             "the completion callback is not libstdc++'s std::function");
        TF_RunAsyncOpKernelDoneCallback(callback);
        free(t);
        return;
    }
    t->context = context;
    t->done = done_clone(callback);
    pthread_mutex_init(&t->returned, NULL);
    returned = &t->returned;
    pthread_mutex_lock(returned);
    if (!t->done || pthread_create(&thread, NULL, self_test_thread, t)) {
        done_free(t->done);
        free(t);
        fail(context, TF_RESOURCE_EXHAUSTED, "no thread for the self-test");
        TF_RunAsyncOpKernelDoneCallback(callback);
        return;
    }
    pthread_detach(thread);
    pthread_mutex_unlock(returned);
}

/* --- registration
 * ------------------------------------------------------------------------------- */

static void shape_as_input(struct TF_ShapeInferenceContext *c, struct TF_Status *s)
{
    struct TF_ShapeHandle *shape = TF_NewShapeHandle();

    TF_ShapeInferenceContextGetInput(c, 0, shape, s);
    if (TF_GetCode(s) == TF_OK)
        TF_ShapeInferenceContextSetOutput(c, 0, shape, s);
    TF_DeleteShapeHandle(shape);
}

static void register_op(const char *name,
                        const char *input,
                        const char *output,
                        const char *const *attrs,
                        tf_create_fn create,
                        tf_async_compute_fn compute,
                        tf_delete_fn delete)
{
    struct TF_OpDefinitionBuilder *b = TF_NewOpDefinitionBuilder(name);
    struct TF_Status *s = TF_NewStatus();

    for (; *attrs; attrs++)
        TF_OpDefinitionBuilderAddAttr(b, *attrs);
    TF_OpDefinitionBuilderAddInput(b, input);
    TF_OpDefinitionBuilderAddOutput(b, output);
    TF_OpDefinitionBuilderSetIsStateful(b, 1); /* never folded, merged or run twice */
    TF_OpDefinitionBuilderSetShapeInferenceFunction(b, shape_as_input);
    TF_RegisterOpDefinition(b, s);
    if (TF_GetCode(s) == TF_OK)
        TF_RegisterKernelBuilder(
            name, TF_NewAsyncKernelBuilder(name, "CPU", create, compute, delete), s);
    if (TF_GetCode(s) != TF_OK) /* at load, with nobody to return it to: say it */
        fprintf(stderr, "libhvd_tf: cannot register %s: %s\n", name, TF_Message(s));
    TF_DeleteStatus(s);
}

__attribute__((constructor)) static void register_all(void)
{
    static const char *const allreduce_attrs[] = {
        "T: {half, bfloat16, float, double, uint8, int8, int16, int32, int64, bool}",
        "reduce_op: int = 0",
        "process_set_id: int = 0",
        "prescale_factor: float = 1.0",
        "postscale_factor: float = 1.0",
        "tensor_name: string = ''",
        "eager: bool = false",
        "blocking: bool = false",
        NULL,
    };
    static const char *const no_attrs[] = {NULL};

    register_op("HvdAllreduce", "tensor: T", "sum: T", allreduce_attrs,
                allreduce_create, allreduce_compute, allreduce_delete);
    register_op("HvdSelfTest", "x: int32", "y: int32", no_attrs, NULL,
                self_test_compute, NULL);
}

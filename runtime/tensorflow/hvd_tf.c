/* SPDX-License-Identifier: Apache-2.0 */
/* hvd_tf.c: TensorFlow operations over libhvd.so, on TensorFlow's C kernel API.
 *
 * One binary for all TensorFlow versions: pure C, no TensorFlow header, linked by
 * soname alone. tf.load_op_library() loads it, which runs register_all(). Python side:
 * _hvd/tensorflow/mpi_ops.py.
 *
 * The operations are rows of a table. job.c runs the collectives; the rest of this file
 * runs those that return a number of the runtime. All have kernels for the CPU. Kernels
 * of collectives for GPUs are registered by hvd_tf_use_gpu(), only where collectives on
 * GPU tensors work; otherwise TensorFlow copies tensors through host memory. Whether
 * that was called, and its result, are the only mutable state.
 *
 * All operations are stateful, so that TensorFlow never folds, merges, repeats or drops
 * one on a single rank. For stateful operations tf.function would add a fixed order;
 * Python removes it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hvd.h"
#include "runtime/tensorflow/job.h"
#include "runtime/tensorflow/kernel.h"
#include "runtime/tensorflow/part.h"
#include "runtime/tensorflow/self_test.h"
#include "runtime/tensorflow/shapes.h"
#include "runtime/tensorflow/tf_c_api.h"
#include "runtime/tensorflow/use_gpu.h"

/* --- collectives --- */

/* One type for both devices, so that operations under way share their numbers. */
#define COLLECTIVE(function, word, kind, is_grouped)                                   \
    static const struct op_type function##_type = {word, kind, is_grouped};            \
                                                                                       \
    static void *function##_create(struct TF_OpKernelConstruction *c)                  \
    {                                                                                  \
        return kernel_create(c, &function##_type, false);                              \
    }                                                                                  \
                                                                                       \
    static void *function##_create_gpu(struct TF_OpKernelConstruction *c)              \
    {                                                                                  \
        return kernel_create(c, &function##_type, true);                               \
    }

COLLECTIVE(allreduce, "allreduce", KIND_ALLREDUCE, false)
COLLECTIVE(grouped_allreduce, "grouped_allreduce", KIND_ALLREDUCE, true)
COLLECTIVE(allgather, "allgather", KIND_ALLGATHER, false)
COLLECTIVE(grouped_allgather, "grouped_allgather", KIND_ALLGATHER, true)
COLLECTIVE(broadcast, "broadcast", KIND_BROADCAST, false)
COLLECTIVE(alltoall, "alltoall", KIND_ALLTOALL, false)
COLLECTIVE(reducescatter, "reducescatter", KIND_REDUCESCATTER, false)
COLLECTIVE(grouped_reducescatter, "grouped_reducescatter", KIND_REDUCESCATTER, true)
COLLECTIVE(join, "join", KIND_JOIN, false)
COLLECTIVE(barrier, "barrier", KIND_BARRIER, false)

static void collective_compute(void *kernel,
                               struct TF_OpKernelContext *context,
                               struct TF_AsyncOpKernelDoneCallback *callback)
{
    job_compute(kernel, context, callback);
}

/* For a kernel that is not asynchronous: Python has set `blocking`. */
static void collective_compute_now(void *kernel, struct TF_OpKernelContext *context)
{
    job_compute(kernel, context, NULL);
}

static void collective_delete(void *kernel)
{
    kernel_free(kernel);
}

/* --- numbers --- */

struct number_kernel {
    int (*get)(int process_set);
    int32_t process_set;
};

static int get_size(int process_set)
{
    return hvd_process_set_size(process_set);
}

static int get_included(int process_set)
{
    if (hvd_process_set_size(process_set) < 0)
        return -2; /* Horovod's HOROVOD_PROCESS_SET_ERROR_UNKNOWN_SET */
    return hvd_process_set_rank(process_set) >= 0;
}

static int get_rank(int process_set)
{
    (void)process_set;
    return hvd_rank();
}

static int get_local_rank(int process_set)
{
    (void)process_set;
    return hvd_local_rank();
}

static int get_local_size(int process_set)
{
    (void)process_set;
    return hvd_local_size();
}

static void *number_create(struct TF_OpKernelConstruction *c, int (*get)(int))
{
    struct number_kernel *k = calloc(1, sizeof(*k));
    struct TF_Status *s = TF_NewStatus();

    if (!k)
        TF_SetStatus(s, TF_RESOURCE_EXHAUSTED, "out of memory for an operation");
    else if (TF_OpKernelConstruction_HasAttr(c, "process_set_id", s))
        TF_OpKernelConstruction_GetAttrInt32(c, "process_set_id", &k->process_set, s);
    if (TF_GetCode(s) != TF_OK)
        TF_OpKernelConstruction_Failure(c, s);
    if (k)
        k->get = get;
    TF_DeleteStatus(s);
    return k;
}

#define NUMBER(name)                                                                   \
    static void *name##_create(struct TF_OpKernelConstruction *c)                      \
    {                                                                                  \
        return number_create(c, get_##name);                                           \
    }

NUMBER(size)
NUMBER(included)
NUMBER(rank)
NUMBER(local_rank)
NUMBER(local_size)

static void number_compute(void *kernel, struct TF_OpKernelContext *context)
{
    const struct number_kernel *k = kernel;
    struct TF_Status *s = TF_NewStatus();
    struct TF_Tensor *output = NULL;
    int value = hvd_is_initialized() ? k->get(k->process_set) : 0;

    if (!hvd_is_initialized())
        TF_SetStatus(s, TF_FAILED_PRECONDITION, job_not_initialized);
    else if (value < 0 && k->get != get_included)
        TF_SetStatus(s, TF_INVALID_ARGUMENT, hvd_last_error());
    else
        output = TF_AllocateOutput(context, 0, TF_INT32, NULL, 0, sizeof(int32_t), s);
    if (TF_GetCode(s) == TF_OK)
        *(int32_t *)TF_TensorData(output) = value;
    else
        TF_OpKernelContext_Failure(context, s);
    if (output)
        TF_DeleteTensor(output);
    TF_DeleteStatus(s);
}

static void number_delete(void *kernel)
{
    free(kernel);
}

/* --- registration --- */

#define TYPES                                                                          \
    "{half, bfloat16, float, double, uint8, int8, uint16, int16, int32, int64, bool}"
#define ONE_TYPE  ("T: " TYPES)
#define TYPE_LIST ("T: list(" TYPES ") >= 1")
#define SET       "process_set_id: int = 0"
#define COMMON                                                                         \
    SET, "tensor_name: string = ''", "eager: bool = false", "blocking: bool = false"
#define NAMED COMMON, "ignore_name_scope: bool = false"
/* prescale_bits, postscale_bits: doubles, as kernel.c reads them; here those of 1.0 */
#define REDUCED                                                                        \
    NAMED, "reduce_op: int = 1", "prescale_bits: int = 4607182418800017408",           \
        "postscale_bits: int = 4607182418800017408"
#define COMPRESSED REDUCED, "compression: string = ''"

struct registration {
    const char *name;
    tf_create_fn create;
    tf_shape_fn shape;
    const char *inputs[2], *outputs[2], *attrs[12];
    tf_create_fn create_gpu; /* collectives only */
    const char *hosts[2];    /* tensors that stay in host memory on GPUs */
};

static const struct registration collectives[] = {
    {"HvdAllreduce",
     allreduce_create,
     shape_as_input,
     {"tensor: T"},
     {"sum: T"},
     {ONE_TYPE, COMPRESSED},
     allreduce_create_gpu,
     {NULL}},
    {"HvdGroupedAllreduce",
     grouped_allreduce_create,
     shape_as_input,
     {"tensors: T"},
     {"sum: T"},
     {TYPE_LIST, COMPRESSED},
     grouped_allreduce_create_gpu,
     {NULL}},
    {"HvdAllgather",
     allgather_create,
     shape_of_rows,
     {"tensor: T"},
     {"output: T"},
     {ONE_TYPE, NAMED},
     allgather_create_gpu,
     {NULL}},
    {"HvdGroupedAllgather",
     grouped_allgather_create,
     shape_of_rows,
     {"tensors: T"},
     {"outputs: T"},
     {TYPE_LIST, NAMED},
     grouped_allgather_create_gpu,
     {NULL}},
    {"HvdBroadcast",
     broadcast_create,
     shape_as_input,
     {"tensor: T"},
     {"output: T"},
     {ONE_TYPE, NAMED, "root_rank: int"},
     broadcast_create_gpu,
     {NULL}},
    {"HvdAlltoall",
     alltoall_create,
     shape_of_alltoall,
     {"tensor: T", "splits: int32"},
     {"output: T", "received_splits: int32"},
     {ONE_TYPE, NAMED},
     alltoall_create_gpu,
     {"splits", "received_splits"}},
    {"HvdReducescatter",
     reducescatter_create,
     shape_of_rows,
     {"tensor: T"},
     {"output: T"},
     {ONE_TYPE, REDUCED},
     reducescatter_create_gpu,
     {NULL}},
    {"HvdGroupedReducescatter",
     grouped_reducescatter_create,
     shape_of_rows,
     {"tensors: T"},
     {"outputs: T"},
     {TYPE_LIST, REDUCED},
     grouped_reducescatter_create_gpu,
     {NULL}},
    {"HvdJoin",
     join_create,
     shape_scalar,
     {NULL},
     {"output: int32"},
     {"eager: bool = false", "blocking: bool = false"},
     join_create_gpu,
     {"output"}},
    {"HvdBarrier",
     barrier_create,
     shape_none,
     {NULL},
     {NULL},
     {COMMON},
     barrier_create_gpu,
     {NULL}},
};

static const struct registration numbers[] = {
    {"HvdSize",
     size_create,
     shape_scalar,
     {NULL},
     {"size: int32"},
     {SET},
     NULL,
     {NULL}},
    {"HvdProcessSetIncluded",
     included_create,
     shape_scalar,
     {NULL},
     {"included: int32"},
     {SET},
     NULL,
     {NULL}},
    {"HvdRank",
     rank_create,
     shape_scalar,
     {NULL},
     {"rank: int32"},
     {NULL},
     NULL,
     {NULL}},
    {"HvdLocalRank",
     local_rank_create,
     shape_scalar,
     {NULL},
     {"local_rank: int32"},
     {NULL},
     NULL,
     {NULL}},
    {"HvdLocalSize",
     local_size_create,
     shape_scalar,
     {NULL},
     {"local_size: int32"},
     {NULL},
     NULL,
     {NULL}},
};

static const struct registration self_test = {
    "HvdSelfTest", NULL,   shape_as_input, {"x: int32"},
    {"y: int32"},  {NULL}, NULL,           {NULL}};

/* Prints a failure: there is no caller to return it to. */
static void registration_report(const struct registration *r, const struct TF_Status *s)
{
    if (TF_GetCode(s) != TF_OK)
        (void)fprintf(stderr, "libhvd_tf: cannot register %s: %s\n", r->name,
                      TF_Message(s));
}

static void register_op(const struct registration *r, struct TF_KernelBuilder *kernel)
{
    struct TF_OpDefinitionBuilder *b = TF_NewOpDefinitionBuilder(r->name);
    struct TF_Status *s = TF_NewStatus();

    for (size_t i = 0; i < sizeof(r->attrs) / sizeof(r->attrs[0]) && r->attrs[i]; i++)
        TF_OpDefinitionBuilderAddAttr(b, r->attrs[i]);
    for (size_t i = 0; i < 2 && r->inputs[i]; i++)
        TF_OpDefinitionBuilderAddInput(b, r->inputs[i]);
    for (size_t i = 0; i < 2 && r->outputs[i]; i++)
        TF_OpDefinitionBuilderAddOutput(b, r->outputs[i]);
    TF_OpDefinitionBuilderSetIsStateful(b, 1);
    TF_OpDefinitionBuilderSetShapeInferenceFunction(b, r->shape);
    TF_RegisterOpDefinition(b, s);
    if (TF_GetCode(s) == TF_OK)
        TF_RegisterKernelBuilder(r->name, kernel, s);
    registration_report(r, s);
    TF_DeleteStatus(s);
}

static struct TF_KernelBuilder *
new_collective(const struct registration *r, const char *device, tf_create_fn create)
{
    if (TF_NewAsyncKernelBuilder)
        return TF_NewAsyncKernelBuilder(r->name, device, create, collective_compute,
                                        collective_delete);
    return TF_NewKernelBuilder(r->name, device, create, collective_compute_now,
                               collective_delete);
}

static bool can_use_gpu(void)
{
    static const char yes[] = "{\"can\":true";
    char report[sizeof(yes)] = "";

    (void)hvd_device_report(report, sizeof(report));
    return strcmp(report, yes) == 0;
}

static void register_gpu(void)
{
    const struct registration *r;

    for (r = collectives; r < collectives + sizeof(collectives) / sizeof(*r); r++) {
        struct TF_KernelBuilder *b = new_collective(r, "GPU", r->create_gpu);
        struct TF_Status *s = TF_NewStatus();

        for (size_t i = 0; i < 2 && r->hosts[i]; i++)
            TF_KernelBuilder_HostMemory(b, r->hosts[i]);
        TF_RegisterKernelBuilder(r->name, b, s);
        registration_report(r, s);
        TF_DeleteStatus(s);
    }
}

int hvd_tf_use_gpu(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool is_checked, can; /* lock */
    bool r;

    (void)pthread_mutex_lock(&lock);
    if (!is_checked) {
        can = can_use_gpu();
        is_checked = true;
        if (can)
            register_gpu();
        else
            part_has_no_gpu();
    }
    r = can;
    (void)pthread_mutex_unlock(&lock);
    return r;
}

__attribute__((constructor)) static void register_all(void)
{
    const struct registration *r;

    for (r = collectives; r < collectives + sizeof(collectives) / sizeof(*r); r++)
        register_op(r, new_collective(r, "CPU", r->create));
    for (r = numbers; r < numbers + sizeof(numbers) / sizeof(*r); r++)
        register_op(r, TF_NewKernelBuilder(r->name, "CPU", r->create, number_compute,
                                           number_delete));
    if (TF_NewAsyncKernelBuilder)
        register_op(&self_test, TF_NewAsyncKernelBuilder(self_test.name, "CPU", NULL,
                                                         self_test_compute, NULL));
}

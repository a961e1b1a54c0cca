/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's C kernel API and the runtime's C API as far as runtime/tensorflow needs
 * them, for one process without either: they write down what is asked of them, in order
 * (`said`), and end every operation well. Included by one test program, whose
 * configuration and log are the variables here. */
#ifndef TESTS_UNIT_TF_FAKE_H
#define TESTS_UNIT_TF_FAKE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hvd.h"
#include "runtime/tensorflow/tf_c_api.h"

/* --- what a test sets and reads --- */

static const char *fake_report = "{\"can\":false,\"problem\":\"none\"}";
static char said[4096];

#define SAY(...)                                                                       \
    (void)snprintf(said + strlen(said), sizeof(said) - strlen(said), __VA_ARGS__)

/* --- TensorFlow: states, tensors --- */

struct TF_Status {
    int code;
    char text[256];
};

struct TF_Tensor { /* a vector of floats */
    int64_t n;
    float data[16];
};

struct TF_KernelBuilder {
    char op[40], device[8], hosts[80];
    tf_create_fn create;
    void (*compute)(void *, struct TF_OpKernelContext *);
    tf_delete_fn free;
};

struct TF_OpKernelConstruction {
    bool is_eager;
};

struct TF_OpKernelContext {
    int n_inputs;
    int64_t n; /* of each input */
};

static struct TF_KernelBuilder fake_kernels[64];
static size_t fake_n_kernels;

struct TF_Status *TF_NewStatus(void)
{
    return calloc(1, sizeof(struct TF_Status));
}

void TF_DeleteStatus(struct TF_Status *s)
{
    free(s);
}

void TF_SetStatus(struct TF_Status *s, int code, const char *text)
{
    s->code = code;
    (void)snprintf(s->text, sizeof(s->text), "%s", text);
}

int TF_GetCode(const struct TF_Status *s)
{
    return s->code;
}

const char *TF_Message(const struct TF_Status *s)
{
    return s->text;
}

static struct TF_Tensor *fake_tensor(int64_t n)
{
    struct TF_Tensor *t = calloc(1, sizeof(*t));

    t->n = n;
    return t;
}

void TF_DeleteTensor(struct TF_Tensor *t)
{
    free(t);
}

int TF_TensorType(const struct TF_Tensor *t)
{
    (void)t;
    return TF_FLOAT;
}

int TF_NumDims(const struct TF_Tensor *t)
{
    (void)t;
    return 1;
}

int64_t TF_Dim(const struct TF_Tensor *t, int i)
{
    (void)i;
    return t->n;
}

size_t TF_TensorByteSize(const struct TF_Tensor *t)
{
    return (size_t)t->n * sizeof(float);
}

void *TF_TensorData(const struct TF_Tensor *t)
{
    return t->n > 0 ? (void *)(uintptr_t)t->data : NULL;
}

/* --- TensorFlow: registration --- */

static struct TF_KernelBuilder *
fake_kernel(const char *op, const char *device, tf_create_fn create, tf_delete_fn del)
{
    struct TF_KernelBuilder *b = calloc(1, sizeof(*b));

    (void)snprintf(b->op, sizeof(b->op), "%s", op);
    (void)snprintf(b->device, sizeof(b->device), "%s", device);
    b->create = create;
    b->free = del;
    return b;
}

/* Without asynchronous kernels, as TensorFlow 2.12: an operation ends in compute. The
 * names are weak in the code, so that they may be absent. */
struct TF_KernelBuilder *TF_NewKernelBuilder(const char *op,
                                             const char *device,
                                             tf_create_fn create,
                                             tf_compute_fn compute,
                                             tf_delete_fn del)
{
    struct TF_KernelBuilder *b = fake_kernel(op, device, create, del);

    b->compute = compute;
    return b;
}

void TF_KernelBuilder_HostMemory(struct TF_KernelBuilder *b, const char *argument)
{
    size_t n = strlen(b->hosts);

    (void)snprintf(b->hosts + n, sizeof(b->hosts) - n, "%s%s", n ? "," : "", argument);
}

void TF_RegisterKernelBuilder(const char *name,
                              struct TF_KernelBuilder *b,
                              struct TF_Status *s)
{
    (void)name;
    (void)s;
    if (fake_n_kernels < sizeof(fake_kernels) / sizeof(fake_kernels[0]))
        fake_kernels[fake_n_kernels++] = *b;
    free(b);
}

struct TF_OpDefinitionBuilder *TF_NewOpDefinitionBuilder(const char *name)
{
    return (struct TF_OpDefinitionBuilder *)(uintptr_t)name;
}

void TF_OpDefinitionBuilderAddInput(struct TF_OpDefinitionBuilder *b, const char *text)
{
    (void)b;
    (void)text;
}

void TF_OpDefinitionBuilderAddOutput(struct TF_OpDefinitionBuilder *b, const char *text)
{
    (void)b;
    (void)text;
}

void TF_OpDefinitionBuilderAddAttr(struct TF_OpDefinitionBuilder *b, const char *text)
{
    (void)b;
    (void)text;
}

void TF_OpDefinitionBuilderSetIsStateful(struct TF_OpDefinitionBuilder *b,
                                         unsigned char is)
{
    (void)b;
    (void)is;
}

void TF_OpDefinitionBuilderSetShapeInferenceFunction(struct TF_OpDefinitionBuilder *b,
                                                     tf_shape_fn shape)
{
    (void)b;
    (void)shape;
}

void TF_RegisterOpDefinition(struct TF_OpDefinitionBuilder *b, struct TF_Status *s)
{
    (void)b;
    (void)s;
}

/* --- TensorFlow: a kernel's attributes --- */

struct tf_string_view TF_OpKernelConstruction_GetName(struct TF_OpKernelConstruction *c)
{
    (void)c;
    return (struct tf_string_view){"x", 1};
}

void TF_OpKernelConstruction_Failure(struct TF_OpKernelConstruction *c,
                                     struct TF_Status *s)
{
    (void)c;
    SAY("failure: %s ", s->text);
}

bool TF_OpKernelConstruction_HasAttr(struct TF_OpKernelConstruction *c,
                                     const char *name,
                                     struct TF_Status *s)
{
    (void)c;
    (void)s;
    return !strcmp(name, "blocking") || !strcmp(name, "eager");
}

void TF_OpKernelConstruction_GetAttrBool(struct TF_OpKernelConstruction *c,
                                         const char *name,
                                         unsigned char *ret,
                                         struct TF_Status *s)
{
    (void)s;
    *ret = !strcmp(name, "eager") ? c->is_eager : 1;
}

void TF_OpKernelConstruction_GetAttrInt32(struct TF_OpKernelConstruction *c,
                                          const char *name,
                                          int32_t *ret,
                                          struct TF_Status *s)
{
    (void)c;
    (void)name;
    (void)s;
    *ret = 0;
}

void TF_OpKernelConstruction_GetAttrInt64(struct TF_OpKernelConstruction *c,
                                          const char *name,
                                          int64_t *ret,
                                          struct TF_Status *s)
{
    (void)c;
    (void)name;
    (void)s;
    *ret = 0;
}

void TF_OpKernelConstruction_GetAttrSize(struct TF_OpKernelConstruction *c,
                                         const char *name,
                                         int32_t *list,
                                         int32_t *total,
                                         struct TF_Status *s)
{
    (void)c;
    (void)name;
    (void)s;
    *list = *total = 0;
}

void TF_OpKernelConstruction_GetAttrString(struct TF_OpKernelConstruction *c,
                                           const char *name,
                                           char *ret,
                                           size_t n,
                                           struct TF_Status *s)
{
    (void)c;
    (void)name;
    (void)ret;
    (void)n;
    (void)s;
}

/* --- TensorFlow: a run --- */

int TF_NumInputs(struct TF_OpKernelContext *c)
{
    return c->n_inputs;
}

int64_t TF_GetIterId(struct TF_OpKernelContext *c)
{
    (void)c;
    return 0;
}

void TF_GetInput(struct TF_OpKernelContext *c,
                 int i,
                 struct TF_Tensor **ret,
                 struct TF_Status *s)
{
    (void)i;
    (void)s;
    *ret = fake_tensor(c->n);
}

void TF_SetOutput(struct TF_OpKernelContext *c,
                  int i,
                  const struct TF_Tensor *t,
                  struct TF_Status *s)
{
    (void)c;
    (void)t;
    (void)s;
    SAY("set%d ", i);
}

struct TF_Tensor *TF_ForwardInputOrAllocateOutput(struct TF_OpKernelContext *c,
                                                  const int *candidates,
                                                  int n_candidates,
                                                  int output,
                                                  const int64_t *dims,
                                                  int n_dims,
                                                  int *ret_forwarded,
                                                  struct TF_Status *s)
{
    (void)c;
    (void)candidates;
    (void)n_candidates;
    (void)n_dims;
    (void)s;
    *ret_forwarded = -1;
    SAY("make%d ", output);
    return fake_tensor(dims[0]);
}

struct TF_Tensor *TF_AllocateOutput(struct TF_OpKernelContext *c,
                                    int output,
                                    int type,
                                    const int64_t *dims,
                                    int n_dims,
                                    size_t n_bytes,
                                    struct TF_Status *s)
{
    (void)c;
    (void)type;
    (void)n_bytes;
    (void)s;
    SAY("make%d ", output);
    return fake_tensor(n_dims > 0 ? dims[0] : 1);
}

void TF_OpKernelContext_Failure(struct TF_OpKernelContext *c, struct TF_Status *s)
{
    (void)c;
    SAY("failure: %s ", s->text);
}

void TF_RunAsyncOpKernelDoneCallback(struct TF_AsyncOpKernelDoneCallback *callback)
{
    (void)callback;
}

/* --- TensorFlow: shapes, which no test here infers --- */

#define FAKE_SHAPES(X)                                                                 \
    X(void, TF_DeleteShapeHandle, (struct TF_ShapeHandle * a), )                       \
    X(struct TF_ShapeHandle *, TF_NewShapeHandle, (void), return NULL;)                \
    X(void, TF_ShapeInferenceContextGetInput,                                          \
      (struct TF_ShapeInferenceContext * a, int b, struct TF_ShapeHandle *d,           \
       struct TF_Status *e), )                                                         \
    X(void, TF_ShapeInferenceContextSetOutput,                                         \
      (struct TF_ShapeInferenceContext * a, int b, struct TF_ShapeHandle *d,           \
       struct TF_Status *e), )                                                         \
    X(int64_t, TF_ShapeInferenceContextNumInputs,                                      \
      (struct TF_ShapeInferenceContext * a), return 0;)                                \
    X(int, TF_ShapeInferenceContextRankKnown,                                          \
      (struct TF_ShapeInferenceContext * a, struct TF_ShapeHandle * b), return 0;)     \
    X(int64_t, TF_ShapeInferenceContextRank,                                           \
      (struct TF_ShapeInferenceContext * a, struct TF_ShapeHandle * b), return 0;)     \
    X(void, TF_ShapeInferenceContextWithRankAtLeast,                                   \
      (struct TF_ShapeInferenceContext * a, struct TF_ShapeHandle * b, int64_t d,      \
       struct TF_ShapeHandle * e, struct TF_Status * f), )                             \
    X(void, TF_ShapeInferenceContextSubshape,                                          \
      (struct TF_ShapeInferenceContext * a, struct TF_ShapeHandle * b, int64_t d,      \
       int64_t e, struct TF_ShapeHandle * f, struct TF_Status * g), )                  \
    X(void, TF_ShapeInferenceContextConcatenateShapes,                                 \
      (struct TF_ShapeInferenceContext * a, struct TF_ShapeHandle * b,                 \
       struct TF_ShapeHandle * d, struct TF_ShapeHandle * e, struct TF_Status * f), )  \
    X(struct TF_ShapeHandle *, TF_ShapeInferenceContextScalar,                         \
      (struct TF_ShapeInferenceContext * a), return NULL;)                             \
    X(struct TF_ShapeHandle *, TF_ShapeInferenceContextVectorFromSize,                 \
      (struct TF_ShapeInferenceContext * a, size_t b), return NULL;)
#define FAKE_SHAPE(result, name, parameters, body)                                     \
    result name parameters                                                             \
    {                                                                                  \
        body                                                                           \
    }
_Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wunused-parameter\"")
    FAKE_SHAPES(FAKE_SHAPE) _Pragma("GCC diagnostic pop")

    /* --- the runtime --- */

    static struct fake_op {
    hvd_alloc_fn alloc;
    void *arg;
    int64_t n;
} fake_ops[64];
static hvd_handle fake_n_ops;
/* An operation that begins while the next one is waited for; NULL: none. */
static const struct TF_KernelBuilder *fake_inner;
static void *fake_inner_kernel;

/* The submit of t, which is of n elements. */
static int fake_submit(const char *what,
                       const struct hvd_tensor *t,
                       hvd_alloc_fn alloc,
                       void *arg,
                       hvd_handle *ret)
{
    struct fake_op *op = &fake_ops[fake_n_ops++ % 64];

    *op = (struct fake_op){alloc, arg, t->ndim > 0 ? t->shape[0] : 0};
    *ret = fake_n_ops;
    SAY("%s(%s,%d%s%s%s) ", what, t->name, t->device,
        t->stream == HVD_STREAM_ALL ? ",all" : "", t->is_held ? ",held" : "",
        t->ndim > 0 && !t->data ? ",NULL" : "");
    return HVD_OK;
}

int hvd_allreduce_async(const struct hvd_tensor *t,
                        int op,
                        double prescale,
                        double postscale,
                        int set,
                        hvd_handle *ret)
{
    (void)op;
    (void)prescale;
    (void)postscale;
    (void)set;
    return fake_submit("allreduce", t, NULL, NULL, ret);
}

int hvd_allgather_async(
    const struct hvd_tensor *t, hvd_alloc_fn alloc, void *arg, int set, hvd_handle *ret)
{
    (void)set;
    return fake_submit("allgather", t, alloc, arg, ret);
}

int hvd_broadcast_async(const struct hvd_tensor *t, int root, int set, hvd_handle *ret)
{
    (void)root;
    (void)set;
    return fake_submit("broadcast", t, NULL, NULL, ret);
}

int hvd_reducescatter_async(const struct hvd_tensor *t,
                            int op,
                            double prescale,
                            double postscale,
                            hvd_alloc_fn alloc,
                            void *arg,
                            int set,
                            hvd_handle *ret)
{
    (void)op;
    (void)prescale;
    (void)postscale;
    (void)set;
    return fake_submit("reducescatter", t, alloc, arg, ret);
}

int hvd_alltoall_async(const struct hvd_tensor *t,
                       const int64_t *splits,
                       int n_splits,
                       hvd_alloc_fn alloc,
                       void *arg,
                       int set,
                       hvd_handle *ret)
{
    (void)splits;
    (void)n_splits;
    (void)set;
    return fake_submit("alltoall", t, alloc, arg, ret);
}

int hvd_barrier_async(const struct hvd_tensor *t, int set, hvd_handle *ret)
{
    (void)set;
    return fake_submit("barrier", t, NULL, NULL, ret);
}

int hvd_join_async(const struct hvd_tensor *t, hvd_handle *ret)
{
    return fake_submit("join", t, NULL, NULL, ret);
}

int hvd_submit_held(const hvd_handle *handles, int n)
{
    (void)handles;
    SAY("submit%d ", n);
    return HVD_OK;
}

int hvd_wait(hvd_handle h, int64_t timeout_ms)
{
    struct fake_op *op = &fake_ops[(h - 1) % 64];

    (void)timeout_ms;
    SAY("wait ");
    if (fake_inner) {
        const struct TF_KernelBuilder *inner = fake_inner;
        struct TF_OpKernelContext context = {1, 4};

        fake_inner = NULL;
        inner->compute(fake_inner_kernel, &context);
    }
    if (op->alloc && !op->alloc(op->arg, 1, &op->n, (size_t)op->n * sizeof(float)))
        return HVD_NO_MEMORY;
    return HVD_OK;
}

int hvd_release(hvd_handle h)
{
    (void)h;
    return HVD_OK;
}

int hvd_received_splits(hvd_handle h, int64_t *ret, int n)
{
    (void)h;
    if (n > 0)
        ret[0] = 4;
    return 1;
}

int hvd_joined_last(hvd_handle h)
{
    (void)h;
    return 0;
}

const char *hvd_last_error(void)
{
    return "";
}

int hvd_is_initialized(void)
{
    return 1;
}

int hvd_rank(void)
{
    return 1;
}

int hvd_local_rank(void)
{
    return 1;
}

int hvd_local_size(void)
{
    return 2;
}

int hvd_process_set_size(int id)
{
    (void)id;
    return 2;
}

int hvd_process_set_rank(int id)
{
    (void)id;
    return 1;
}

size_t hvd_device_report(char *buf, size_t n)
{
    SAY("report ");
    return (size_t)snprintf(buf, n, "%s", fake_report);
}

#endif

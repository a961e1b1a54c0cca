/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow's C kernel API as far as runtime/tensorflow needs it: kernels that are
 * registered can be run on vectors. It writes down, in order, which outputs are made
 * (`said`). Included by one test program, whose configuration and log are the variables
 * here. It has no asynchronous kernels, as TensorFlow 2.12. */
#ifndef TESTS_UNIT_TF_FAKE_H
#define TESTS_UNIT_TF_FAKE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/tensorflow/tf_c_api.h"

/* --- what a test sets and reads --- */

static char said[4096];

__attribute__((format(printf, 1, 2))) static void fake_log(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(said + strlen(said), sizeof(said) - strlen(said), fmt, ap);
    va_end(ap);
}

/* --- TensorFlow: states, tensors --- */

struct TF_Status {
    int code;
    char text[256];
};

struct TF_Tensor { /* a vector */
    int refs, type;
    int64_t n;
    void *data; /* NULL: it is empty */
};

struct TF_KernelBuilder {
    char op[40], device[8], hosts[80];
    tf_create_fn create;
    tf_compute_fn compute;
    tf_delete_fn free;
};

struct TF_OpKernelConstruction {
    const char *name;
    bool is_eager, is_blocking;
};

#define FAKE_MAX_TENSORS 8
struct TF_OpKernelContext {
    int n_inputs;
    struct TF_Tensor *inputs[FAKE_MAX_TENSORS], *outputs[FAKE_MAX_TENSORS];
    char failure[256]; /* "": none */
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

static size_t fake_bytes(int type, int64_t n)
{
    return (size_t)n * (type == TF_INT32 || type == TF_FLOAT ? 4 : 8);
}

static struct TF_Tensor *fake_tensor(int type, int64_t n)
{
    struct TF_Tensor *t = calloc(1, sizeof(*t));
    size_t bytes = fake_bytes(type, n);

    t->refs = 1;
    t->type = type;
    t->n = n;
    if (bytes > 0)
        t->data = calloc(1, bytes);
    return t;
}

static struct TF_Tensor *fake_ref(struct TF_Tensor *t)
{
    t->refs++;
    return t;
}

void TF_DeleteTensor(struct TF_Tensor *t)
{
    if (--t->refs > 0)
        return;
    free(t->data);
    free(t);
}

int TF_TensorType(const struct TF_Tensor *t)
{
    return t->type;
}

int TF_NumDims(const struct TF_Tensor *t)
{
    return 1;
}

int64_t TF_Dim(const struct TF_Tensor *t, int i)
{
    return t->n;
}

size_t TF_TensorByteSize(const struct TF_Tensor *t)
{
    return fake_bytes(t->type, t->n);
}

void *TF_TensorData(const struct TF_Tensor *t)
{
    return t->data;
}

/* --- TensorFlow: registration --- */

struct TF_KernelBuilder *TF_NewKernelBuilder(const char *op,
                                             const char *device,
                                             tf_create_fn create,
                                             tf_compute_fn compute,
                                             tf_delete_fn del)
{
    struct TF_KernelBuilder *b = calloc(1, sizeof(*b));

    (void)snprintf(b->op, sizeof(b->op), "%s", op);
    (void)snprintf(b->device, sizeof(b->device), "%s", device);
    b->create = create;
    b->compute = compute;
    b->free = del;
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
    if (fake_n_kernels < sizeof(fake_kernels) / sizeof(fake_kernels[0]))
        fake_kernels[fake_n_kernels++] = *b;
    free(b);
}

/* --- TensorFlow: a kernel's attributes --- */

struct tf_string_view TF_OpKernelConstruction_GetName(struct TF_OpKernelConstruction *c)
{
    return (struct tf_string_view){c->name, strlen(c->name)};
}

void TF_OpKernelConstruction_Failure(struct TF_OpKernelConstruction *c,
                                     struct TF_Status *s)
{
    fake_log("failure: %s ", s->text);
}

bool TF_OpKernelConstruction_HasAttr(struct TF_OpKernelConstruction *c,
                                     const char *name,
                                     struct TF_Status *s)
{
    return !strcmp(name, "blocking") || !strcmp(name, "eager");
}

void TF_OpKernelConstruction_GetAttrBool(struct TF_OpKernelConstruction *c,
                                         const char *name,
                                         unsigned char *ret,
                                         struct TF_Status *s)
{
    *ret = !strcmp(name, "eager") ? c->is_eager : c->is_blocking;
}

/* --- TensorFlow: a run --- */

int TF_NumInputs(struct TF_OpKernelContext *c)
{
    return c->n_inputs;
}

void TF_GetInput(struct TF_OpKernelContext *c,
                 int i,
                 struct TF_Tensor **ret,
                 struct TF_Status *s)
{
    *ret = fake_ref(c->inputs[i]);
}

void TF_SetOutput(struct TF_OpKernelContext *c,
                  int i,
                  const struct TF_Tensor *t,
                  struct TF_Status *s)
{
    fake_log("set%d ", i);
    c->outputs[i] = fake_ref((struct TF_Tensor *)(uintptr_t)t);
}

struct TF_Tensor *TF_AllocateOutput(struct TF_OpKernelContext *c,
                                    int output,
                                    int type,
                                    const int64_t *dims,
                                    int n_dims,
                                    size_t n_bytes,
                                    struct TF_Status *s)
{
    fake_log("make%d ", output);
    c->outputs[output] = fake_tensor(type, n_dims > 0 ? dims[0] : 1);
    return fake_ref(c->outputs[output]);
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
    *ret_forwarded = -1;
    return TF_AllocateOutput(c, output, c->inputs[output]->type, dims, n_dims, 0, s);
}

void TF_OpKernelContext_Failure(struct TF_OpKernelContext *c, struct TF_Status *s)
{
    (void)snprintf(c->failure, sizeof(c->failure), "%s", s->text);
}

/* --- TensorFlow: what does nothing here --- */

/* By name alone, as in tf_stub.c: what defines operations and infers shapes. */
#define FAKE_NOTHING(name)                                                             \
    void *nothing_##name(void) __asm__(#name);                                         \
    void *nothing_##name(void)                                                         \
    {                                                                                  \
        return NULL;                                                                   \
    }
FAKE_NOTHING(TF_GetIterId)
FAKE_NOTHING(TF_RunAsyncOpKernelDoneCallback)
FAKE_NOTHING(TF_NewOpDefinitionBuilder)
FAKE_NOTHING(TF_OpDefinitionBuilderAddInput)
FAKE_NOTHING(TF_OpDefinitionBuilderAddOutput)
FAKE_NOTHING(TF_OpDefinitionBuilderAddAttr)
FAKE_NOTHING(TF_OpDefinitionBuilderSetIsStateful)
FAKE_NOTHING(TF_OpDefinitionBuilderSetShapeInferenceFunction)
FAKE_NOTHING(TF_RegisterOpDefinition)
FAKE_NOTHING(TF_OpKernelConstruction_GetAttrInt32)
FAKE_NOTHING(TF_OpKernelConstruction_GetAttrInt64)
FAKE_NOTHING(TF_OpKernelConstruction_GetAttrSize)
FAKE_NOTHING(TF_OpKernelConstruction_GetAttrString)
FAKE_NOTHING(TF_DeleteShapeHandle)
FAKE_NOTHING(TF_NewShapeHandle)
FAKE_NOTHING(TF_ShapeInferenceContextGetInput)
FAKE_NOTHING(TF_ShapeInferenceContextSetOutput)
FAKE_NOTHING(TF_ShapeInferenceContextNumInputs)
FAKE_NOTHING(TF_ShapeInferenceContextRankKnown)
FAKE_NOTHING(TF_ShapeInferenceContextRank)
FAKE_NOTHING(TF_ShapeInferenceContextWithRankAtLeast)
FAKE_NOTHING(TF_ShapeInferenceContextSubshape)
FAKE_NOTHING(TF_ShapeInferenceContextConcatenateShapes)
FAKE_NOTHING(TF_ShapeInferenceContextScalar)
FAKE_NOTHING(TF_ShapeInferenceContextVectorFromSize)

/* --- for tests --- */

static const struct TF_KernelBuilder *fake_find(const char *op, const char *device)
{
    for (size_t i = 0; i < fake_n_kernels; i++)
        if (!strcmp(fake_kernels[i].op, op) && !strcmp(fake_kernels[i].device, device))
            return &fake_kernels[i];
    return NULL;
}

/* Gives back what a run had. */
static void fake_clear(struct TF_OpKernelContext *c)
{
    for (int i = 0; i < FAKE_MAX_TENSORS; i++) {
        if (c->inputs[i])
            TF_DeleteTensor(c->inputs[i]);
        if (c->outputs[i])
            TF_DeleteTensor(c->outputs[i]);
    }
}

#endif

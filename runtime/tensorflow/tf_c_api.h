/* SPDX-License-Identifier: Apache-2.0 */
/* tf_c_api.h: the part of TensorFlow's C kernel API that is used, as prototypes
 * of our own.
 *
 * TensorFlow is not needed to build: the linker gets a stub (tf_stub.c) that has these
 * names and TensorFlow's soname. The API is TensorFlow's stable C ABI; names, types and
 * numbers here were the same from 2.12 to 2.21. Semantics: tensorflow/c/kernels.h,
 * ops.h, tf_tensor.h, tf_status.h.
 *
 * HVD_TF_FUNCTIONS(X) lists each function once: X(result, name, parameters). */
#ifndef RUNTIME_TENSORFLOW_TF_C_API_H
#define RUNTIME_TENSORFLOW_TF_C_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct TF_Status;
struct TF_Tensor;
struct TF_KernelBuilder;
struct TF_OpDefinitionBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_AsyncOpKernelDoneCallback; /* a std::function<void()>: see done.h */

struct tf_string_view {
    const char *data;
    size_t len;
};

enum tf_code {
    TF_OK = 0,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_ABORTED = 10,
    TF_INTERNAL = 13
};

enum tf_type {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_UINT16 = 17,
    TF_HALF = 19
};

typedef void *(*tf_create_fn)(struct TF_OpKernelConstruction *);
typedef void (*tf_async_compute_fn)(void *,
                                    struct TF_OpKernelContext *,
                                    struct TF_AsyncOpKernelDoneCallback *);
typedef void (*tf_compute_fn)(void *, struct TF_OpKernelContext *);
typedef void (*tf_delete_fn)(void *);
typedef void (*tf_shape_fn)(struct TF_ShapeInferenceContext *, struct TF_Status *);

#define HVD_TF_FUNCTIONS(X)                                                            \
    X(struct TF_Status *, TF_NewStatus, (void))                                        \
    X(void, TF_DeleteStatus, (struct TF_Status *))                                     \
    X(void, TF_SetStatus, (struct TF_Status *, int code, const char *text))            \
    X(int, TF_GetCode, (const struct TF_Status *))                                     \
    X(const char *, TF_Message, (const struct TF_Status *))                            \
    X(void, TF_DeleteTensor, (struct TF_Tensor *))                                     \
    X(int, TF_TensorType, (const struct TF_Tensor *))                                  \
    X(int, TF_NumDims, (const struct TF_Tensor *))                                     \
    X(int64_t, TF_Dim, (const struct TF_Tensor *, int))                                \
    X(size_t, TF_TensorByteSize, (const struct TF_Tensor *))                           \
    X(void *, TF_TensorData, (const struct TF_Tensor *))                               \
    X(struct TF_OpDefinitionBuilder *, TF_NewOpDefinitionBuilder, (const char *))      \
    X(void, TF_OpDefinitionBuilderAddInput,                                            \
      (struct TF_OpDefinitionBuilder *, const char *))                                 \
    X(void, TF_OpDefinitionBuilderAddOutput,                                           \
      (struct TF_OpDefinitionBuilder *, const char *))                                 \
    X(void, TF_OpDefinitionBuilderAddAttr,                                             \
      (struct TF_OpDefinitionBuilder *, const char *))                                 \
    X(void, TF_OpDefinitionBuilderSetIsStateful,                                       \
      (struct TF_OpDefinitionBuilder *, unsigned char))                                \
    X(void, TF_OpDefinitionBuilderSetShapeInferenceFunction,                           \
      (struct TF_OpDefinitionBuilder *, tf_shape_fn))                                  \
    X(void, TF_RegisterOpDefinition,                                                   \
      (struct TF_OpDefinitionBuilder *, struct TF_Status *))                           \
    X(struct TF_ShapeHandle *, TF_NewShapeHandle, (void))                              \
    X(void, TF_DeleteShapeHandle, (struct TF_ShapeHandle *))                           \
    X(void, TF_ShapeInferenceContextGetInput,                                          \
      (struct TF_ShapeInferenceContext *, int, struct TF_ShapeHandle *,                \
       struct TF_Status *))                                                            \
    X(void, TF_ShapeInferenceContextSetOutput,                                         \
      (struct TF_ShapeInferenceContext *, int, struct TF_ShapeHandle *,                \
       struct TF_Status *))                                                            \
    X(int64_t, TF_ShapeInferenceContextNumInputs, (struct TF_ShapeInferenceContext *)) \
    X(int, TF_ShapeInferenceContextRankKnown,                                          \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *))                    \
    X(int64_t, TF_ShapeInferenceContextRank,                                           \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *))                    \
    X(void, TF_ShapeInferenceContextWithRankAtLeast,                                   \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *, int64_t rank,       \
       struct TF_ShapeHandle * result, struct TF_Status *))                            \
    X(void, TF_ShapeInferenceContextSubshape,                                          \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle *, int64_t start,      \
       int64_t end, struct TF_ShapeHandle * result, struct TF_Status *))               \
    X(void, TF_ShapeInferenceContextConcatenateShapes,                                 \
      (struct TF_ShapeInferenceContext *, struct TF_ShapeHandle * first,               \
       struct TF_ShapeHandle * second, struct TF_ShapeHandle * result,                 \
       struct TF_Status *))                                                            \
    X(struct TF_ShapeHandle *, TF_ShapeInferenceContextScalar,                         \
      (struct TF_ShapeInferenceContext *))                                             \
    X(struct TF_ShapeHandle *, TF_ShapeInferenceContextVectorFromSize,                 \
      (struct TF_ShapeInferenceContext *, size_t))                                     \
    X(struct TF_KernelBuilder *, TF_NewKernelBuilder,                                  \
      (const char *op, const char *device, tf_create_fn, tf_compute_fn, tf_delete_fn)) \
    X(struct TF_KernelBuilder *, TF_NewAsyncKernelBuilder,                             \
      (const char *op, const char *device, tf_create_fn, tf_async_compute_fn,          \
       tf_delete_fn))                                                                  \
    X(void, TF_KernelBuilder_HostMemory,                                               \
      (struct TF_KernelBuilder *, const char *argument))                               \
    X(void, TF_RegisterKernelBuilder,                                                  \
      (const char *name, struct TF_KernelBuilder *, struct TF_Status *))               \
    X(void, TF_RunAsyncOpKernelDoneCallback, (struct TF_AsyncOpKernelDoneCallback *))  \
    X(struct tf_string_view, TF_OpKernelConstruction_GetName,                          \
      (struct TF_OpKernelConstruction *))                                              \
    X(void, TF_OpKernelConstruction_Failure,                                           \
      (struct TF_OpKernelConstruction *, struct TF_Status *))                          \
    X(void, TF_OpKernelConstruction_GetAttrInt32,                                      \
      (struct TF_OpKernelConstruction *, const char *, int32_t *, struct TF_Status *)) \
    X(void, TF_OpKernelConstruction_GetAttrInt64,                                      \
      (struct TF_OpKernelConstruction *, const char *, int64_t *, struct TF_Status *)) \
    X(bool, TF_OpKernelConstruction_HasAttr,                                           \
      (struct TF_OpKernelConstruction *, const char *, struct TF_Status *))            \
    X(void, TF_OpKernelConstruction_GetAttrBool,                                       \
      (struct TF_OpKernelConstruction *, const char *, unsigned char *,                \
       struct TF_Status *))                                                            \
    X(void, TF_OpKernelConstruction_GetAttrSize,                                       \
      (struct TF_OpKernelConstruction *, const char *, int32_t *list_size,             \
       int32_t *total_size, struct TF_Status *))                                       \
    X(void, TF_OpKernelConstruction_GetAttrString,                                     \
      (struct TF_OpKernelConstruction *, const char *, char *, size_t,                 \
       struct TF_Status *))                                                            \
    X(void, TF_GetInput,                                                               \
      (struct TF_OpKernelContext *, int, struct TF_Tensor **, struct TF_Status *))     \
    X(int, TF_NumInputs, (struct TF_OpKernelContext *))                                \
    X(int64_t, TF_GetIterId, (struct TF_OpKernelContext *))                            \
    X(void, TF_SetOutput,                                                              \
      (struct TF_OpKernelContext *, int, const struct TF_Tensor *,                     \
       struct TF_Status *))                                                            \
    X(struct TF_Tensor *, TF_ForwardInputOrAllocateOutput,                             \
      (struct TF_OpKernelContext *, const int *candidates, int n_candidates,           \
       int output, const int64_t *dims, int n_dims, int *ret_forwarded,                \
       struct TF_Status *))                                                            \
    X(struct TF_Tensor *, TF_AllocateOutput,                                           \
      (struct TF_OpKernelContext *, int, int type, const int64_t *dims, int n_dims,    \
       size_t n_bytes, struct TF_Status *))                                            \
    X(void, TF_OpKernelContext_Failure,                                                \
      (struct TF_OpKernelContext *, struct TF_Status *))

#define HVD_TF_PROTOTYPE(result, name, parameters) result name parameters;
HVD_TF_FUNCTIONS(HVD_TF_PROTOTYPE)
#undef HVD_TF_PROTOTYPE

/* Asynchronous kernels came with TensorFlow 2.13: NULL before. */
#pragma weak TF_NewAsyncKernelBuilder
#pragma weak TF_RunAsyncOpKernelDoneCallback

#endif

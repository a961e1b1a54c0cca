/* SPDX-License-Identifier: Apache-2.0 */
/* libcublas.so.{13,12,11} by dlopen, for PowerSGD alone. */
#ifndef RUNTIME_BACKEND_NCCL_CUBLAS_DL_H
#define RUNTIME_BACKEND_NCCL_CUBLAS_DL_H

#include "runtime/backend/nccl/cuda_dl.h"

typedef struct cublas_s *cublas_handle;
enum { CUBLAS_N = 0, CUBLAS_T = 1 };
enum { CUBLAS_POINTER_HOST = 0, CUBLAS_ATOMICS_OFF = 0 };

/* clang-format off */
#define CUBLAS_SYMBOLS(X)                                                                          \
    X(create, cublasCreate_v2, (cublas_handle *ret))                                               \
    X(destroy, cublasDestroy_v2, (cublas_handle h))                                                \
    X(set_stream, cublasSetStream_v2, (cublas_handle h, cu_stream s))                              \
    X(set_workspace, cublasSetWorkspace_v2, (cublas_handle h, void *p, size_t bytes))              \
    X(set_pointer_mode, cublasSetPointerMode_v2, (cublas_handle h, int mode))                      \
    X(set_atomics, cublasSetAtomicsMode, (cublas_handle h, int mode))                              \
    X(sgemm, cublasSgemm_v2,                                                                       \
      (cublas_handle h, int ta, int tb, int m, int n, int k, const float *alpha, const float *a,   \
       int lda, const float *b, int ldb, const float *beta, float *c, int ldc))
/* clang-format on */
struct cublas_api {
    int major; /* 12 */
/* NOLINTBEGIN(bugprone-macro-parentheses): names and argument lists */
#define CUBLAS_FIELD(name, symbol, args) int(*name) args;
    CUBLAS_SYMBOLS(CUBLAS_FIELD)
#undef CUBLAS_FIELD
    /* NOLINTEND(bugprone-macro-parentheses) */
};

/* The process's table, looked for once: what is loaded already, then by the loader's
 * path, the driver's major first. -ENOENT: "cuBLAS was not found (libcublas.so.12)". */
int cublas_load(int driver_version, const struct cublas_api **ret, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* libcublas.so.12 of the tests: sgemm by loops, on the handle's stream. */
#include <stdlib.h>

#include "runtime/backend/nccl/cublas_dl.h"
#include "tests/fakes/cuda/fake_cuda.h"

/* As the backend looks them up. */
#define CUBLAS_DECLARE(name, symbol, args) EXPORT int symbol args;
CUBLAS_SYMBOLS(CUBLAS_DECLARE)

struct cublas_s {
    cu_stream s;
    int mode;
};

int cublasCreate_v2(cublas_handle *ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : 3;
}

int cublasDestroy_v2(cublas_handle h)
{
    free(h);
    return 0;
}

int cublasSetStream_v2(cublas_handle h, cu_stream s)
{
    h->s = s;
    return 0;
}

int cublasSetWorkspace_v2(cublas_handle h, void *p, size_t bytes)
{
    hvd_fake_need_device("cublasSetWorkspace_v2", p, bytes);
    return 0;
}

int cublasSetPointerMode_v2(cublas_handle h, int mode)
{
    h->mode = mode;
    return mode == CUBLAS_POINTER_HOST ? 0 : 7;
}

int cublasSetAtomicsMode(cublas_handle h, int mode)
{
    return mode == CUBLAS_ATOMICS_OFF ? 0 : 7;
}

struct gemm {
    int ta, tb, m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const float *a, *b;
    float *c;
};

static int fake_gemm(void *arg)
{
    const struct gemm *g = arg;

    for (int j = 0; j < g->n; j++)
        for (int i = 0; i < g->m; i++) {
            float sum = 0;
            for (int l = 0; l < g->k; l++) {
                size_t ia = g->ta ? (size_t)i * (size_t)g->lda + (size_t)l
                                  : (size_t)l * (size_t)g->lda + (size_t)i;
                size_t ib = g->tb ? (size_t)l * (size_t)g->ldb + (size_t)j
                                  : (size_t)j * (size_t)g->ldb + (size_t)l;
                sum += g->a[ia] * g->b[ib];
            }
            float *c = &g->c[(size_t)j * (size_t)g->ldc + (size_t)i];
            *c = g->alpha * sum + (g->beta == 0.0f ? 0.0f : g->beta * *c);
        }
    return 0;
}

int cublasSgemm_v2(cublas_handle h,
                   int ta,
                   int tb,
                   int m,
                   int n,
                   int k,
                   const float *alpha,
                   const float *a,
                   int lda,
                   const float *b,
                   int ldb,
                   const float *beta,
                   float *c,
                   int ldc)
{
    struct gemm g = {.ta = ta,
                     .tb = tb,
                     .m = m,
                     .n = n,
                     .k = k,
                     .lda = lda,
                     .ldb = ldb,
                     .ldc = ldc,
                     .alpha = *alpha,
                     .beta = *beta,
                     .a = a,
                     .b = b,
                     .c = c};

    if (m < 0 || n < 0 || k < 0 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m)
        return 7;
    hvd_fake_need_device("cublasSgemm_v2", a, 4);
    hvd_fake_need_device("cublasSgemm_v2", b, 4);
    hvd_fake_need_device("cublasSgemm_v2", c, 4);
    return hvd_fake_enqueue(h->s, fake_gemm, &g, sizeof(g)) ? 14 : 0;
}

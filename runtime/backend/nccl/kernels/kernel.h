/* SPDX-License-Identifier: Apache-2.0 */
/* The macros in which a kernel is written, so that one text is CUDA C++14 for nvcc and
 * NVRTC and gnu11 for the CPU, where a block is a loop over its threads.
 *
 *     KERNEL(name, struct args_x)        its only argument is the struct a
 *     {
 *         SHARED(uint32_t, sums, 256);   one per block
 *         PRIVATE(uint32_t, n);          one per thread, kept between phases: P(n, t)
 *         EACH_THREAD(t) { ... }         a phase: straight code of thread t
 *         SYNC                           between two phases
 *         EACH_THREAD(t) { ... }
 *     }
 *
 * Rules, because the CPU runs the threads of a phase one after the other and the GPU
 * all at once:
 *  - a phase writes only what no other thread of it reads or writes (but ATOMIC_*);
 *  - SYNC is outside of phases, and loops around it have bounds that are equal for all
 *    threads of the block (a, BLOCK and BLOCKS, not t);
 *  - no return or break out of a phase or kernel before a SYNC (continue: only of loops
 *    inside a phase);
 *  - an address that was read from memory is used through GLOBAL(type, address) only:
 *    its loads and stores are then of device memory instead of generic memory;
 *  - no headers, no warp intrinsics, and floating point in the written order: compilers
 *    get --fmad=false and -ffp-contract=off, so that both give the same bits. (A NaN
 *    that arithmetic produces may differ in its payload.) */
#ifndef RUNTIME_BACKEND_NCCL_KERNELS_KERNEL_H
#define RUNTIME_BACKEND_NCCL_KERNELS_KERNEL_H

#include "runtime/backend/nccl/kernels/args.h"

/* NOLINTBEGIN(bugprone-macro-parentheses): types and names */
#if defined(__CUDACC__)

#define KERNEL(name, type)                                                             \
    extern "C" __global__ void __launch_bounds__(256) hvd_##name(const type a)
#define DEVICE                static __device__ __forceinline__
#define ALIGNED(n)            __align__(n)
#define UNROLL                _Pragma("unroll")
#define ROLLED                _Pragma("unroll 1")
#define SHARED(type, name, n) __shared__ type name[n]
#define EACH_THREAD(t)                                                                 \
    for (unsigned t = threadIdx.x, once_##t = 1; once_##t; once_##t = 0)
#define SYNC                  __syncthreads();
#define PRIVATE(type, name)   type name##_of_thread
#define P(name, t)            name##_of_thread
#define BLOCK                 blockIdx.x
#define BLOCKS                gridDim.x
#define GLOBAL(type, address) ((type *)__cvta_global_to_generic(address))
#define ATOMIC_MIN64(p, v)                                                             \
    (void)atomicMin((unsigned long long *)(p), (unsigned long long)(v))
#define ATOMIC_ADD32(p, v) (void)atomicAdd((unsigned *)(p), (unsigned)(v))
#define ATOMIC_ADD64(p, v)                                                             \
    (void)atomicAdd((unsigned long long *)(p), (unsigned long long)(v))
#define F64_SQRT(x) __dsqrt_rn(x)

DEVICE uint32_t f32_bits(float f)
{
    return __float_as_uint(f);
}

DEVICE float f32_of_bits(uint32_t u)
{
    return __uint_as_float(u);
}

DEVICE uint64_t f64_bits(double d)
{
    return (uint64_t)__double_as_longlong(d);
}

/* As runtime/core/half.h. The instructions round as it does, but make all NaN one. */
DEVICE float f32_of_f16(uint16_t h)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    uint32_t em = h & 0x7fffu;
    uint32_t nan = ((h & 0x8000u) << 16) | ((em << 13) + (224u << 23));
    return em > 0x7c00u ? f32_of_bits(nan) : f;
}

DEVICE uint16_t f16_of_f32(float f)
{
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    uint32_t x = f32_bits(f);
    uint32_t nan = ((x >> 16) & 0x8000u) | 0x7e00u | ((x >> 13) & 0x3ffu);
    return (x & 0x7fffffffu) > 0x7f800000u ? (uint16_t)nan : h;
}

DEVICE float f32_of_bf16(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

DEVICE uint16_t bf16_of_f32(float f)
{
    uint32_t x = f32_bits(f);
    uint32_t rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;
    uint32_t nan = (x >> 16) | 0x40u;
    return (uint16_t)((x & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

#else

#include "runtime/core/half.h"

#define GLOBAL(type, address) ((type *)(address))

/* A kernel as a function of the CPU: one block of it. */
#define KERNEL(name, type)                                                             \
    static void hvd_##name##_block(const type a, unsigned BLOCK, unsigned BLOCKS);     \
    void cpu_##name(const void *args, unsigned block, unsigned blocks);                \
    void cpu_##name(const void *args, unsigned block, unsigned blocks)                 \
    {                                                                                  \
        hvd_##name##_block(*(const type *)args, block, blocks);                        \
    }                                                                                  \
    static void hvd_##name##_block(const type a, unsigned BLOCK, unsigned BLOCKS)
#define DEVICE     static inline
#define ALIGNED(n) __attribute__((aligned(n)))
#define UNROLL
#define ROLLED
#define SHARED(type, name, n) type name[n]
#define EACH_THREAD(t)        for (unsigned t = 0; t < 256; t++)
#define SYNC
#define PRIVATE(type, name) type name##_of_thread[256]
#define P(name, t)          name##_of_thread[t]
/* Blocks may run on several threads of the CPU, as on the device. */
#define ATOMIC_MIN64(p, v)  cpu_atomic_min64(p, v)
#define ATOMIC_ADD32(p, v)  (void)__atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define ATOMIC_ADD64(p, v)  (void)__atomic_fetch_add(p, v, __ATOMIC_RELAXED)
#define F64_SQRT(x)         __builtin_sqrt(x)

DEVICE void cpu_atomic_min64(uint64_t *p, uint64_t v)
{
    uint64_t seen = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (v < seen
           && !__atomic_compare_exchange_n(p, &seen, v, 1, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED))
        ;
}

DEVICE uint64_t f64_bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof(u));
    return u;
}

#endif
/* NOLINTEND(bugprone-macro-parentheses) */

#endif

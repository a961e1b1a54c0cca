/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of kernels: one struct by value, of the same layout for the compilers
 * of host and device. Addresses are numbers: only the device may dereference them.
 * Also the list of all kernels, from which the host, the kernels' CPU form and the
 * tests build their tables.
 *
 * Blocks of a grid may run in any order, concurrently or not, and their number does
 * not change results: block b processes the chunks b, b + BLOCKS and so on. */
#ifndef RUNTIME_BACKEND_NCCL_KERNELS_ARGS_H
#define RUNTIME_BACKEND_NCCL_KERNELS_ARGS_H

#if defined(__CUDACC_RTC__) /* it has no headers */
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long uint64_t;
typedef long int64_t;
#else
#include <stdint.h>
#endif

#define KERNEL_THREADS 256u /* of a block, always */

/* A piece of one tensor. Addresses are multiples of the element's size. */
struct chunk {
    uint64_t src;    /* 0: zeros (a rank that has joined) */
    uint64_t dst;    /* may be src, must not overlap it otherwise */
    uint32_t n;      /* elements; copy: bytes */
    uint32_t tensor; /* scan: its cell */
};
/* Of the wider side, at most: 8 vectors of 16 bytes a thread are on their way at once.
 * A kernel takes longer ones too, but then the work of blocks may be uneven. */
#define CHUNK_BYTES 32768u

/* copy, move_FROM_TO: dst = src, scaled and converted.
 *   floats    times scale unless it is 1. Of one type: the factor is rounded to it, to
 *             float32 for 16 bits. To 16 bits: the exact product (in float64) is
 *             rounded once. From 16 bits: as of the wider type
 *   integers  in the narrower type: wrapped to it, divided by divisor toward zero, then
 *             times scale in float64, toward zero and saturating; NaN is 0
 *   bool      0 or 1; all 0 if scale is 0 */
struct args_move {
    uint64_t chunks; /* of struct chunk */
    uint32_t n;
    uint32_t divisor; /* 1: none; below 2^31 */
    double scale;     /* 1: none */
};

/* What scan_TYPE found in one tensor. The host sets base, first to SCAN_NONE and n to 0
 * before. */
struct scan_cell {
    uint64_t base;  /* address of element 0 */
    uint64_t first; /* least index << 1 | is it an infinity (else NaN) */
    uint32_t n;     /* how many elements are no finite numbers, modulo 2^32 */
    uint32_t pad;
};
#define SCAN_NONE (~(uint64_t)0)

struct args_scan {
    uint64_t chunks; /* dst is not used */
    uint64_t cells;  /* of struct scan_cell, one a tensor */
    uint32_t n, pad;
};

/* Adasum of pairs of tensors a and b (cpu/adasum_math.h): dots_TYPE adds up the
 * products of each chunk in float64, dots_end those of each tensor and makes the
 * weights, combine_TYPE does a = wa * a + wb * b. The order of sums follows from the
 * number of elements alone. */
struct dots {
    double ab, aa, bb;
};
struct weights {
    double wa, wb;
};

struct args_dots {
    uint64_t chunks; /* src: of a, dst: of b; neither may be 0 */
    uint64_t sums;   /* of struct dots, one a chunk */
    uint32_t n, pad;
};
struct args_dots_end {
    uint64_t tensors; /* of struct chunk, one a tensor: n sums from number src on */
    uint64_t sums;
    uint64_t weights; /* of struct weights, one a tensor */
    uint32_t n, pad;
};
struct args_combine {
    uint64_t
        chunks; /* src: of b, dst: of a, which is overwritten; tensor: its weights */
    uint64_t weights;
    uint32_t n, pad;
};

/* Messages of core/compress/int8.h, of `count` elements in blocks of `block` (at most
 * 1024). int8_code_TYPE is int8_encode of tensors, int8_sum_TYPE is int8_sum of n
 * messages each that start `stride` bytes apart, to the bit. Invalid messages are not
 * detected: they come from our own kernels.
 *
 * n_shards not 0: one message per shard (whole blocks; the first shards have one more
 * if the number does not divide), that of shard j at wire + j * stride. Encoding puts
 * that of shard `me` to own instead; for sums there is one member (n is 1).
 *
 * Tensors are in a table, each in a whole number of chunks; each has blocks first to
 * first + n_blocks of those to launch; n_blocks is not 0. */
struct int8_code {
    uint64_t in, wire;
    uint64_t residual; /* of float; 0: no feedback */
    uint64_t count;
    double scale;
    uint32_t block, n_shards;
    uint64_t stride, own;
    uint32_t me, pad;
    uint64_t first, n_blocks, spare;
};
struct int8_sum {
    uint64_t wire, stride, out, count;
    double factor;
    uint32_t n, block;
    uint32_t n_shards, pad;
    uint64_t first, n_blocks;
};
struct args_int8_code {
    uint64_t tensors; /* of struct int8_code */
    uint64_t n_blocks;
    uint32_t n, pad;
};
struct args_int8_sum {
    uint64_t tensors; /* of struct int8_sum */
    uint64_t n_blocks;
    uint32_t n, pad;
};

/* Top-k of all tensors of a batch at once, to the bit as topk_encode and topk_sum of
 * core/compress/topk.h. Tensors are cut into chunks of at most TOPK_CHUNK elements,
 * multiples of 4 except a tensor's last; the chunks of one tensor follow each other. In
 * this order, on one stream:
 *   topk_feed_TYPE   chunks (src: of the input, dst: of w): w += scale * input, or w =
 *                    that (no feedback); counts the top digits of magnitudes
 *   topk_digit       tensors: which digit the k-th largest has
 *   topk_count       chunks: counts the next digits (digit 1, then topk_digit; 2)
 *   topk_mark        chunks: a bit for each element that reaches the limit
 *   topk_place       tensors: where the chunks' pairs go
 *   topk_pick        chunks: moves the pairs from w into the message
 * A rank without input runs topk_zeros only (chunks of pairs: src: number of the first,
 * n of them). topk_sum_TYPE adds the messages of all members, in their order (chunks;
 * src: number of the first element, dst: of the output), times factor. */
#define TOPK_CHUNK 8192u
struct topk_tensor { /* as large as two chunks: it travels in a table of them */
    uint64_t w;      /* of float, count of them; aligned to 16 */
    uint64_t wire;   /* offset of its message from args.wire; a multiple of 4 */
    uint64_t k;      /* pairs */
    uint64_t first;  /* its first chunk */
    uint64_t n_chunks;
    uint64_t width; /* bytes of an index, 4 or 8 */
};
struct topk_cell { /* one a tensor; zeros before topk_feed */
    uint64_t n[2048];
    uint64_t need;   /* of k, those that begin with prefix; at last, equal to it */
    uint32_t prefix; /* digits so far; at last, the k-th largest magnitude */
    uint32_t pad;
};
struct topk_found { /* one a chunk, topk_mark's; before: of the tensor, topk_place's */
    uint64_t above_before, ties_before;
    uint32_t above, ties;
};
struct args_topk {
    uint64_t chunks, tensors, cells;
    uint64_t marks; /* 256 words of 32 bits a chunk */
    uint64_t found;
    uint64_t wire;
    double scale;
    uint32_t n; /* chunks, or tensors */
    uint8_t adds, digit, pad[2];
};
struct args_topk_sum {
    uint64_t chunks, tensors;
    uint64_t wire, stride; /* member 0's messages, and how far apart members' are */
    double factor;
    uint32_t n, members;
};

/* PowerSGD (core/compress/powersgd.h), except the products with M, which are cuBLAS's.
 *   power_feed_TYPE    chunks (src: of the input, dst: of m; see topk_feed_TYPE)
 *   power_orthonormal  tensors: kept, whose vectors are drawn again if they are zero or
 *                      not finite (which: POWER_KEPT), or p, which becomes NaN if it is
 *                      not finite (POWER_P)
 *   power_rest         tiles: m -= p own^T; values that are not finite become 0
 *   power_out_TYPE     tiles: out = factor * p sum^T; to the bit powersgd_out
 * A tile is a chunk: src: first row, dst: first column, n: columns, at most POWER_COLS;
 * rows: POWER_TILE_ROWS of them, up to the last. */
#define POWER_COLS 1024u
enum power_which { POWER_KEPT, POWER_P };
struct power_tensor {        /* as large as three chunks */
    uint64_t p;              /* rank vectors of rows floats */
    uint64_t kept, own, sum; /* rank vectors of cols floats */
    uint64_t m;              /* rows x cols floats */
    uint64_t out;
    uint64_t rows, cols, pad;
};
struct args_power {
    uint64_t chunks, tensors;
    double scale; /* power_feed; power_out: factor */
    uint64_t seed;
    uint32_t n, rank; /* n: chunks, or tensors */
    uint32_t which, adds;
};
/* Rows of a tile of n columns: 8 for each thread of a row of them. */
#define POWER_TILE_ROWS(n) (8 * (256u / (((n) + 3) / 4)))

/* X(name, args): the kernel's symbol in the image is hvd_NAME. */
#define KERNELS_OF_MOVE(X)                                                             \
    X(copy, struct args_move)                                                          \
    X(move_f32_f32, struct args_move)                                                  \
    X(move_f64_f64, struct args_move)                                                  \
    X(move_f16_f16, struct args_move)                                                  \
    X(move_bf16_bf16, struct args_move)                                                \
    X(move_f32_f16, struct args_move)                                                  \
    X(move_f32_bf16, struct args_move)                                                 \
    X(move_f64_f16, struct args_move)                                                  \
    X(move_f64_bf16, struct args_move)                                                 \
    X(move_f16_f32, struct args_move)                                                  \
    X(move_bf16_f32, struct args_move)                                                 \
    X(move_f16_f64, struct args_move)                                                  \
    X(move_bf16_f64, struct args_move)                                                 \
    X(move_u8_u8, struct args_move)                                                    \
    X(move_i8_i8, struct args_move)                                                    \
    X(move_u16_u16, struct args_move)                                                  \
    X(move_i16_i16, struct args_move)                                                  \
    X(move_i32_i32, struct args_move)                                                  \
    X(move_i64_i64, struct args_move)                                                  \
    X(move_u16_i32, struct args_move)                                                  \
    X(move_i16_i32, struct args_move)                                                  \
    X(move_i32_u16, struct args_move)                                                  \
    X(move_i32_i16, struct args_move)                                                  \
    X(move_bool_bool, struct args_move)
#define KERNELS_OF_SCAN(X)                                                             \
    X(scan_f32, struct args_scan)                                                      \
    X(scan_f64, struct args_scan)                                                      \
    X(scan_f16, struct args_scan)                                                      \
    X(scan_bf16, struct args_scan)
#define KERNELS_OF_ADASUM(X)                                                           \
    X(dots_f32, struct args_dots)                                                      \
    X(dots_f64, struct args_dots)                                                      \
    X(dots_end, struct args_dots_end)                                                  \
    X(combine_f32, struct args_combine)                                                \
    X(combine_f64, struct args_combine)
#define KERNELS_OF_INT8(X)                                                             \
    X(int8_code_f32, struct args_int8_code)                                            \
    X(int8_code_f64, struct args_int8_code)                                            \
    X(int8_code_f16, struct args_int8_code)                                            \
    X(int8_code_bf16, struct args_int8_code)                                           \
    X(int8_sum_f32, struct args_int8_sum)                                              \
    X(int8_sum_f64, struct args_int8_sum)                                              \
    X(int8_sum_f16, struct args_int8_sum)                                              \
    X(int8_sum_bf16, struct args_int8_sum)
#define KERNELS_OF_TOPK(X)                                                             \
    X(topk_feed_f32, struct args_topk)                                                 \
    X(topk_feed_f64, struct args_topk)                                                 \
    X(topk_feed_f16, struct args_topk)                                                 \
    X(topk_feed_bf16, struct args_topk)                                                \
    X(topk_digit, struct args_topk)                                                    \
    X(topk_count, struct args_topk)                                                    \
    X(topk_mark, struct args_topk)                                                     \
    X(topk_place, struct args_topk)                                                    \
    X(topk_pick, struct args_topk)                                                     \
    X(topk_zeros, struct args_topk)                                                    \
    X(topk_sum_f32, struct args_topk_sum)                                              \
    X(topk_sum_f64, struct args_topk_sum)                                              \
    X(topk_sum_f16, struct args_topk_sum)                                              \
    X(topk_sum_bf16, struct args_topk_sum)
#define KERNELS_OF_POWER(X)                                                            \
    X(power_feed_f32, struct args_power)                                               \
    X(power_feed_f64, struct args_power)                                               \
    X(power_feed_f16, struct args_power)                                               \
    X(power_feed_bf16, struct args_power)                                              \
    X(power_orthonormal, struct args_power)                                            \
    X(power_rest, struct args_power)                                                   \
    X(power_out_f32, struct args_power)                                                \
    X(power_out_f64, struct args_power)                                                \
    X(power_out_f16, struct args_power)                                                \
    X(power_out_bf16, struct args_power)
#define KERNELS_OF_CODECS(X) KERNELS_OF_INT8(X) KERNELS_OF_TOPK(X) KERNELS_OF_POWER(X)
#define KERNELS(X)                                                                     \
    KERNELS_OF_MOVE(X) KERNELS_OF_SCAN(X) KERNELS_OF_ADASUM(X) KERNELS_OF_CODECS(X)

#define KERNEL_ID_OF(name, args) KERNEL_##name,
enum kernel_id { KERNELS(KERNEL_ID_OF) KERNEL_COUNT };
#undef KERNEL_ID_OF

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* For the implementations of codecs, on the host (codec*.c) or on a device: what a
 * run's scratch memory and a tensor's state contain, and where shards are. Pure. */
#ifndef RUNTIME_CORE_COMPRESS_LAYOUT_H
#define RUNTIME_CORE_COMPRESS_LAYOUT_H

#include "runtime/core/compress/codec_index.h"
#include "runtime/core/compress/kernels.h"

/* Offsets into scratch, each a multiple of 64. */
struct codec_layout {
    uint64_t send;   /* 16-bit tensor; message; messages to all shards; P */
    uint64_t recv;   /* messages of all members; own Q */
    uint64_t work;   /* float32 of the tensor if no residual is used; else empty */
    uint64_t sums;   /* float32 sums: top-k's of a tensor that is not f32; a shard's;
                        the summed Q */
    uint64_t counts; /* n_members */
    uint64_t send_counts; /* n_members */
    uint64_t bytes;
};

struct codec_layout codec_layout_scratch(const struct codec_plan *p);
void codec_layout_of_plan(const struct codec_plan *p,
                          uint64_t *ret_state_bytes,
                          uint64_t *ret_scratch_bytes);

/* Member j's part of an int8 tensor: whole blocks, the first (blocks % n) members have
 * one more. */
struct codec_shard {
    uint64_t at, count; /* elements */
    uint64_t wire_at, wire_bytes;
};
struct codec_shard codec_shard_of(const struct codec_plan *p, uint32_t member);

/* --- a tensor's state (codec_state.c) --- */

struct codec_tensor {
    struct codec_entry entry;
    float *residual; /* count; NULL without feedback */
    float *shard;    /* residual of the sums of our shard; NULL: it has none */
    float *q;        /* powersgd: the last Q, summed */
    char name[];
};

/* Floats of each of the three. */
struct codec_kept {
    uint64_t residual, shard, q;
};
struct codec_kept codec_kept_of(const struct codec_plan *p);

/* The tensor's state if there is one that fits the plan; else NULL. */
struct codec_tensor *codec_state_find(struct codec_state *s,
                                      uint32_t set,
                                      const char *name,
                                      const struct codec_plan *plan,
                                      uint32_t me);
const struct codec_kernels *codec_state_kernels(const struct codec_state *s);
void codec_state_drop(struct codec_state *s, struct codec_tensor *t);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and offsets of what a run and a tensor's state contain. Products cannot
 * overflow: codec_plan.c admits nothing that sends more than a tensor of 2^60 bytes. */
#include "runtime/core/compress/layout.h"

#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/topk.h"

enum { ALIGN = 64 };

static uint64_t layout_add_piece(uint64_t *at, uint64_t bytes)
{
    uint64_t here = *at;

    *at += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

struct codec_shard codec_shard_of(const struct codec_plan *p, uint32_t member)
{
    uint64_t block = p->codec.block, n = int8_n_blocks(p->count, p->codec.block);
    uint64_t each = n / p->n_members, more = n % p->n_members;
    uint64_t first = member * each + (member < more ? member : more);
    uint64_t last = first + each + (member < more);
    uint64_t end = last * block < p->count ? last * block : p->count;
    struct codec_shard s = {.at = first * block < p->count ? first * block : p->count};

    s.count = end - s.at;
    s.wire_at = first * sizeof(float) + s.at; /* shards before are whole blocks */
    s.wire_bytes = int8_wire_bytes(s.count, p->codec.block);
    return s;
}

struct codec_kept codec_kept_of(const struct codec_plan *p)
{
    struct codec_kept k = {0};

    if (p->codec.has_feedback)
        k.residual = p->count;
    if (p->codec.has_feedback && p->way == CODEC_WAY_SHARDS)
        k.shard = codec_shard_of(p, 0).count; /* the longest: equal on all */
    if (p->way == CODEC_WAY_FACTORS)
        k.q = p->cols * p->codec.rank;
    return k;
}

struct codec_layout codec_layout_scratch(const struct codec_plan *p)
{
    struct codec_layout l = {0};
    uint64_t at = 0, counts = p->n_members * sizeof(uint64_t);
    uint64_t send = p->wire_bytes, recv = 0, work = 0, sums = 0;
    bool has_work = p->codec.id == CODEC_TOPK || p->codec.id == CODEC_POWERSGD;
    struct codec_shard longest;

    switch (p->way) {
    case CODEC_WAY_GATHER:
        recv = p->wire_bytes * p->n_members;
        if (p->codec.id == CODEC_TOPK)
            send = topk_room_bytes(p->count, p->k);
        if (p->codec.id == CODEC_TOPK && p->dtype != DT_F32)
            sums = p->count * sizeof(float);
        break;
    case CODEC_WAY_SHARDS:
        longest = codec_shard_of(p, 0);
        recv = longest.wire_bytes * p->n_members;
        sums = longest.count * sizeof(float);
        break;
    case CODEC_WAY_FACTORS:
        send = p->rows * p->codec.rank * sizeof(float);
        recv = sums = p->cols * p->codec.rank * sizeof(float);
        counts = 0;
        break;
    case CODEC_WAY_SUM:
        counts = 0;
        break;
    case CODEC_WAY_PASS:
    case CODEC_WAY_COUNT:
        return l;
    }
    if (has_work && !p->codec.has_feedback)
        work = p->count * sizeof(float);
    l.send = layout_add_piece(&at, send);
    l.recv = layout_add_piece(&at, recv);
    l.work = layout_add_piece(&at, work);
    l.sums = layout_add_piece(&at, sums);
    l.counts = layout_add_piece(&at, counts);
    l.send_counts = layout_add_piece(&at, p->way == CODEC_WAY_SHARDS ? counts : 0);
    l.bytes = at;
    return l;
}

void codec_layout_of_plan(const struct codec_plan *p,
                          uint64_t *ret_state_bytes,
                          uint64_t *ret_scratch_bytes)
{
    struct codec_kept k = codec_kept_of(p);

    *ret_state_bytes = (k.residual + k.shard + k.q) * sizeof(float);
    *ret_scratch_bytes = codec_layout_scratch(p).bytes;
}

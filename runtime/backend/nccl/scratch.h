/* SPDX-License-Identifier: Apache-2.0 */
/* What batches are put together in: a fusion buffer for each of our streams, and pinned
 * host memory, to upload from and for what comes back. The launcher's alone, but that
 * any thread gives the latter back. */
#ifndef RUNTIME_BACKEND_NCCL_SCRATCH_H
#define RUNTIME_BACKEND_NCCL_SCRATCH_H

#include <pthread.h>

#include "runtime/backend/nccl/memory.h"
#include "runtime/backend/nccl/nccl_dl.h"

#define GPU_MAX_STREAMS 4
#define PINNED_BYTES    (4u << 20)
#define FUSION_GRANULE  (2u << 20)
#define PINNED_PIECES   64

struct fusion_buffer {
    cu_ptr at;
    uint64_t bytes;
    uint32_t generation; /* counts the times it moved */
};
struct pinned_piece {
    struct device_event *sent; /* NULL: not queued yet */
    uint32_t begin;            /* offset */
};
struct pin { /* pinned memory for what comes back from the device */
    struct pin *next;
    uint64_t bytes; /* behind this */
    _Alignas(16) uint8_t at[];
};
struct gpu_scratch {
    const struct cuda_api *cu;
    struct event_pool *events;
    struct gpu_memory *memory;
    struct fusion_buffer fusion[GPU_MAX_STREAMS];
    const struct nccl_api *nccl; /* NULL: nothing of ncclMemAlloc yet */
    struct fusion_buffer registered[GPU_MAX_STREAMS];
    cu_ptr outgrown[GPU_MAX_STREAMS * 40]; /* of them; doubling, so few */
    uint32_t n_outgrown;
    uint8_t *pinned;   /* PINNED_BYTES, at first use */
    uint32_t head;     /* offset of the next piece */
    uint32_t first, n; /* pieces[first .. first + n) are in use, modulo */
    struct pinned_piece pieces[PINNED_PIECES];
    pthread_mutex_t lock; /* a leaf; of pins, which others give back */
    struct pin *pins;
};

void scratch_init(struct gpu_scratch *sc,
                  const struct cuda_api *cu,
                  struct event_pool *events,
                  struct gpu_memory *memory);
void scratch_release(struct gpu_scratch *sc); /* our streams are idle */
/* The fusion buffer of stream `index`, grown to at least bytes (FUSION_GRANULE a step);
 * the old one is given back in the order of s. Contents do not survive growing. */
int scratch_fusion(struct gpu_scratch *sc,
                   uint32_t index,
                   uint64_t bytes,
                   cu_stream s,
                   cu_ptr *ret,
                   struct err *err);
/* The same for communicators whose terms say "registers": its memory is ncclMemAlloc's,
 * grows to at least twice its size, and the old ones stay until scratch_release,
 * because communicators have them registered. May wait for the device. */
int scratch_fusion_registered(struct gpu_scratch *sc,
                              const struct nccl_api *nccl,
                              uint32_t index,
                              uint64_t bytes,
                              cu_ptr *ret,
                              struct err *err);
/* Host memory for one upload of at most PINNED_BYTES / 2, aligned to 64; to be followed
 * by the copy onto a stream and then scratch_pinned_sent. -EAGAIN: all is in use by
 * copies that are not done; try again. */
int scratch_pinned(struct gpu_scratch *sc, uint32_t bytes, void **ret, struct err *err);
int scratch_pinned_sent(struct gpu_scratch *sc, cu_stream s, struct err *err);
/* At least bytes; whoever has it gives it back when no copy is on its way to it. The
 * driver gets it at the end alone, for it waits for the whole device before it takes
 * pinned memory back. */
int scratch_pin_take(struct gpu_scratch *sc,
                     uint64_t bytes,
                     struct pin **ret,
                     struct err *err);
void scratch_pin_give(struct gpu_scratch *sc,
                      struct pin *p); /* any thread; accepts NULL */

#endif

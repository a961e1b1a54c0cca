/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that batches are assembled in: a fusion buffer for each of our streams, and
 * pinned host memory for uploads and for data from the device. Only the launcher uses
 * them, but any thread may release memory for data from the device. */
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
struct pin { /* pinned memory for data from the device */
    struct pin *next;
    uint64_t bytes; /* after this header */
    _Alignas(16) uint8_t at[];
};
struct gpu_scratch {
    const struct cuda_api *cu;
    struct event_pool *events;
    struct gpu_memory *memory;
    struct fusion_buffer fusion[GPU_MAX_STREAMS];
    const struct nccl_api *nccl; /* NULL: ncclMemAlloc not used yet */
    struct fusion_buffer registered[GPU_MAX_STREAMS];
    cu_ptr outgrown[GPU_MAX_STREAMS * 40]; /* of them; sizes double, so few */
    uint32_t n_outgrown;
    uint8_t *pinned;   /* PINNED_BYTES, at first use */
    uint32_t head;     /* offset of the next piece */
    uint32_t first, n; /* pieces[first .. first + n) are in use, modulo */
    struct pinned_piece pieces[PINNED_PIECES];
    pthread_mutex_t lock; /* a leaf; protects pins, which other threads give back */
    struct pin *pins;
};

void scratch_init(struct gpu_scratch *sc,
                  const struct cuda_api *cu,
                  struct event_pool *events,
                  struct gpu_memory *memory);
void scratch_release(struct gpu_scratch *sc); /* our streams are idle */
/* The first fusion buffers, of streams[n], all or none. The launcher has no job yet. */
int scratch_take_fusion(struct gpu_scratch *sc,
                        const cu_stream *streams,
                        uint32_t n,
                        uint64_t bytes,
                        struct err *err);
/* The fusion buffer of stream `index`, grown to at least bytes (in steps of
 * FUSION_GRANULE); the old one is given back in the order of s. Contents do not
 * survive growing. */
int scratch_fusion(struct gpu_scratch *sc,
                   uint32_t index,
                   uint64_t bytes,
                   cu_stream s,
                   cu_ptr *ret,
                   struct err *err);
/* The same for communicators whose terms register it: its memory comes from
 * ncclMemAlloc and at least doubles; old buffers stay until scratch_release, because
 * communicators have them registered. May wait for the device. */
int scratch_fusion_registered(struct gpu_scratch *sc,
                              const struct nccl_api *nccl,
                              uint32_t index,
                              uint64_t bytes,
                              cu_ptr *ret,
                              struct err *err);
/* Host memory for one upload of at most PINNED_BYTES / 2, aligned to 64; must be
 * followed by the copy onto a stream and then scratch_pinned_sent. -EAGAIN: all is in
 * use by copies that are not done; try again. */
int scratch_pinned(struct gpu_scratch *sc, uint32_t bytes, void **ret, struct err *err);
int scratch_pinned_sent(struct gpu_scratch *sc, cu_stream s, struct err *err);
/* At least bytes; its holder gives it back when no copy to it is in progress. It is
 * returned to the driver only at the end, because the driver waits for the whole
 * device before it frees pinned memory. */
int scratch_pin_take(struct gpu_scratch *sc,
                     uint64_t bytes,
                     struct pin **ret,
                     struct err *err);
void scratch_pin_give(struct gpu_scratch *sc,
                      struct pin *p); /* any thread; accepts NULL */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The fusion buffers and the ring of pinned memory. A piece of the ring is free again
 * when the event behind its copy is done; pieces finish in the order in which they were
 * taken, so the ring is cut from the front only. Memory for data from the device is
 * separate and is reused. */
#include "runtime/backend/nccl/scratch.h"

#include <errno.h>

#define PINNED_ALIGN 64u
#define PIN_LEAST    4096u

void scratch_init(struct gpu_scratch *sc,
                  const struct cuda_api *cu,
                  struct event_pool *events,
                  struct gpu_memory *memory)
{
    *sc = (struct gpu_scratch){.cu = cu, .events = events, .memory = memory};
    (void)pthread_mutex_init(&sc->lock, NULL); /* cannot fail on Linux */
}

static void *address_of(cu_ptr p)
{
    return (void *)(uintptr_t)p;
}

/* Sizes double from 2 MiB on, so 40 exceed an address space. */
static void scratch_outgrow(struct gpu_scratch *sc, uint32_t index)
{
    struct fusion_buffer *f = &sc->registered[index];

    if (f->at)
        sc->outgrown[sc->n_outgrown++] = f->at;
    *f = (struct fusion_buffer){.generation = f->generation};
}

void scratch_release(struct gpu_scratch *sc)
{
    for (uint32_t i = 0; i < sc->n; i++)
        event_unref(sc->pieces[(sc->first + i) % PINNED_PIECES].sent);
    sc->n = 0;
    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++) {
        if (sc->fusion[i].at)
            memory_give(sc->memory, sc->fusion[i].at, NULL);
        sc->fusion[i].at = 0;
    }
    for (uint32_t i = 0; i < GPU_MAX_STREAMS; i++)
        scratch_outgrow(sc, i);
    while (sc->n_outgrown > 0)
        (void)sc->nccl->mem_free(address_of(sc->outgrown[--sc->n_outgrown]));
    if (sc->pinned)
        (void)sc->cu->host_free(
            sc->pinned); /* the driver may have shut down before us */
    sc->pinned = NULL;
    while (sc->pins) {
        struct pin *p = sc->pins;
        sc->pins = p->next;
        (void)sc->cu->host_free(p); /* likewise */
    }
}

int scratch_fusion(struct gpu_scratch *sc,
                   uint32_t index,
                   uint64_t bytes,
                   cu_stream s,
                   cu_ptr *ret,
                   struct err *err)
{
    struct fusion_buffer *f = &sc->fusion[index];
    uint64_t n = (bytes + FUSION_GRANULE - 1) / FUSION_GRANULE * FUSION_GRANULE;
    cu_ptr at;

    if (bytes > f->bytes) {
        int rc = memory_take(sc->memory, n, s, &at, err);
        if (rc < 0)
            return err_prefix(err, "the fusion buffer");
        memory_give(sc->memory, f->at, s);
        *f = (struct fusion_buffer){
            .at = at, .bytes = n, .generation = f->generation + 1};
    }
    *ret = f->at;
    return 0;
}

int scratch_take_fusion(struct gpu_scratch *sc,
                        const cu_stream *streams,
                        uint32_t n,
                        uint64_t bytes,
                        struct err *err)
{
    cu_ptr at;
    int rc = 0;

    for (uint32_t i = 0; i < n && !rc; i++)
        rc = scratch_fusion(sc, i, bytes, streams[i], &at, err);
    for (uint32_t i = 0; i < n && rc; i++) {
        memory_give(sc->memory, sc->fusion[i].at, streams[i]);
        sc->fusion[i] = (struct fusion_buffer){0};
    }
    return rc;
}

int scratch_fusion_registered(struct gpu_scratch *sc,
                              const struct nccl_api *nccl,
                              uint32_t index,
                              uint64_t bytes,
                              cu_ptr *ret,
                              struct err *err)
{
    struct fusion_buffer *f = &sc->registered[index];

    if (bytes > f->bytes) {
        uint64_t n = (bytes + FUSION_GRANULE - 1) / FUSION_GRANULE * FUSION_GRANULE;
        void *at = NULL;
        n = n < 2 * f->bytes ? 2 * f->bytes : n;
        int result = nccl->mem_alloc(&at, n);
        if (result != NCCL_OK)
            return nccl_fail(nccl, NULL, "ncclMemAlloc", result, err);
        sc->nccl = nccl;
        scratch_outgrow(sc, index);
        f->at = (cu_ptr)(uintptr_t)at;
        f->bytes = n;
        f->generation++;
    }
    *ret = f->at;
    return 0;
}

/* Drops the pieces at the front whose copies are done. */
static int scratch_cut_done(struct gpu_scratch *sc, struct err *err)
{
    while (sc->n > 0) {
        struct pinned_piece *p = &sc->pieces[sc->first];
        int rc = p->sent ? event_is_done(p->sent, err) : 0;
        if (rc <= 0)
            return rc;
        event_unref(p->sent);
        p->sent = NULL;
        sc->first = (sc->first + 1) % PINNED_PIECES;
        sc->n--;
    }
    return 0;
}

/* Offset of `room` free bytes, or PINNED_BYTES: none now. The bytes in use are from
 * the start of the first piece to head, with wrap-around. */
static uint32_t
scratch_find_place(const struct gpu_scratch *sc, uint32_t tail, uint32_t room)
{
    if (sc->n == 0)
        return 0;
    if (sc->head > tail) { /* free: after head, then before tail */
        if (room <= PINNED_BYTES - sc->head)
            return sc->head;
        return room < tail ? 0 : PINNED_BYTES;
    }
    return room < tail - sc->head ? sc->head : PINNED_BYTES;
}

int scratch_pinned(struct gpu_scratch *sc, uint32_t bytes, void **ret, struct err *err)
{
    uint32_t room = (bytes + PINNED_ALIGN - 1) / PINNED_ALIGN * PINNED_ALIGN;

    if (room == 0 || bytes > PINNED_BYTES / 2)
        return err_set(err, -EINVAL,
                       "upload of %u bytes: must be at least 1 and at most half of the "
                       "pinned memory",
                       bytes);
    if (!sc->pinned) {
        void *p = NULL;
        int rc = CUDA_TRY(sc->cu, host_alloc, err, &p, PINNED_BYTES, 0);
        if (rc < 0)
            return rc;
        sc->pinned = p;
    }
    int rc = scratch_cut_done(sc, err);
    if (rc < 0)
        return rc;
    if (sc->n > 0 && !sc->pieces[(sc->first + sc->n - 1) % PINNED_PIECES].sent)
        return err_set(err, -EINVAL, "an upload was started and not sent");
    uint32_t at = scratch_find_place(sc, sc->n ? sc->pieces[sc->first].begin : 0, room);
    if (at == PINNED_BYTES || sc->n == PINNED_PIECES)
        return err_set(err, -EAGAIN, "all pinned memory is in use");
    sc->pieces[(sc->first + sc->n++) % PINNED_PIECES] =
        (struct pinned_piece){.begin = at};
    sc->head = at + room;
    *ret = sc->pinned + at;
    return 0;
}

int scratch_pinned_sent(struct gpu_scratch *sc, cu_stream s, struct err *err)
{
    struct pinned_piece *p =
        &sc->pieces[(sc->first + sc->n + PINNED_PIECES - 1) % PINNED_PIECES];
    struct device_event *e;
    int rc = event_new(sc->events, &e, err);

    if (rc == 0) {
        rc = event_record(e, s, err);
        if (rc == 0)
            p->sent = e;
        else
            event_unref(e);
    }
    return rc;
}

/* --- data from the device --- */

int scratch_pin_take(struct gpu_scratch *sc,
                     uint64_t bytes,
                     struct pin **ret,
                     struct err *err)
{
    uint64_t room = PIN_LEAST;
    struct pin **at = &sc->pins, *p;
    void *made = NULL;

    (void)pthread_mutex_lock(&sc->lock);
    while ((p = *at) && p->bytes < bytes)
        at = &p->next;
    if (p)
        *at = p->next;
    (void)pthread_mutex_unlock(&sc->lock);
    if (!p) {
        while (room < bytes + sizeof(*p))
            room *= 2;
        int rc = CUDA_TRY(sc->cu, host_alloc, err, &made, room, 0);
        if (rc < 0)
            return rc;
        p = made;
        p->bytes = room - sizeof(*p);
    }
    *ret = p;
    return 0;
}

void scratch_pin_give(struct gpu_scratch *sc, struct pin *p)
{
    if (!p)
        return;
    (void)pthread_mutex_lock(&sc->lock);
    p->next = sc->pins;
    sc->pins = p;
    (void)pthread_mutex_unlock(&sc->lock);
}

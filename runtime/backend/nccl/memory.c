/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in stream order. With pools the driver does everything, with one
 * exception that is switched off: making a stream that takes memory wait for the
 * stream that gave it. A user's stream may wait for another rank, which waits for our
 * batch.
 *
 * Without pools, a given block carries an event of the stream it was given on, and
 * lies in the list of its size class (eight steps per power of two). It is taken again
 * on that stream, or on any stream when the event is done. cuMemFree waits for the
 * whole device, so blocks are returned to the driver only when it has no memory left;
 * before that, a block whose event is not done is taken, and the device waits for it.
 */
#include "runtime/backend/nccl/memory.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "runtime/base/mem.h"

#define N_BUCKETS 256 /* of taken blocks */
#define N_CLASSES 256
#define LEAST     256u
#define MAX_LOOKS 16 /* at blocks of a class, for a free one */

struct block {
    struct block *next;
    cu_ptr p;
    uint32_t class;
    cu_event given; /* NULL: never given */
    cu_stream on;   /* where */
};

struct gpu_memory {
    const struct cuda_api *cu;
    cu_ctx ctx;
    cu_pool pool; /* NULL: the lists below */
    cu_stream own;
    _Atomic bool is_forgotten;
    pthread_mutex_t lock; /* out, free */
    struct block *out[N_BUCKETS];
    struct block *free[N_CLASSES];
};

static int
make_pool(struct gpu_memory *m, cu_device dev, uint64_t kept_bytes, struct err *err)
{
    const struct cuda_api *cu = m->cu;
    struct cu_pool_props props = {.alloc_type = 1, .location_type = 1, .location = dev};
    int has_pools = 0, never = 0;

    if (!cu->pool_new || cu->device_attr(&has_pools, CU_ATTR_MEMORY_POOLS, dev) != CU_OK
        || !has_pools)
        return 0;
    int rc = CUDA_TRY(cu, pool_new, err, &m->pool, &props);
    if (rc == 0)
        rc = CUDA_TRY(cu, pool_set, err, m->pool, CU_POOL_RELEASE_THRESHOLD,
                      &kept_bytes);
    if (rc == 0)
        rc = CUDA_TRY(cu, pool_set, err, m->pool, CU_POOL_MAKES_STREAMS_WAIT, &never);
    return rc;
}

int memory_new(const struct cuda_api *cu,
               cu_ctx ctx,
               cu_device dev,
               uint64_t kept_bytes,
               struct gpu_memory **ret,
               struct err *err)
{
    struct gpu_memory *m = mem_zalloc(sizeof(*m));

    if (!m)
        return err_set(err, -ENOMEM, "out of host memory for the pool of a GPU");
    m->cu = cu;
    m->ctx = ctx;
    (void)pthread_mutex_init(&m->lock, NULL); /* cannot fail on Linux */
    int rc = CUDA_TRY(cu, stream_new, err, &m->own, CU_STREAM_NON_BLOCKING, 0);
    if (rc == 0)
        rc = make_pool(m, dev, kept_bytes, err);
    if (rc < 0) {
        memory_free(m);
        return rc;
    }
    *ret = m;
    return 0;
}

static void free_list(struct gpu_memory *m, struct block *b)
{
    while (b) {
        struct block *next = b->next;
        (void)m->cu->mem_free(b->p);
        if (b->given)
            (void)m->cu->event_free(b->given);
        mem_free(b);
        b = next;
    }
}

void memory_free(struct gpu_memory *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < N_CLASSES; i++)
        free_list(m, m->free[i]);
    for (uint32_t i = 0; i < N_BUCKETS; i++)
        free_list(m, m->out[i]);
    if (m->pool)
        (void)m->cu->pool_free(m->pool);
    if (m->own)
        (void)m->cu->stream_free(m->own);
    (void)pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

void memory_forget(struct gpu_memory *m)
{
    m->is_forgotten = true;
    (void)pthread_mutex_init(&m->lock, NULL);
}

cu_stream memory_own(const struct gpu_memory *m)
{
    return m->own;
}

/* Eight classes for each power of two from 256 bytes on; *ret_bytes: what it holds. */
static uint32_t class_of(uint64_t bytes, uint64_t *ret_bytes)
{
    uint64_t b = bytes < LEAST ? LEAST : bytes;
    uint32_t power = 63u - (uint32_t)__builtin_clzll(b);
    uint64_t step = (1ull << power) / 8, n = (b - (1ull << power) + step - 1) / step;

    *ret_bytes = (1ull << power) + n * step;
    return (power - 8) * 8 + (uint32_t)n; /* n == 8 is the next power's 0 */
}

static struct block **memory_bucket_of(struct gpu_memory *m, cu_ptr p)
{
    return &m->out[(p >> 8) * 0x9e3779b97f4a7c15ull >> 56];
}

static int give_all_back(struct gpu_memory *m)
{
    struct block *all = NULL;

    (void)pthread_mutex_lock(&m->lock);
    for (uint32_t i = 0; i < N_CLASSES; i++)
        while (m->free[i]) {
            struct block *b = m->free[i];
            m->free[i] = b->next;
            b->next = all;
            all = b;
        }
    (void)pthread_mutex_unlock(&m->lock);
    bool is_some = all != NULL;
    free_list(m, all);
    return is_some;
}

/* The first block of a class that s may use without waiting; with `any`, the first. */
static struct block *
memory_reuse(struct gpu_memory *m, uint32_t class, cu_stream s, bool any)
{
    struct block **at = &m->free[class], *found = NULL;

    (void)pthread_mutex_lock(&m->lock);
    for (int n = 0; *at && !found && n < MAX_LOOKS; n++) {
        struct block *b = *at;
        if (any || b->on == s || m->cu->event_query(b->given) == CU_OK) {
            *at = b->next;
            found = b;
        } else {
            at = &b->next;
        }
    }
    (void)pthread_mutex_unlock(&m->lock);
    return found;
}

static struct block *
new_block(struct gpu_memory *m, uint32_t class, uint64_t bytes, struct err *err)
{
    struct block *b = mem_zalloc(sizeof(*b)), *listed;

    if (!b) {
        (void)err_set(err, -ENOMEM, "out of host memory for a block of GPU memory");
        return NULL;
    }
    int result = m->cu->mem_alloc(&b->p, bytes);
    if (result == CU_OUT_OF_MEMORY && (listed = memory_reuse(m, class, NULL, true))) {
        mem_free(b);
        return listed;
    }
    if (result == CU_OUT_OF_MEMORY && give_all_back(m))
        result = m->cu->mem_alloc(&b->p, bytes);
    if (result == CU_OK)
        return b;
    mem_free(b);
    (void)cuda_fail(m->cu, "cuMemAlloc_v2", result, err);
    return NULL;
}

static int take_listed(
    struct gpu_memory *m, uint64_t bytes, cu_stream s, cu_ptr *ret, struct err *err)
{
    uint64_t room;
    uint32_t class = class_of(bytes, &room);

    if (class >= N_CLASSES)
        return err_set(err, -ENOMEM, "cannot allocate %llu bytes",
                       (unsigned long long)bytes);
    struct block *b = memory_reuse(m, class, s, false);
    if (!b)
        b = new_block(m, class, room, err);
    if (!b)
        return err ? err->code : -ENOMEM;
    int rc = b->given ? CUDA_TRY(m->cu, stream_wait, err, s, b->given, 0) : 0;
    if (rc < 0) {
        mem_free(b); /* the context is lost: so is the block */
        return rc;
    }
    b->class = class;
    (void)pthread_mutex_lock(&m->lock);
    struct block **at = memory_bucket_of(m, b->p);
    b->next = *at;
    *at = b;
    (void)pthread_mutex_unlock(&m->lock);
    *ret = b->p;
    return 0;
}

int memory_take(
    struct gpu_memory *m, uint64_t bytes, cu_stream s, cu_ptr *ret, struct err *err)
{
    uint64_t n = bytes < LEAST ? LEAST : bytes;
    int rc = m->pool ? CUDA_TRY(m->cu, mem_alloc_from, err, ret, n, m->pool, s)
                     : take_listed(m, n, s, ret, err);

    if (rc < 0)
        (void)err_prefix(err, "%llu bytes of GPU memory", (unsigned long long)bytes);
    return rc;
}

static struct block *find_out(struct gpu_memory *m, cu_ptr p)
{
    (void)pthread_mutex_lock(&m->lock);
    struct block **at = memory_bucket_of(m, p);
    while (*at && (*at)->p != p)
        at = &(*at)->next;
    struct block *b = *at;
    if (b)
        *at = b->next;
    (void)pthread_mutex_unlock(&m->lock);
    return b;
}

static void give_listed(struct gpu_memory *m, cu_ptr p, cu_stream s)
{
    struct block *b = find_out(m, p);

    if (!b)
        return; /* none of ours */
    int rc = b->given ? CU_OK : m->cu->event_new(&b->given, CU_EVENT_DISABLE_TIMING);
    b->on = s;
    if (rc == CU_OK && m->cu->event_record(b->given, s) != CU_OK) {
        b->on = NULL;
        rc = m->cu->event_record(b->given, NULL);
    }
    if (rc != CU_OK) {
        mem_free(b); /* when it would be free is unknown: leaked */
        return;
    }
    (void)pthread_mutex_lock(&m->lock);
    b->next = m->free[b->class];
    m->free[b->class] = b;
    (void)pthread_mutex_unlock(&m->lock);
}

/* The call fails if the stream was destroyed since. The legacy stream then follows all
 * work of blocking streams; that of other streams has finished before the user
 * destroyed them. */
void memory_give(struct gpu_memory *m, cu_ptr p, cu_stream s)
{
    if (p == 0 || m->is_forgotten)
        return;
    if (!m->pool)
        give_listed(m, p, s);
    else if (m->cu->mem_free_async(p, s) != CU_OK)
        (void)m->cu->mem_free_async(p, NULL); /* or it is leaked */
}

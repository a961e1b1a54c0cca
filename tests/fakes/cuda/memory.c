/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of the fake. Each block has a mapping of its own, with a guard page
 * before and after it. Freed blocks stay mapped without access, so a late use is a
 * fault at its address. Pools are only names. By default a pool makes the requesting
 * stream wait for memory that was freed last in another stream. Like the driver's, a
 * pool returns memory freed in a stream to the next request in that stream at once;
 * only later work of that stream may use it. Other memory is inaccessible until its
 * stream has reached its allocation. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE      4096u
#define NO_STREAM ((cu_stream)(intptr_t)-1) /* its block cannot be had again */

struct block {
    struct block *next;
    uint8_t *map, *p;
    size_t map_bytes, bytes;
    int device;
    bool is_pinned;
    bool is_given;  /* an entry will free it */
    bool is_unborn; /* an entry will begin it */
    cu_stream given_in;
    uint64_t turn; /* of the entry */
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static unsigned n_device;
static uint64_t turns;
struct cu_pool_s {
    bool makes_no_wait; /* CU_POOL_MAKES_STREAMS_WAIT is 0 */
};

static int block_take(size_t bytes, bool is_pinned, void **ret)
{
    size_t room = (bytes + 255) / 256 * 256, pages = (room + PAGE - 1) / PAGE * PAGE;

    if (bytes == 0)
        return CU_INVALID_VALUE;
    if (hvd_fake_strikes("oom") || bytes > (size_t)1 << 40)
        return CU_OUT_OF_MEMORY;
    uint8_t *map = mmap(NULL, pages + 2 * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return CU_OUT_OF_MEMORY;
    struct block *b = fake_zalloc(sizeof(*b));
    (void)mprotect(map, PAGE, PROT_NONE);
    (void)mprotect(map + PAGE + pages, PAGE, PROT_NONE);
    *b = (struct block){.map = map,
                        .map_bytes = pages + 2 * PAGE,
                        .p = map + PAGE + pages - room,
                        .bytes = bytes,
                        .device = fake_current()->device,
                        .is_pinned = is_pinned};
    if (!is_pinned && bytes <= 1u << 20)
        memset(b->p, 0xd5, bytes);
    *ret = b->p;
    LOCK_HERE(&lock);
    b->next = blocks;
    blocks = b;
    n_device += !is_pinned;
    return 0;
}

static void block_give(const void *p, bool is_pinned)
{
    pthread_mutex_lock(&lock);
    struct block **at = &blocks;
    while (*at && ((*at)->p != p || (*at)->is_pinned != is_pinned))
        at = &(*at)->next;
    struct block *b = *at;
    if (!b)
        hvd_fake_die("%p is freed, and no block of %s memory begins there", p,
                     is_pinned ? "pinned" : "device");
    *at = b->next;
    n_device -= !is_pinned;
    pthread_mutex_unlock(&lock);
    if (is_pinned || b->map_bytes > 1u << 20)
        (void)munmap(b->map, b->map_bytes);
    else
        (void)mprotect(b->map, b->map_bytes, PROT_NONE);
    free(b);
}

static const struct block *block_holding(const void *p, size_t n, bool is_pinned)
{
    const uint8_t *at = p;

    for (const struct block *b = blocks; b; b = b->next)
        if (b->is_pinned == is_pinned && at >= b->p && at < b->p + b->bytes
            && n <= (size_t)(b->p + b->bytes - at))
            return b;
    return NULL;
}

bool fake_is_device(const void *p, size_t n, int *ret_ordinal)
{
    LOCK_HERE(&lock);
    const struct block *b = block_holding(p, n, false);
    if (b && ret_ordinal)
        *ret_ordinal = b->device;
    return b != NULL;
}

bool fake_is_pinned(const void *p, size_t n)
{
    LOCK_HERE(&lock);
    return block_holding(p, n, true) != NULL;
}

void hvd_fake_need_device(const char *who, const void *p, size_t n)
{
    if (n > 0 && !fake_is_device(p, n, NULL))
        hvd_fake_die("%s: [%p, %p) is not inside one block of device memory", who, p,
                     (const void *)((const uint8_t *)p + n));
}

unsigned hvd_fake_n_blocks(void)
{
    LOCK_HERE(&lock);
    return n_device;
}

static void *host_of(cu_ptr p)
{
    return (void *)(uintptr_t)p; /* NOLINT(performance-no-int-to-ptr) */
}

/* --- the driver's calls --- */

int cuMemAlloc_v2(cu_ptr *ret, size_t bytes)
{
    void *p;

    FAKE_ENTER_SAFE();
    int rc = block_take(bytes, false, &p);
    if (rc == 0)
        *ret = (cu_ptr)(uintptr_t)p;
    return rc;
}

/* As the driver: the whole context. */
static int free_synchronised(void *p, bool is_pinned)
{
    FAKE_ENTER_SAFE();
    pthread_mutex_lock(&fake.lock);
    fake_wait_idle(fake_current());
    pthread_mutex_unlock(&fake.lock);
    block_give(p, is_pinned);
    return 0;
}

int cuMemFree_v2(cu_ptr p)
{
    return p == 0 ? fake_call(true) : free_synchronised(host_of(p), false);
}

static struct block *block_at(const void *p)
{
    struct block *b = blocks;

    while (b && (b->p != p || b->is_pinned))
        b = b->next;
    return b;
}

static void block_allow_access(const void *p, bool is_born)
{
    LOCK_HERE(&lock);
    struct block *b = block_at(p);
    if (b) {
        b->is_unborn = !is_born;
        (void)mprotect(b->map + PAGE, b->map_bytes - 2 * PAGE,
                       is_born ? PROT_READ | PROT_WRITE : PROT_NONE);
    }
}

static int begin_entry(void *arg)
{
    void *p;

    memcpy(&p, arg, sizeof(p));
    block_allow_access(p, true);
    return 0;
}

/* What was freed in the stream before, though that has not come so far. */
static void *take_again(size_t bytes, cu_stream s)
{
    LOCK_HERE(&lock);
    struct block *b = blocks;
    while (b
           && !(b->is_given && b->given_in == s && b->bytes == bytes
                && b->device == fake_current()->device))
        b = b->next;
    if (b)
        b->is_given = false;
    return b ? b->p : NULL;
}

int cuMemAllocAsync(cu_ptr *ret, size_t bytes, cu_stream s)
{
    int rc = 0;
    void *p;

    FAKE_ENTER(true);
    if (hvd_fake_is_capturing(s))
        hvd_fake_die("memory is taken on a stream that is being captured");
    p = take_again(bytes, s);
    if (!p) {
        rc = block_take(bytes, false, &p);
        if (rc)
            return rc;
        block_allow_access(p, false);
        rc = hvd_fake_enqueue(s, begin_entry, &p, sizeof(p));
    }
    if (rc)
        block_give(p, false);
    else
        *ret = (cu_ptr)(uintptr_t)p;
    return rc;
}

struct freeing {
    void *p;
    uint64_t turn;
};

static int until_free_entry(void *arg)
{
    struct freeing f;
    bool is_free = false;

    memcpy(&f, arg, sizeof(f));
    while (!is_free) {
        pthread_mutex_lock(&lock);
        struct block *b = block_at(f.p);
        is_free = !b || !b->is_given || b->turn != f.turn;
        pthread_mutex_unlock(&lock);
        (void)usleep(100);
    }
    return 0;
}

/* As the driver may: makes s wait for a free that another stream has not done yet. */
static int wait_for_free(cu_stream s)
{
    struct freeing f = {0};

    pthread_mutex_lock(&lock);
    for (struct block *b = blocks; b && !f.p; b = b->next)
        if (b->is_given && b->given_in != s && b->given_in != NO_STREAM)
            f = (struct freeing){b->p, b->turn};
    pthread_mutex_unlock(&lock);
    return f.p ? hvd_fake_enqueue(s, until_free_entry, &f, sizeof(f)) : 0;
}

int cuMemAllocFromPoolAsync(cu_ptr *ret, size_t bytes, cu_pool pool, cu_stream s)
{
    int rc = pool ? 0 : CU_INVALID_VALUE;

    if (rc == 0 && !pool->makes_no_wait)
        rc = wait_for_free(s);
    return rc ? rc : cuMemAllocAsync(ret, bytes, s);
}

static int free_entry(void *arg)
{
    struct freeing f;

    memcpy(&f, arg, sizeof(f));
    pthread_mutex_lock(&lock);
    struct block *b = block_at(f.p);
    bool is_it = b && b->is_given && b->turn == f.turn; /* not taken again since */
    if (is_it && b->is_unborn)
        hvd_fake_die("%p is freed on a stream that has not waited for its beginning",
                     f.p);
    if (is_it)
        b->given_in = NO_STREAM;
    pthread_mutex_unlock(&lock);
    if (is_it)
        block_give(f.p, false);
    return 0;
}

/* is_given false: its free was refused, as of a context that is lost. */
static uint64_t mark_given(const void *p, bool is_given, cu_stream s)
{
    LOCK_HERE(&lock);
    struct block *b = block_at(p);
    if (!b || b->is_given == is_given)
        hvd_fake_die("%p is freed, and no block of device memory begins there%s", p,
                     b ? " any more" : "");
    b->is_given = is_given;
    b->given_in = s;
    b->turn = ++turns;
    return b->turn;
}

int cuMemFreeAsync(cu_ptr p, cu_stream s)
{
    struct freeing f = {.p = host_of(p)};
    int broken = fake_break_capture(s); /* it would need memory of the graph's own */

    if (broken)
        return broken;
    f.turn = mark_given(f.p, true, s);
    int rc = hvd_fake_enqueue(s, free_entry, &f, sizeof(f));
    if (rc)
        (void)mark_given(f.p, false, s);
    return rc;
}

int cuDeviceGetDefaultMemPool(cu_pool *ret, cu_device d)
{
    static struct cu_pool_s pools[16];

    FAKE_ENTER(false);
    *ret = &pools[d & 15];
    return 0;
}

int cuMemPoolCreate(cu_pool *ret, const struct cu_pool_props *props)
{
    FAKE_ENTER(false);
    if (!fake.has_pools)
        return CU_NOT_SUPPORTED;
    if (props->alloc_type != 1 || props->location_type != 1)
        return CU_INVALID_VALUE;
    *ret = fake_zalloc(sizeof(**ret));
    return 0;
}

int cuMemPoolDestroy(cu_pool p)
{
    free(p);
    return fake_call(false);
}

int cuMemPoolSetAttribute(cu_pool p, int attr, void *value)
{
    FAKE_ENTER(false);
    if (!p || !value || attr < 1 || attr > 4)
        return CU_INVALID_VALUE;
    if (attr == CU_POOL_MAKES_STREAMS_WAIT)
        p->makes_no_wait = *(int *)value == 0;
    return 0;
}

int cuMemHostAlloc(void **ret, size_t bytes, unsigned flags)
{
    FAKE_ENTER_SAFE();
    return block_take(bytes, true, ret);
}

int cuMemFreeHost(void *p)
{
    return free_synchronised(p, true);
}

struct move {
    void *dst;
    const void *src;
    size_t n;
    uint8_t value;
    bool is_set;
    const char *who;
};

static int move_entry(void *arg)
{
    struct move *m = arg;

    if (m->is_set)
        memset(m->dst, m->value, m->n);
    else
        memmove(m->dst, m->src, m->n);
    return 0;
}

static int move_enqueue(struct move m, cu_stream s)
{
    return m.n == 0 ? fake_call(true) : hvd_fake_enqueue(s, move_entry, &m, sizeof(m));
}

static int move_inline(void *arg) /* dst, then the bytes */
{
    struct move m;

    memcpy(&m, arg, sizeof(m));
    memcpy(m.dst, (uint8_t *)arg + sizeof(m), m.n);
    return 0;
}

int cuMemcpyHtoDAsync_v2(cu_ptr dst, const void *src, size_t n, cu_stream s)
{
    struct move m = {.dst = host_of(dst), .src = src, .n = n};

    hvd_fake_need_device("cuMemcpyHtoDAsync_v2, destination", m.dst, n);
    if (fake_is_device(src, 1, NULL))
        hvd_fake_die("cuMemcpyHtoDAsync_v2: the source %p is device memory", src);
    if (n == 0 || fake_is_pinned(src, n))
        return move_enqueue(m, s);
    uint8_t *copy = fake_zalloc(sizeof(m) + n); /* pageable: taken before it returns */
    memcpy(copy, &m, sizeof(m));
    memcpy(copy + sizeof(m), src, n);
    int rc = hvd_fake_enqueue(s, move_inline, copy, sizeof(m) + n);
    free(copy);
    return rc;
}

int cuMemcpyDtoHAsync_v2(void *dst, cu_ptr src, size_t n, cu_stream s)
{
    struct move m = {.dst = dst, .src = host_of(src), .n = n};

    hvd_fake_need_device("cuMemcpyDtoHAsync_v2, source", m.src, n);
    if (fake_is_device(dst, 1, NULL))
        hvd_fake_die("cuMemcpyDtoHAsync_v2: the destination %p is device memory", dst);
    int rc = move_enqueue(m, s);
    if (rc == 0 && n > 0 && !fake_is_pinned(dst, n) && !hvd_fake_is_capturing(s)) {
        pthread_mutex_lock(&fake.lock); /* pageable: synchronous */
        fake_wait_stream(fake_stream(s));
        pthread_mutex_unlock(&fake.lock);
    }
    return rc;
}

int cuMemcpyDtoDAsync_v2(cu_ptr dst, cu_ptr src, size_t n, cu_stream s)
{
    struct move m = {.dst = host_of(dst), .src = host_of(src), .n = n};

    hvd_fake_need_device("cuMemcpyDtoDAsync_v2, source", m.src, n);
    hvd_fake_need_device("cuMemcpyDtoDAsync_v2, destination", m.dst, n);
    return move_enqueue(m, s);
}

int cuMemsetD8Async(cu_ptr dst, unsigned char v, size_t n, cu_stream s)
{
    struct move m = {.dst = host_of(dst), .n = n, .value = v, .is_set = true};

    hvd_fake_need_device("cuMemsetD8Async", m.dst, n);
    return move_enqueue(m, s);
}

int cuPointerGetAttribute(void *ret, int attr, cu_ptr p)
{
    int ordinal = 0;

    FAKE_ENTER(false);
    bool is_device = fake_is_device(host_of(p), 1, &ordinal);
    if (!is_device && !fake_is_pinned(host_of(p), 1))
        return CU_INVALID_VALUE;
    if (attr == CU_POINTER_MEMORY_TYPE)
        *(unsigned *)ret = is_device ? CU_MEMORY_DEVICE : CU_MEMORY_HOST;
    else if (attr == CU_POINTER_ORDINAL)
        *(int *)ret = ordinal;
    else if (attr == CU_POINTER_IS_MANAGED)
        *(unsigned *)ret = 0;
    else
        return CU_NOT_SUPPORTED;
    return 0;
}

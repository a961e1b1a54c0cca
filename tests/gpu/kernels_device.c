/* SPDX-License-Identifier: Apache-2.0 */
/* The table `cpu_kernels`, with rows that run on the GPU: linked in place of
 * tests/fakes/cuda/kernels_cpu.c, it turns the kernels' unit tests into tests of the
 * device, with the same tables and the same required bits.
 *
 * Design: the tests pass host addresses. For each type of arguments a walk (below)
 * lists every stretch of memory that a kernel may touch; adjacent stretches become one
 * span. A launch copies the spans up, to addresses that are equal modulo 256, puts the
 * new addresses into arguments and tables, and copies all back.
 *  - Usually spans lie in one block of device memory with marked gaps between them, and
 *    a write to a gap fails the test.
 *  - RM_EXACT=N: each N-th launch has a block for each span that ends where the span
 *    does, so that compute-sanitizer, or the fake's guard pages, detect wild reads.
 *  - Arguments without a walk of their own have all of the program's static variables
 *    copied, and everything that looks like an address in them replaced (not under
 *    AddressSanitizer, which puts marks between them).
 *  - HVD_GPU_PTX=1: the driver compiles the PTX.
 * Failures outside the tests (no driver, a failing launch) are "Bail out!". */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/backend/nccl/launch.h"
#include "runtime/core/compress/int8.h"
#include "tests/fakes/cuda/kernels_cpu.h"
#include "tests/gpu/tap/image.h"

enum { MAX_SPANS = 8192, MAX_MARKS = 8192, GAP = 256, MARK = 0x6b };

struct span {
    uint64_t host, bytes, device;
};
struct mark { /* an address that is to be replaced */
    uint64_t *at;
};
struct walk {
    struct span v[MAX_SPANS];
    uint32_t n;
    struct mark marks[MAX_MARKS];
    uint32_t n_marks;
    uint64_t sizes[2]; /* of elements, by the kernel's name: from, to */
    bool is_variables; /* the only span is the program's static variables */
};
extern uint8_t __data_start[], _end[]; /* the linker's */

static struct {
    struct cuda_api cu;
    struct gpu_launch launch;
    cu_ptr arena;
    uint64_t arena_bytes;
    uint8_t *stage; /* as many */
    unsigned long exact_each, n_launches;
} gpu;
static struct walk walk;

#define CU(name, ...)                                                                  \
    do {                                                                               \
        struct err err_ = ERR_INIT;                                                    \
        if (CUDA_TRY(&gpu.cu, name, &err_, __VA_ARGS__) != 0)                          \
            image_bail("the device", err_.text);                                       \
    } while (0)

static void open_device(void)
{
    const char *ptx = getenv("HVD_GPU_PTX"), *exact = getenv("RM_EXACT");
    struct err err = ERR_INIT;
    int major = 0, minor = 0, n_multiprocessors = 0;
    cu_device d = 0;
    cu_ctx ctx = NULL;
    char text[64];
    size_t bytes = 0;

    if (gpu.launch.module)
        return;
    gpu.exact_each = exact ? strtoul(exact, NULL, 10) : 0;
    if (cuda_load(CUDA_LIBRARY, &gpu.cu, &err) != 0)
        image_bail("no driver", err.text);
    CU(init, 0);
    CU(device_get, &d, 0);
    CU(device_attr, &major, CU_ATTR_SM_MAJOR, d);
    CU(device_attr, &minor, CU_ATTR_SM_MINOR, d);
    CU(device_attr, &n_multiprocessors, CU_ATTR_MULTIPROCESSORS, d);
    CU(ctx_retain, &ctx, d);
    CU(ctx_push, ctx);
    const uint8_t *image = image_of_library(&bytes);
    if (launch_init(&gpu.launch, &gpu.cu, image, bytes, major * 10 + minor,
                    n_multiprocessors, ptx && *ptx == '1', &err)
        != 0)
        image_bail("the kernels", err.text);
    (void)snprintf(text, sizeof(text), "%s_%u",
                   gpu.launch.part.kind == IMAGE_PTX ? "ptx" : "sm",
                   gpu.launch.part.sm);
    (void)printf("# kernels of %s on compute capability %d.%d\n", text, major, minor);
}

/* --- what a kernel touches -------------------------------------------------------- */

/* The kernel may touch `bytes` at *p, which is replaced by their place on the device.
 */
static void span_add(uint64_t *p, uint64_t bytes)
{
    if (*p == 0 || bytes == 0)
        return;
    if (walk.n == MAX_SPANS || walk.n_marks == MAX_MARKS)
        image_bail("kernels_device.c", "a launch of too many pieces");
    walk.v[walk.n++] = (struct span){.host = *p, .bytes = bytes};
    walk.marks[walk.n_marks++] = (struct mark){p};
}

/* A table that kernels only read: a copy of it, so that its addresses can be replaced.
 */
static void *table_copy(uint64_t *p, uint64_t bytes)
{
    static void *copies[2];
    static unsigned turn;
    void **copy = &copies[turn++ % 2];

    free(*copy);
    *copy = malloc(bytes + 1);
    if (!*copy)
        image_bail("kernels_device.c", "out of memory");
    memcpy(*copy, (const void *)(uintptr_t)*p, bytes);
    *p = (uintptr_t)*copy;
    span_add(p, bytes);
    return *copy;
}

/* Each chunk's elements; how many tensors they name. */
static uint32_t chunks_add(uint64_t *p, uint32_t n)
{
    struct chunk *c = table_copy(p, n * sizeof(*c));
    uint32_t n_tensors = 0;
    for (uint32_t i = 0; i < n; i++) {
        span_add(&c[i].src, c[i].n * walk.sizes[0]);
        span_add(&c[i].dst, c[i].n * walk.sizes[1]);
        if (c[i].tensor >= n_tensors)
            n_tensors = c[i].tensor + 1;
    }
    return n_tensors;
}

static void walk_move(void *args)
{
    struct args_move *a = args;
    (void)chunks_add(&a->chunks, a->n);
}

static void walk_scan(void *args)
{
    struct args_scan *a = args;
    uint32_t n = chunks_add(&a->chunks, a->n);
    struct scan_cell *cells = (struct scan_cell *)(uintptr_t)a->cells;
    for (uint32_t i = 0; i < n; i++)
        span_add(&cells[i].base, 1);
    span_add(&a->cells, n * sizeof(*cells));
}

static void walk_dots(void *args)
{
    struct args_dots *a = args;
    (void)chunks_add(&a->chunks, a->n);
    span_add(&a->sums, a->n * sizeof(struct dots));
}

static void walk_dots_end(void *args)
{
    struct args_dots_end *a = args;
    const struct chunk *t = table_copy(&a->tensors, a->n * sizeof(*t));
    uint64_t n_sums = 0;
    for (uint32_t i = 0; i < a->n; i++)
        if (t[i].src + t[i].n > n_sums)
            n_sums = t[i].src + t[i].n;
    span_add(&a->sums, n_sums * sizeof(struct dots));
    span_add(&a->weights, a->n * sizeof(struct weights));
}

static void walk_combine(void *args)
{
    struct args_combine *a = args;
    uint32_t n = chunks_add(&a->chunks, a->n);
    span_add(&a->weights, n * sizeof(struct weights));
}

static void walk_int8_code(void *args)
{
    struct args_int8_code *a = args;
    struct int8_code *v = table_copy(&a->tensors, a->n * sizeof(*v));
    for (uint32_t i = 0; i < a->n; i++) {
        struct int8_code *c = &v[i];
        span_add(&c->in, c->count * walk.sizes[0]);
        span_add(&c->wire, c->n_shards > 0 ? c->n_shards * c->stride
                                           : int8_wire_bytes(c->count, c->block));
        if (c->n_shards > 0)
            span_add(&c->own, c->stride);
        span_add(&c->residual, c->count * sizeof(float));
    }
}

static void walk_int8_sum(void *args)
{
    struct args_int8_sum *a = args;
    struct int8_sum *v = table_copy(&a->tensors, a->n * sizeof(*v));
    for (uint32_t i = 0; i < a->n; i++) {
        struct int8_sum *c = &v[i];
        span_add(&c->wire, c->n_shards > 0 ? c->n_shards * c->stride
                                           : (c->n - 1) * c->stride
                                                 + int8_wire_bytes(c->count, c->block));
        span_add(&c->out, c->count * walk.sizes[0]);
    }
}

static bool is_static(uint64_t v)
{
    return v >= (uintptr_t)__data_start && v < (uintptr_t)_end;
}

/* What is in the arguments is a number, or an address of a static variable. */
static void walk_variables(uint64_t *args, size_t bytes)
{
    uint64_t all = (uintptr_t)__data_start;

    walk.is_variables = true;
    for (size_t i = 0; i < bytes / sizeof(*args); i++)
        if (is_static(args[i]))
            span_add(&args[i], 1);
        else if (args[i] >> 40 == (uintptr_t)&all >> 40) /* of the stack */
            image_bail("kernels_device.c",
                       "an argument is neither a number nor static");
    span_add(&all, (uint64_t)(_end - __data_start));
    walk.n_marks--; /* all is no argument */
}

/* Addresses of `from`, as many bytes as the variables, become those of `to`. */
static void globals_relocate(uint8_t *p, uint64_t from, uint64_t to)
{
    uint64_t n = (uint64_t)(_end - __data_start), v;

    for (uint64_t at = -(uintptr_t)__data_start & 7; at + 8 <= n; at += 8) {
        memcpy(&v, p + at, sizeof(v));
        if (v - from >= n)
            continue;
        v += to - from;
        memcpy(p + at, &v, sizeof(v));
    }
}

static const struct {
    const char *args;
    void (*walk)(void *args);
} walks[] = {
    {"struct args_move", walk_move},         {"struct args_scan", walk_scan},
    {"struct args_dots", walk_dots},         {"struct args_dots_end", walk_dots_end},
    {"struct args_combine", walk_combine},   {"struct args_int8_code", walk_int8_code},
    {"struct args_int8_sum", walk_int8_sum},
};

/* "move_f32_f16": 4 and 2; one type: both; none: 1. */
static void sizes_of(const char *name)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } types[] = {{"_f32", 4}, {"_f64", 8}, {"_f16", 2}, {"_bf16", 2},
                 {"_u8", 1},  {"_i8", 1},  {"_u16", 2}, {"_i16", 2},
                 {"_i32", 4}, {"_i64", 8}, {"_bool", 1}};
    unsigned found = 0;

    walk.sizes[0] = walk.sizes[1] = 1;
    for (const char *p = strchr(name, '_'); p; p = strchr(p + 1, '_'))
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
            size_t len = strlen(types[i].name);
            if (strncmp(p, types[i].name, len) != 0 || (p[len] != 0 && p[len] != '_'))
                continue;
            for (unsigned k = found++; k < 2; k++)
                walk.sizes[k] = types[i].bytes;
        }
}

/* --- spans ------------------------------------------------------------------------ */

static int by_host(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->host < y->host ? -1 : x->host > y->host;
}

static void spans_merge(void)
{
    uint32_t n = 0;

    qsort(walk.v, walk.n, sizeof(walk.v[0]), by_host);
    for (uint32_t i = 0; i < walk.n; i++) {
        struct span *last = n > 0 ? &walk.v[n - 1] : NULL, *s = &walk.v[i];
        uint64_t end = s->host + s->bytes;
        if (last && s->host <= last->host + last->bytes) {
            if (end > last->host + last->bytes)
                last->bytes = end - last->host;
        } else {
            walk.v[n++] = *s;
        }
    }
    walk.n = n;
}

/* Puts the device's addresses into the marks, or the host's back. */
static void marks_replace(bool to_device)
{
    for (uint32_t i = 0; i < walk.n_marks; i++) {
        uint64_t *at = walk.marks[i].at;
        for (uint32_t k = 0; k < walk.n; k++) {
            const struct span *s = &walk.v[k];
            uint64_t from = to_device ? s->host : s->device;
            uint64_t to = to_device ? s->device : s->host;
            if (*at >= from && *at - from < s->bytes) {
                *at = to + (*at - from);
                break;
            }
        }
    }
}

static void kernel_launch(enum kernel_id k, void *args, unsigned blocks)
{
    void *params[] = {args};
    CU(launch, gpu.launch.funcs[k], blocks, 1, 1, KERNEL_THREADS, 1, 1, 0, NULL, params,
       NULL);
}

static void run_exact(enum kernel_id k, void *args, unsigned blocks)
{
    static cu_ptr rooms[MAX_SPANS];

    for (uint32_t i = 0; i < walk.n; i++) {
        uint64_t off = walk.v[i].host % GAP;
        CU(mem_alloc, &rooms[i], off + walk.v[i].bytes);
        walk.v[i].device = rooms[i] + off;
    }
    marks_replace(true);
    for (uint32_t i = 0; i < walk.n; i++)
        CU(copy_up, walk.v[i].device, (const void *)(uintptr_t)walk.v[i].host,
           walk.v[i].bytes, NULL);
    kernel_launch(k, args, blocks);
    for (uint32_t i = 0; i < walk.n; i++)
        CU(copy_down, (void *)(uintptr_t)walk.v[i].host, walk.v[i].device,
           walk.v[i].bytes, NULL);
    CU(ctx_sync, );
    for (uint32_t i = 0; i < walk.n; i++)
        CU(mem_free, rooms[i]);
    marks_replace(false);
}

static void arena_reserve(uint64_t bytes)
{
    if (bytes <= gpu.arena_bytes)
        return;
    if (gpu.arena)
        CU(mem_free, gpu.arena);
    free(gpu.stage);
    gpu.arena_bytes = bytes * 2;
    gpu.stage = malloc(gpu.arena_bytes);
    if (!gpu.stage)
        image_bail("kernels_device.c", "out of memory");
    CU(mem_alloc, &gpu.arena, gpu.arena_bytes);
}

static void check_gaps(uint64_t total)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i <= walk.n; i++) {
        uint64_t end = i < walk.n ? walk.v[i].device - gpu.arena : total;
        for (; at < end; at++)
            if (gpu.stage[at] != MARK)
                image_bail("a kernel", "it wrote outside of what it was given");
        if (i < walk.n)
            at += walk.v[i].bytes;
    }
}

static void run_arena(enum kernel_id k, void *args, unsigned blocks)
{
    uint64_t total = GAP;

    for (uint32_t i = 0; i < walk.n; i++) {
        struct span *s = &walk.v[i];
        s->device = (total + GAP - 1) / GAP * GAP + s->host % GAP;
        total = s->device + s->bytes + GAP;
    }
    arena_reserve(total);
    for (uint32_t i = 0; i < walk.n; i++)
        walk.v[i].device += gpu.arena;
    marks_replace(true);
    memset(gpu.stage, MARK, total);
    for (uint32_t i = 0; i < walk.n; i++)
        memcpy(gpu.stage + (walk.v[i].device - gpu.arena),
               (const void *)(uintptr_t)walk.v[i].host, walk.v[i].bytes);
    const struct span *first = &walk.v[0];
    uint8_t *variables = gpu.stage + (first->device - gpu.arena);
    if (walk.is_variables)
        globals_relocate(variables, first->host, first->device);
    CU(copy_up, gpu.arena, gpu.stage, total, NULL);
    kernel_launch(k, args, blocks);
    CU(copy_down, gpu.stage, gpu.arena, total, NULL);
    CU(ctx_sync, );
    if (walk.is_variables)
        globals_relocate(variables, first->device, first->host);
    check_gaps(total);
    for (uint32_t i = 0; i < walk.n; i++)
        memcpy((void *)(uintptr_t)walk.v[i].host,
               gpu.stage + (walk.v[i].device - gpu.arena), walk.v[i].bytes);
    marks_replace(false);
}

static void kernel_run(
    enum kernel_id k, const char *type, const void *args, size_t bytes, unsigned blocks)
{
    uint64_t copy[32];
    size_t i = 0, n = sizeof(walks) / sizeof(walks[0]);

    open_device();
    while (i < n && strcmp(walks[i].args, type) != 0)
        i++;
    if (bytes > sizeof(copy))
        image_bail(type, "it is larger than kernels_device.c has room for");
    memcpy(copy, args, bytes);
    walk.n = walk.n_marks = 0;
    walk.is_variables = false;
    sizes_of(cpu_kernels[k].symbol);
    if (i < n)
        walks[i].walk(copy);
    else
        walk_variables(copy, bytes);
    spans_merge();
    bool is_exact = gpu.exact_each > 0 && gpu.n_launches++ % gpu.exact_each == 0;
    (is_exact && !walk.is_variables ? run_exact : run_arena)(k, copy, blocks);
}

/* --- the table -------------------------------------------------------------------- */

#define ON_DEVICE(name, args)                                                          \
    static void run_##name(const void *a, unsigned block, unsigned blocks)             \
    {                                                                                  \
        if (block == 0) /* the grid is whole */                                        \
            kernel_run(KERNEL_##name, #args, a, sizeof(args), blocks);                 \
    }
KERNELS(ON_DEVICE)
#define ROW(name, args) [KERNEL_##name] = {"hvd_" #name, sizeof(args), run_##name},
const struct cpu_kernel cpu_kernels[KERNEL_COUNT] = {KERNELS(ROW)};

void cpu_kernel_run(const struct cpu_kernel *k,
                    const void *args,
                    unsigned blocks,
                    uint64_t seed)
{
    (void)seed;
    k->block(args, 0, blocks);
}

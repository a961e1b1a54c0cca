/* SPDX-License-Identifier: Apache-2.0 */
/* bench_kernels REPEATS FILE...: measures how fast the kernels pack and unpack lists of
 * tensors, compared with a plain copy of the device. A file holds numbers of elements.
 * Prints lines "LIST,KERNEL,SECONDS,BYTES" (the median launch's time, bytes read and
 * written), that of the copy first. A sum of one type without factors, and its average
 * (dtype.c), pack and unpack by KERNEL_copy; casts and factors need the other ones.
 *
 * Tensors start at multiples of 512 bytes, as in a framework's allocator, and in the
 * packed buffer at multiples of 16, as in fuse.c; chunks are those of table.c. One
 * time is that of several launches over different buffers divided by their number, so
 * that the cost of launching is small and the L2 does not hold the data. */
#include "tests/gpu/tap/conform.h"

#include "runtime/backend/nccl/launch.h"
#include "tests/gpu/tap/image.h"

enum { MAX_TENSORS = 4096, SETS = 4, LAUNCHES = 8, MAX_REPEATS = 101 };

static struct gpu_launch kernels;
static cu_stream s;
static uint64_t counts[MAX_TENSORS];
static uint32_t n_tensors;
static unsigned repeats;

static const struct kind {
    const char *name;
    uint64_t wide, narrow; /* bytes of an element in tensors and in the buffer */
    enum kernel_id k;
    bool is_out; /* from the buffer into the tensors */
} kinds[] = {
    {"copy in", 4, 4, KERNEL_copy, false},
    {"copy out", 4, 4, KERNEL_copy, true},
    {"f32 in", 4, 4, KERNEL_move_f32_f32, false},
    {"f32 out", 4, 4, KERNEL_move_f32_f32, true},
    {"f32 to bf16 in", 4, 2, KERNEL_move_f32_bf16, false},
    {"bf16 to f32 out", 4, 2, KERNEL_move_bf16_f32, true},
    {"f16 in", 2, 2, KERNEL_move_f16_f16, false},
    {"f16 out", 2, 2, KERNEL_move_f16_f16, true},
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void stream_spin(void)
{
    int r;
    while ((r = cu.stream_query(s)) == CU_NOT_READY)
        ;
    NEEDS(r);
}

/* Seconds of one of LAUNCHES calls of fn. */
static double median_seconds(int (*fn)(void *arg, unsigned i), void *arg)
{
    uint64_t v[MAX_REPEATS];

    for (unsigned r = 0; r < repeats + 2; r++) { /* two to warm up */
        uint64_t began = clock_now_ns();
        for (unsigned i = 0; i < LAUNCHES; i++)
            NEEDS(fn(arg, i));
        stream_spin();
        if (r >= 2)
            v[r - 2] = clock_now_ns() - began;
    }
    qsort(v, repeats, sizeof(v[0]), by_value);
    const uint64_t middle = v[repeats / 2];
    return (double)middle / LAUNCHES / 1e9;
}

struct work {
    cu_ptr p[SETS], q[SETS], table[SETS];
    uint64_t bytes;
    uint32_t n_chunks;
    const struct kind *kind;
};

static int copy_once(void *arg, unsigned i)
{
    const struct work *w = arg;
    return cu.copy(w->q[i % SETS], w->p[i % SETS], w->bytes, s);
}

static int move_once(void *arg, unsigned i)
{
    const struct work *w = arg;
    struct args_move a = {
        .chunks = w->table[i % SETS], .n = w->n_chunks, .divisor = 1, .scale = 0.5};
    struct err err = ERR_INIT;
    return launch_kernel(&kernels, w->kind->k, w->n_chunks, &a, s, &err);
}

static uint64_t round_up(uint64_t v, uint64_t to)
{
    return (v + to - 1) / to * to;
}

/* The chunks of one set; how many. */
static uint32_t
chunks_fill(struct chunk *v, const struct kind *k, cu_ptr tensors, cu_ptr buffer)
{
    uint32_t n = 0, most = (uint32_t)(CHUNK_BYTES / k->wide);
    const uint64_t unit = k->k == KERNEL_copy ? k->wide : 1; /* which counts bytes */

    for (uint32_t t = 0; t < n_tensors; t++) {
        for (uint64_t at = 0; at < counts[t]; at += most) {
            uint64_t left = counts[t] - at;
            cu_ptr a = tensors + at * k->wide, b = buffer + at * k->narrow;
            v[n++] = (struct chunk){.src = k->is_out ? b : a,
                                    .dst = k->is_out ? a : b,
                                    .n = (uint32_t)((left < most ? left : most) * unit),
                                    .tensor = t};
        }
        tensors += round_up(counts[t] * k->wide, 512);
        buffer += round_up(counts[t] * k->narrow, 16);
    }
    return n;
}

static void kind_measure(const char *list, const struct kind *k)
{
    uint64_t total = 0, room = 0, most = 0;
    struct work w = {.kind = k};

    for (uint32_t t = 0; t < n_tensors; t++) {
        total += counts[t];
        room += round_up(counts[t] * k->wide, 512);
        most += counts[t] * k->wide / CHUNK_BYTES + 1;
    }
    struct chunk *v = malloc((most + 1) * sizeof(*v));
    NEEDS(!v);
    for (unsigned i = 0; i < SETS; i++) {
        NEEDS(cu.mem_alloc(&w.p[i], room));
        NEEDS(cu.mem_alloc(&w.q[i], room));
        NEEDS(cu.mem_alloc(&w.table[i], most * sizeof(*v)));
        NEEDS(cu.set_d8(w.p[i], 0x3c, room, s));
        NEEDS(cu.set_d8(w.q[i], 0x3c, room, s));
        w.n_chunks = chunks_fill(v, k, w.p[i], w.q[i]);
        NEEDS(cu.copy_up(w.table[i], v, w.n_chunks * sizeof(*v), s));
        stream_spin();
    }
    total *= k->wide + k->narrow;
    (void)printf("%s,%s,%.9f,%ju\n", list, k->name, median_seconds(move_once, &w),
                 (uintmax_t)total);
    for (unsigned i = 0; i < SETS; i++) {
        NEEDS(cu.mem_free(w.p[i]));
        NEEDS(cu.mem_free(w.q[i]));
        NEEDS(cu.mem_free(w.table[i]));
    }
    free(v);
}

static void measure_copy(uint64_t bytes)
{
    struct work w = {.bytes = bytes};

    for (unsigned i = 0; i < SETS; i++) {
        NEEDS(cu.mem_alloc(&w.p[i], bytes));
        NEEDS(cu.mem_alloc(&w.q[i], bytes));
        NEEDS(cu.set_d8(w.p[i], 0x3c, bytes, s));
    }
    stream_spin();
    (void)printf("copy,copy,%.9f,%ju\n", median_seconds(copy_once, &w),
                 (uintmax_t)(2 * bytes));
    for (unsigned i = 0; i < SETS; i++) {
        NEEDS(cu.mem_free(w.p[i]));
        NEEDS(cu.mem_free(w.q[i]));
    }
}

static void read_list(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned long long n;

    NEEDS(!f);
    for (n_tensors = 0; n_tensors < MAX_TENSORS && fscanf(f, "%llu", &n) == 1;)
        counts[n_tensors++] = n;
    NEEDS(fclose(f));
    NEEDS(n_tensors == 0);
}

int main(int argc, char **argv)
{
    int major = 0, minor = 0, n_multiprocessors = 0;
    const char *megabytes = getenv("RM_COPY_MB");
    struct err err = ERR_INIT;
    size_t bytes = 0;
    cu_ctx ctx = NULL;

    if (argc < 3)
        return 2;
    repeats = (unsigned)strtoul(argv[1], NULL, 10);
    if (repeats < 1 || repeats > MAX_REPEATS)
        return 2;
    open_driver();
    NEEDS(cu.init(0));
    NEEDS(cu.device_attr(&major, CU_ATTR_SM_MAJOR, 0));
    NEEDS(cu.device_attr(&minor, CU_ATTR_SM_MINOR, 0));
    NEEDS(cu.device_attr(&n_multiprocessors, CU_ATTR_MULTIPROCESSORS, 0));
    NEEDS(cu.ctx_retain(&ctx, 0));
    NEEDS(cu.ctx_push(ctx));
    NEEDS(cu.stream_new(&s, CU_STREAM_NON_BLOCKING, 0));
    const uint8_t *image = image_of_library(&bytes);
    NEEDS(launch_init(&kernels, &cu, image, bytes, major * 10 + minor,
                      n_multiprocessors, false, &err));
    measure_copy((megabytes ? strtoull(megabytes, NULL, 10) : 1024) << 20);
    for (int i = 2; i < argc; i++) {
        const char *name = strrchr(argv[i], '/');
        read_list(argv[i]);
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            kind_measure(name ? name + 1 : argv[i], &kinds[k]);
    }
    end_here(0);
}

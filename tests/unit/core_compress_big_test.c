/* SPDX-License-Identifier: Apache-2.0 */
/* Compression of tensors beyond 2^32 elements, where indexes, offsets and counts need
 * 64 bits. Runs with HVD_TEST_BIG=1 only (test-full): about a minute and 5 GiB.
 *
 * The tensors themselves need no memory: one piece of PERIOD bytes is mapped again and
 * again, so that element i and element i + PERIOD / size are the same one. */
#include <sys/mman.h>

#include "runtime/core/compress/cast.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/powersgd.h"
#include "runtime/core/compress/topk.h"
#include "tests/unit/codec_kernels.h"

#define PERIOD (64ull << 20)
#define COUNT  ((1ull << 32) + 1000)
#define ALIKE  (PERIOD / sizeof(float)) /* elements until they repeat */

static uint64_t mapped_bytes(uint64_t bytes)
{
    return (bytes + PERIOD - 1) / PERIOD * PERIOD;
}

static void *memory_map(uint64_t bytes)
{
    int fd = memfd_create("big", MFD_CLOEXEC);
    uint64_t all = mapped_bytes(bytes);
    uint8_t *base =
        mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_true(fd >= 0 && ftruncate(fd, (off_t)PERIOD) == 0);
    assert_true(base != MAP_FAILED);
    for (uint64_t at = 0; at < all; at += PERIOD)
        assert_true(mmap(base + at, PERIOD, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_FIXED, fd, 0)
                    == base + at);
    (void)close(fd);
    return base;
}

static void memory_unmap(void *p, uint64_t bytes)
{
    assert_int_equal(munmap(p, mapped_bytes(bytes)), 0);
}

static uint64_t index_of(const uint8_t *wire, uint64_t i)
{
    uint64_t v;

    memcpy(&v, wire + 8 * i, sizeof(v));
    return v;
}

UNIT_TEST(topk_beyond_32_bits)
{
    const struct codec_kernels *kernels = codec_kernels_of(cpu_is_wide());
    float *w = memory_map(COUNT * sizeof(*w)), v[2];
    uint64_t last = COUNT - 1, n_alike = COUNT / ALIKE + 1;
    uint8_t wire[1 << 16];
    struct err err = ERR_INIT;

    /* one place below 1000 in each piece is large, and so it is beyond 2^32 too */
    w[999] = 7;
    assert_true(w[last] == 7 && last >> 32 == 1);
    assert_true(topk_wire_bytes(COUNT, n_alike) == 12 * n_alike
                && topk_room_bytes(COUNT, n_alike) <= sizeof(wire));
    topk_encode(kernels, wire, w, COUNT, n_alike);
    /* only the first: the other places are the same memory, empty once it is taken */
    assert_int_equal(index_of(wire, 0), 999);
    /* a message with an index beyond 2^32, and one just beyond the tensor */
    memset(wire, 0, sizeof(wire));
    memcpy(wire + 8, &last, 8);
    v[0] = 1;
    v[1] = 3;
    memcpy(wire + 16, v, sizeof(v));
    assert_int_equal(topk_sum(w, wire, 24, 1, COUNT, 2, &err), 0);
    assert_true(w[0] == 1 && w[999] == 3 && w[1000] == 0);
    last++;
    memcpy(wire + 8, &last, 8);
    assert_int_equal(topk_sum(w, wire, 24, 1, COUNT, 2, &err), -EBADMSG);
    assert_string_equal(err.text,
                        "top-k message of member 0: index 4294968296 at place 1 "
                        "of a tensor of 4294968296 elements");
    memory_unmap(w, COUNT * sizeof(*w));
}

/* The last block is a short one behind 2^32 bytes of values. */
UNIT_TEST(int8_beyond_32_bits)
{
    const struct codec_kernels *kernels = codec_kernels_of(cpu_is_wide());
    float *w = memory_map(COUNT * sizeof(*w)), *out = memory_map(COUNT * sizeof(*out)),
          s;
    uint64_t bytes = int8_wire_bytes(COUNT, 1024);
    uint8_t *wire = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_true(wire != MAP_FAILED);
    assert_int_equal(bytes, COUNT + 4 * ((1ull << 22) + 1));
    for (uint64_t i = 0; i < ALIKE; i++)
        w[i] = (float)(i % 255) - 127;
    int8_encode(kernels, wire, w, DT_F32, 1, NULL, COUNT, 1024);
    memcpy(&s, wire + (bytes - COUNT) - sizeof(s), sizeof(s)); /* the last scale */
    assert_true(s == 1);
    assert_int_equal((int8_t)wire[bytes - 1], (int8_t)((999 % 255) - 127));
    assert_int_equal(
        int8_sum(kernels, out, DT_F32, 2, wire, bytes, 1, COUNT, 1024, NULL), 0);
    for (uint64_t i = 0; i < ALIKE; i++)
        assert_true(out[i] == 2 * w[i]);
    assert_int_equal(munmap(wire, bytes), 0);
    memory_unmap(w, COUNT * sizeof(*w));
    memory_unmap(out, COUNT * sizeof(*out));
}

UNIT_TEST(powersgd_beyond_32_bits)
{
    struct powersgd_shape s = {codec_kernels_of(cpu_is_wide()), (1 << 16) + 1, 1 << 16,
                               1};
    uint64_t bytes = s.rows * s.cols * sizeof(float);
    float *m = memory_map(bytes), *p = calloc(s.rows, sizeof(*p)),
          *q = calloc(s.cols, sizeof(*q));
    uint64_t rows_alike = ALIKE / s.cols; /* a period is whole rows */

    assert_true(p && q && s.rows * s.cols > 1ull << 32);
    for (uint64_t i = 0; i < ALIKE; i++)
        m[i] = (float)(i / s.cols + 1); /* row r holds r mod rows_alike + 1 */
    q[0] = q[s.cols - 1] = 1;
    powersgd_right(p, m, q, &s);
    for (uint64_t r = 0; r < s.rows; r++)
        assert_true(p[r] == 2 * (float)(r % rows_alike + 1));
    memset(p, 0, s.rows * sizeof(*p));
    p[s.rows - 1] = 1; /* the row that lies behind 2^32 elements */
    p[5] = 10;
    powersgd_left(q, m, p, &s);
    for (uint64_t c = 0; c < s.cols; c++)
        assert_true(q[c] == (float)((s.rows - 1) % rows_alike + 1) + 60);
    memory_unmap(m, bytes);
    free(p);
    free(q);
}

int main(void)
{
    if (!getenv("HVD_TEST_BIG")) {
        (void)printf(
            "1..0 # SKIP it needs gigabytes: HVD_TEST_BIG=1, make test-full\n");
        return 0;
    }
    return unit_run(NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed tensors as a peer might send them, and codecs as a user might write them.
 *
 * The first byte chooses what the rest is: a codec's text (which, when it is one, must
 * come back from its own text), messages of int8 or of top-k for a tensor whose shape
 * the next bytes choose (refused with a sentence, or summed: top-k as a plain loop
 * does), or a tensor to be sent (which every member must then be able to read). */
#include "runtime/base/mem.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/compress/int8.h"
#include "runtime/core/compress/topk.h"
#include "tests/fuzz/fuzz.h"

enum { TEXT, INT8_IN, TOPK_IN, INT8_OUT, TOPK_OUT, KINDS };
enum { COUNT_MAX = 3000 };

static void codec_parse_text(const uint8_t *data, size_t n)
{
    char *s = fuzz_text(data, n), buf[CODEC_TEXT_MAX], again[CODEC_TEXT_MAX];
    struct err err = ERR_INIT;
    struct codec c, back;

    if (codec_parse("fuzz", s, &c, &err) == 0) {
        MUST(strlen(codec_format(&c, buf)) < sizeof(buf) - 1);
        MUST(codec_parse("fuzz", buf, &back, &err) == 0);
        MUST(codec_equal(&c, &back));
        MUST(strcmp(codec_format(&back, again), buf) == 0);
    } else {
        MUST(strncmp(err.text, "fuzz: ", 6) == 0);
    }
    free(s);
}

/* Its own block of memory, so that a read beyond it is seen. */
static uint8_t *copy_of(const uint8_t *data, size_t n)
{
    uint8_t *p = malloc(n > 0 ? n : 1);

    MUST(p);
    if (n > 0)
        memcpy(p, data, n);
    return p;
}

static void int8_in(const uint8_t *data, size_t n, uint32_t members, uint64_t count)
{
    uint8_t *wire = copy_of(data, n);
    float *out = calloc(count + 1, sizeof(*out));
    struct err err = ERR_INIT;
    int r;

    MUST(out);
    r = int8_sum(&codec_kernels_base, out, DT_F32, 1, wire, n, members, count, 256,
                 &err);
    MUST(r == 0 || err.text[0]);
    MUST(out[count] == 0);
    free(out);
    free(wire);
}

static void
topk_in(const uint8_t *data, size_t n, uint32_t members, uint64_t count, uint64_t k)
{
    uint8_t *wire = copy_of(data, n);
    float *acc = calloc(count + 1, sizeof(*acc)), *want = calloc(count, sizeof(*want));
    struct err err = ERR_INIT;

    MUST(acc && want);
    if (topk_sum(acc, wire, n, members, count, k, &err) < 0) {
        MUST(err.text[0]);
    } else {
        for (uint32_t m = 0; m < members; m++)
            for (uint64_t i = 0; i < k; i++) {
                uint32_t at;
                float v;

                memcpy(&at, wire + m * k * 8 + i * 4, sizeof(at));
                memcpy(&v, wire + m * k * 8 + k * 4 + i * 4, sizeof(v));
                MUST(at < count);
                want[at] += v;
            }
        for (uint64_t i = 0; i < count; i++)
            MUST(want[i] == acc[i] || (want[i] != want[i] && acc[i] != acc[i]));
    }
    MUST(acc[count] == 0);
    free(want);
    free(acc);
    free(wire);
}

static bool is_finite(float f)
{
    return f - f == 0;
}

/* Any tensor makes a message that is read back; what remains is finite. */
static void codec_read_sent(const uint8_t *data,
                            size_t n,
                            uint64_t k,
                            void (*check)(float *, uint64_t, uint64_t))
{
    uint64_t count = n / sizeof(float);
    float *w = calloc(count + 1, sizeof(*w));

    MUST(w);
    memcpy(w, data, count * sizeof(*w));
    if (count > 0)
        check(w, count, k < count ? k : count);
    for (uint64_t i = 0; i < count; i++)
        MUST(is_finite(w[i]));
    free(w);
}

static void int8_out(float *w, uint64_t count, uint64_t k)
{
    uint64_t bytes = int8_wire_bytes(count, 256);
    float *residual = calloc(count, sizeof(*residual));
    uint8_t *wire = malloc(bytes);

    (void)k;
    MUST(residual && wire);
    int8_encode(&codec_kernels_base, wire, w, DT_F32, 1, residual, count, 256);
    memcpy(w, residual, count * sizeof(*w));
    MUST(int8_sum(&codec_kernels_base, residual, DT_F32, 1, wire, bytes, 1, count, 256,
                  NULL)
         == 0);
    free(wire);
    free(residual);
}

static void topk_out(float *w, uint64_t count, uint64_t k)
{
    uint64_t bytes = topk_wire_bytes(count, k);
    float *acc = calloc(count, sizeof(*acc));
    uint8_t *wire = malloc(topk_room_bytes(count, k) + 1);

    MUST(acc && wire);
    topk_encode(&codec_kernels_base, wire, w, count, k);
    MUST(topk_sum(acc, wire, bytes, 1, count, k, NULL) == 0);
    free(wire);
    free(acc);
}

FUZZ_TARGET(codec)
{
    uint32_t members;
    uint64_t count, k;

    if (n < 5)
        return 0;
    members = 1 + data[1] % 8;
    count = 1 + (data[2] | (uint64_t)data[3] << 8) % COUNT_MAX;
    k = data[4] % (count + 1);
    switch (data[0] % KINDS) {
    case TEXT:
        codec_parse_text(data + 1, n - 1);
        break;
    case INT8_IN:
        int8_in(data + 5, n - 5, members, count);
        break;
    case TOPK_IN:
        topk_in(data + 5, n - 5, members, count, k);
        break;
    case INT8_OUT:
        codec_read_sent(data + 5, n - 5, 1, int8_out);
        break;
    case TOPK_OUT:
        codec_read_sent(data + 5, n - 5, 1 + data[4], topk_out);
        break;
    }
    return 0;
}

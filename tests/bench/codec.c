/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of compression, one thread: codec [MIB [CODEC...]]
 *
 * A tensor of MIB (16) MiB of float32 as one of two members runs each codec in memory;
 * what the other member would send is this one's own message. Prints for each codec the
 * GB/s of tensor of all work before, between and after the collectives (median of 9),
 * the bytes on the wire, and the break-even: where allreduces run faster than that (in
 * GB/s of tensor), compression only costs. A copy of the tensor is the yardstick. */
#include <math.h>
#include <string.h>

#include "runtime/core/compress/codec.h"
#include "tests/bench/timing.h"

enum { MEMBERS = 2, ROUNDS = 9, PARTS = 3 };

static bool cpu_is_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
#else
    return false;
#endif
}

static void *memory_must(void *p)
{
    if (!p) {
        (void)fprintf(stderr, "codec: out of memory\n");
        exit(1);
    }
    return p;
}

/* The collective with a second member that has the same data. */
static void step_communicate(const struct codec_step *s)
{
    size_t each =
        s->coll == COLL_ALLREDUCE ? s->count * dtype_size(s->dtype) : s->count;

    if (s->out != s->in)
        memcpy(s->out, s->in, each);
    if (s->coll == COLL_ALLGATHER)
        memcpy((char *)s->out + each, s->in, each);
}

/* Microseconds of each part of one step; returns how many there are. */
static int step_once(struct codec_state *state,
                     const struct codec_plan *plan,
                     const float *in,
                     float *out,
                     void *scratch,
                     double *part)
{
    struct codec_io io = {.in = in, .out = out, .prescale = 1, .postscale = 1};
    struct codec_step step;
    struct codec_run run;
    struct err err = ERR_INIT;
    int n = 0, rc = codec_begin(&run, state, 0, "t", plan, &io, scratch, &err);

    while (rc >= 0) {
        double t = now_us();

        rc = codec_next(&run, &step, &err);
        part[n++] = now_us() - t;
        if (rc <= 0)
            break;
        step_communicate(&step);
    }
    if (rc < 0) {
        (void)fprintf(stderr, "codec: %s\n", err.text);
        exit(1);
    }
    return n;
}

static void codec_measure(const char *text, const float *in, float *out, int64_t side)
{
    int64_t shape[2] = {side, side};
    double part[PARTS], times[PARTS][ROUNDS], total = 0, bytes;
    struct err err = ERR_INIT;
    struct codec_state *state;
    struct codec_plan plan;
    struct codec c;
    void *scratch;
    int n = 0;

    if (codec_parse("codec", text, &c, &err) < 0
        || codec_plan(&c, DT_F32, OP_SUM, 2, shape, MEMBERS, &plan, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    if (!plan.is_compressed) {
        (void)printf("%-34s not compressed: %s\n", text, plan.why);
        return;
    }
    if (codec_state_new(UINT64_MAX, cpu_is_wide(), &state) < 0)
        exit(1);
    scratch = memory_must(aligned_alloc(64, (plan.scratch_bytes + 63) / 64 * 64));
    memset(scratch, 0, plan.scratch_bytes);
    (void)step_once(state, &plan, in, out, scratch, part); /* memory is touched */
    for (int i = 0; i < ROUNDS; i++) {
        n = step_once(state, &plan, in, out, scratch, part);
        for (int k = 0; k < n; k++)
            times[k][i] = part[k];
    }
    bytes = (double)plan.raw_bytes;
    (void)printf("%-34s", text);
    for (int k = 0; k < PARTS; k++) {
        if (k < n) {
            qsort(times[k], ROUNDS, sizeof(times[k][0]), by_value);
            total += times[k][ROUNDS / 2];
            (void)printf(" %7.2f", bytes / times[k][ROUNDS / 2] * 1e-3);
        } else {
            (void)printf(" %7s", "-");
        }
    }
    (void)printf("  %11llu  %6.1f", (unsigned long long)plan.wire_bytes,
                 bytes / (double)plan.wire_bytes);
    /* raw / v = work + raw / v * (sent / sent_raw) */
    (void)printf("  %7.2f\n",
                 bytes / total * 1e-3
                     * (1 - (double)plan.sent_bytes / (double)plan.sent_raw_bytes));
    free(scratch);
    codec_state_free(state);
}

/* The yardstick: a read and a write of every byte. */
static void measure_copy(const float *in, float *out, size_t n)
{
    double times[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        double t = now_us();

        memcpy(out, in, n * sizeof(*in));
        times[i] = now_us() - t;
    }
    qsort(times, ROUNDS, sizeof(*times), by_value);
    (void)printf("%-34s %7.2f\n", "memcpy",
                 (double)(n * sizeof(*in)) / times[ROUNDS / 2] * 1e-3);
}

int main(int argc, char **argv)
{
    static const char *const all[] = {"fp16",
                                      "bf16",
                                      "int8",
                                      "int8:feedback=0",
                                      "topk:ratio=0.01",
                                      "topk:ratio=0.001",
                                      "topk:ratio=0.01,feedback=0",
                                      "powersgd:rank=1",
                                      "powersgd:rank=4",
                                      "powersgd:rank=4,feedback=0",
                                      "powersgd:rank=16"};
    double mib = argc > 1 ? strtod(argv[1], NULL) : 16;
    int64_t side = (int64_t)sqrt(mib * (1 << 20) / sizeof(float));
    size_t n = (size_t)(side * side);
    float *in = memory_must(malloc(n * sizeof(*in))),
          *out = memory_must(malloc(n * sizeof(*out)));
    uint32_t x = 1;

    for (size_t i = 0; i < n; i++) { /* about normal, as gradients are */
        float sum = 0;

        for (int k = 0; k < 4; k++) {
            x = x * 1664525u + 1013904223u;
            sum += (float)(int32_t)x * 0x1p-31f;
        }
        in[i] = sum * 1e-3f;
    }
    memset(out, 0, n * sizeof(*out));
    (void)printf("%-34s %7s %7s %7s  %11s  %6s  %7s\n", "GB/s of float32, one thread",
                 "before", "between", "after", "wire bytes", "ratio", "gain <");
    measure_copy(in, out, n);
    for (int i = 2; i < argc; i++)
        codec_measure(argv[i], in, out, side);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all) && argc <= 2; i++)
        codec_measure(all[i], in, out, side);
    free(in);
    free(out);
    return 0;
}

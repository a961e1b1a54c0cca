/* SPDX-License-Identifier: Apache-2.0 */
/* Sparsified gradients with feedback of the elements that were not sent: Aji and
 * Heafield, "Sparse communication for distributed gradient descent" (2017); Lin et al.,
 * "Deep gradient compression" (2018).
 *
 * Selection is exact. The bits of a magnitude are a 31-bit number that orders as the
 * magnitude does (all NaNs are made one number above infinity), so the k-th largest is
 * found by three histograms over 11, 10 and 10 bits: each gives the bucket that holds
 * it and the number of elements above. That is a radix selection: three reads at worst
 * and no data moved, where a quickselect would need a copy and a sort n log n.
 *
 * Before that, a sample of the tensor guesses a limit that a few more than k elements
 * reach; one fast pass collects them (where the message will be) and only they are
 * selected from. A guess that is too high or far too low costs that pass and the whole
 * tensor is selected from instead: the outcome is the same.
 *
 * Of elements equal to the k-th largest, those with the lowest index are taken. Called
 * by codec.c. */
#include "runtime/core/compress/topk.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/core/half.h"

enum {
    TOP_BITS = 11,
    LOW_BITS = 10, /* of each of the two lower digits */
    TOP_SHIFT = 2 * LOW_BITS,
    N_TABLES = 4, /* adjacent elements use different ones: no load waits for a store */
    SAMPLE_HITS = 32, /* how many of the k the sample should contain */
    MIN_HITS = 8,     /* no guess if the sample would contain fewer */
    MIN_STRIDE = 8,   /* keeps the sample small */
    ROOM = 4,         /* room for candidates: so many times k */
};
#define ABS_BITS 0x7fffffffu
#define INF_BITS 0x7f800000u

uint32_t topk_index_bytes(uint64_t count)
{
    return count <= UINT32_MAX ? 4 : 8;
}

uint64_t topk_wire_bytes(uint64_t count, uint64_t k)
{
    return k * (topk_index_bytes(count) + sizeof(float));
}

/* Is it worth a guess? */
static bool is_sparse(uint64_t count, uint64_t k)
{
    return k >= MIN_STRIDE * MIN_HITS && count / k >= 2 * ROOM && count <= UINT32_MAX;
}

uint64_t topk_room_bytes(uint64_t count, uint64_t k)
{
    return is_sparse(count, k) ? k * ROOM * (sizeof(uint32_t) + sizeof(float))
                               : topk_wire_bytes(count, k);
}

static inline uint32_t float_magnitude(float f)
{
    uint32_t a = f32_bits(f) & ABS_BITS;

    return a > INF_BITS ? INF_BITS + 1 : a;
}

/* The bucket that holds the *need-th largest; *need becomes its position in there. */
static uint32_t topk_bucket_of(const uint64_t *n, uint32_t n_buckets, uint64_t *need)
{
    uint32_t b = n_buckets - 1;

    for (; b > 0 && n[b] < *need; b--)
        *need -= n[b];
    return b;
}

/* What is selected from: every stride-th element. */
struct view {
    const float *w;
    uint64_t n, stride;
};

static inline uint32_t view_at(const struct view *v, uint64_t i)
{
    return float_magnitude(v->w[i * v->stride]);
}

static uint32_t top_digit(const struct view *v, uint64_t *need)
{
    enum { BUCKETS = 1 << TOP_BITS };
    uint64_t n[BUCKETS] = {0};

    for (uint64_t i = 0; i < v->n;) { /* 32-bit counters would overflow: in parts */
        uint32_t part[N_TABLES][BUCKETS] = {{0}};
        uint64_t end = v->n - i < UINT32_MAX ? v->n : i + UINT32_MAX;

        for (; i + N_TABLES <= end; i += N_TABLES)
            for (uint32_t t = 0; t < N_TABLES; t++)
                part[t][view_at(v, i + t) >> TOP_SHIFT]++;
        for (; i < end; i++)
            part[0][view_at(v, i) >> TOP_SHIFT]++;
        for (uint32_t b = 0; b < BUCKETS; b++)
            for (uint32_t t = 0; t < N_TABLES; t++)
                n[b] += part[t][b];
    }
    return topk_bucket_of(n, BUCKETS, need);
}

/* Among the numbers that begin with `prefix` (their bits above shift + LOW_BITS), the
 * digit at shift. */
static uint32_t
low_digit(const struct view *v, uint32_t prefix, uint32_t shift, uint64_t *need)
{
    enum { BUCKETS = 1 << LOW_BITS };
    uint64_t n[BUCKETS] = {0};

    for (uint64_t i = 0; i < v->n; i++) {
        uint32_t a = view_at(v, i);

        if (a >> (shift + LOW_BITS) == prefix)
            n[a >> shift & (BUCKETS - 1)]++;
    }
    return topk_bucket_of(n, BUCKETS, need);
}

/* The k-th largest magnitude; *ret_ties: how many equal to it are among the k. */
static uint32_t view_find_kth(const struct view *v, uint64_t k, uint64_t *ret_ties)
{
    uint64_t need = k;
    uint32_t a = top_digit(v, &need);

    a = a << LOW_BITS | low_digit(v, a, LOW_BITS, &need);
    a = a << LOW_BITS | low_digit(v, a, 0, &need);
    *ret_ties = need;
    return a;
}

/* --- the guess --- */

static uint64_t root_rounded_up(uint64_t n) /* n is small */
{
    uint64_t r = 0;

    while (r * r < n)
        r++;
    return r;
}

/* A stride without the small factors that a tensor's rows may have. */
static uint64_t odd_stride(uint64_t s)
{
    while (s % 2 == 0 || s % 3 == 0 || s % 5 == 0 || s % 7 == 0)
        s++;
    return s;
}

/* A magnitude that more than k elements are expected to reach, and fewer than ROOM k;
 * 0: no guess. */
static uint32_t threshold_guess(const float *w, uint64_t count, uint64_t k)
{
    uint64_t hits = k / MIN_STRIDE < SAMPLE_HITS ? k / MIN_STRIDE : SAMPLE_HITS;
    struct view sample = {.w = w};
    uint64_t expected, ties;

    if (!is_sparse(count, k))
        return 0;
    sample.stride = odd_stride(k / hits);
    sample.n = count / sample.stride;
    expected = k / sample.stride + 1;
    /* four standard deviations of what chance may put into the sample */
    return view_find_kth(&sample, expected + 4 * root_rounded_up(expected), &ties);
}

/* Builds the message from the candidates, which are already in its memory. False: the
 * guessed limit was wrong. *ret_limit: the k-th magnitude. */
static bool take_guessed(const struct codec_kernels *kernels,
                         uint32_t *index,
                         float *w,
                         uint64_t count,
                         uint64_t k,
                         uint32_t *ret_limit)
{
    uint32_t guessed = threshold_guess(w, count, k), limit;
    float *value = (float *)(void *)(index + ROOM * k);
    uint64_t n, ties, kept = 0;

    if (guessed == 0)
        return false;
    n = kernels->collect(index, value, ROOM * k, w, count, guessed);
    if (n < k || n > ROOM * k)
        return false;
    limit = view_find_kth(&(struct view){.w = value, .n = n, .stride = 1}, k, &ties);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t a = float_magnitude(value[i]);

        if (a < limit || (a == limit && ties == 0))
            continue;
        ties -= a == limit;
        w[index[i]] = 0;
        index[kept] = index[i];
        value[kept++] = value[i];
    }
    memmove(index + k, value, k * sizeof(*value));
    *ret_limit = limit;
    return true;
}

/* --- messages --- */

static void
pair_put(uint8_t *index, uint8_t *value, uint32_t width, uint64_t i, float v)
{
    uint32_t i32 = (uint32_t)i;

    if (width == 4)
        memcpy(index, &i32, sizeof(i32));
    else
        memcpy(index, &i, sizeof(i));
    memcpy(value, &v, sizeof(v));
}

/* From the whole tensor. */
static uint32_t take_all(uint8_t *wire, float *w, uint64_t count, uint64_t k)
{
    uint32_t width = topk_index_bytes(count), limit;
    uint8_t *value = wire + k * width;
    uint64_t ties;

    limit = view_find_kth(&(struct view){.w = w, .n = count, .stride = 1}, k, &ties);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t a = float_magnitude(w[i]);

        if (a < limit || (a == limit && ties == 0))
            continue;
        ties -= a == limit;
        pair_put(wire, value, width, i, w[i]);
        wire += width;
        value += sizeof(float);
        w[i] = 0;
    }
    return limit;
}

void topk_encode(const struct codec_kernels *kernels,
                 uint8_t *wire,
                 float *w,
                 uint64_t count,
                 uint64_t k)
{
    uint32_t limit;

    if (k == 0)
        return;
    if (!take_guessed(kernels, (uint32_t *)(void *)wire, w, count, k, &limit))
        limit = take_all(wire, w, count, k);
    if (limit >= INF_BITS) /* there are more of them than could be sent */
        for (uint64_t i = 0; i < count; i++)
            w[i] = float_magnitude(w[i]) >= INF_BITS ? 0 : w[i];
}

void topk_zeros(uint8_t *wire, uint64_t count, uint64_t k)
{
    uint32_t width = topk_index_bytes(count);

    for (uint64_t i = 0; i < k; i++)
        pair_put(wire + i * width, wire + k * width + i * sizeof(float), width, i, 0);
}

static uint64_t index_at(const uint8_t *wire, uint32_t width, uint64_t i)
{
    uint32_t i32;
    uint64_t i64;

    if (width == 4) {
        memcpy(&i32, wire + i * width, sizeof(i32));
        return i32;
    }
    memcpy(&i64, wire + i * width, sizeof(i64));
    return i64;
}

static int pairs_add(float *acc,
                     const uint8_t *wire,
                     uint64_t count,
                     uint64_t k,
                     uint32_t member,
                     struct err *err)
{
    uint32_t width = topk_index_bytes(count);
    const uint8_t *value = wire + k * width;
    uint64_t next = 0;
    float v;

    for (uint64_t i = 0; i < k; i++) {
        uint64_t at = index_at(wire, width, i);

        if (at < next)
            return err_set(err, -EBADMSG,
                           "top-k message of member %u: index %" PRIu64
                           " at place %" PRIu64 " is not above the one before",
                           member, at, i);
        if (at >= count)
            return err_set(err, -EBADMSG,
                           "top-k message of member %u: index %" PRIu64
                           " at place %" PRIu64 " of a tensor of %" PRIu64 " elements",
                           member, at, i, count);
        memcpy(&v, value + i * sizeof(v), sizeof(v));
        acc[at] += v;
        next = at + 1;
    }
    return 0;
}

int topk_sum(float *acc,
             const uint8_t *wire,
             uint64_t n_bytes,
             uint32_t n,
             uint64_t count,
             uint64_t k,
             struct err *err)
{
    uint64_t each = topk_wire_bytes(count, k);
    int rc = 0;

    if (n_bytes / n != each || n_bytes % n != 0)
        return err_set(err, -EBADMSG,
                       "top-k messages: %" PRIu64
                       " bytes of %u members, must be %" PRIu64 " of each",
                       n_bytes, n, each);
    if (count > 0)
        memset(acc, 0, count * sizeof(*acc));
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = pairs_add(acc, wire + i * each, count, k, i, err);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Two ways to write data that another CPU will read.
 *
 * Through the caches: a line that another CPU read last must first be taken back from
 * it. Where two CPUs share a cache that is cheap; where they do not (two core
 * complexes, two sockets) it is the most expensive step of an allreduce, three times
 * the cost of reading the line there. Past the caches (non-temporal stores): whole
 * lines are written to memory, and the reader fetches them from there; where a cache is
 * shared that is twice as slow.
 *
 * It cannot be known in advance: a virtual machine changes from the one to the other
 * while it runs. So of every PUT_PERIOD chunks one is written each way, the same chunk
 * on all ranks, because the writing of one decides the reading of another; each rank
 * times its own work on them, without its waits, and votes. A majority of a few votes
 * decides, so that one preempted trial does not. Each rank decides for itself: what is
 * written, and when, is the same either way.
 *
 * Non-temporal stores are not ordered by a release store: put_flush() must come before
 * it. Called by shm_coll.c, shm_move.c (through shm.c's publishing). */
#include "runtime/backend/cpu/shm_put.h"

#include <string.h>

#include "runtime/base/clock.h"

#define LINE          64u
#define STREAM_MIN    512u /* shorter runs are mostly incomplete lines */
#define EAGER         16u  /* the first chunks are all trials */
#define PUT_TRIAL_MAX 2u   /* a pair: plain, then past the caches */

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

#include <emmintrin.h>

/* dst and n are multiples of LINE. */
static void stream_lines(uint8_t *dst, const uint8_t *src, size_t n)
{
    for (; n > 0; n -= LINE, dst += LINE, src += LINE) {
        const __m128i *s = (const void *)src;
        __m128i *d = (void *)dst;
        __m128i v0 = _mm_loadu_si128(s), v1 = _mm_loadu_si128(s + 1),
                v2 = _mm_loadu_si128(s + 2), v3 = _mm_loadu_si128(s + 3);
        _mm_stream_si128(d, v0);
        _mm_stream_si128(d + 1, v1);
        _mm_stream_si128(d + 2, v2);
        _mm_stream_si128(d + 3, v3);
    }
}

static void stream_fence(void)
{
    _mm_sfence();
}

#else /* no such stores, or a sanitizer that must see them */

static void stream_lines(uint8_t *dst, const uint8_t *src, size_t n)
{
    memcpy(dst, src, n);
}

static void stream_fence(void) {}

#endif

void put_copy(struct put *p, uint8_t *dst, const uint8_t *src, size_t n)
{
    if (!p->streams || n < STREAM_MIN) {
        memcpy(dst, src, n);
        return;
    }
    size_t head = -(uintptr_t)dst & (LINE - 1),
           whole = (n - head) & ~(size_t)(LINE - 1);
    memcpy(dst, src, head);
    stream_lines(dst + head, src + head, whole);
    memcpy(dst + head + whole, src + head + whole, n - head - whole);
    p->is_pending = true;
}

void put_flush(struct put *p)
{
    if (p->is_pending)
        stream_fence();
    p->is_pending = false;
}

bool put_choice_next(struct put_choice *c, bool *ret_streams)
{
    uint32_t n = c->n++, at = n % PUT_PERIOD;
    bool is_trial = n < EAGER || at < PUT_TRIAL_MAX;
    *ret_streams = is_trial ? (at & 1) != 0 : c->score > 0;
    return is_trial;
}

void put_choice_vote(struct put_choice *c, bool streams, double ns_a_byte)
{
    if (!streams) {
        c->plain = ns_a_byte;
        return;
    }
    c->score += ns_a_byte < c->plain ? 1 : -1;
    if (c->score > PUT_SCORE_MAX)
        c->score = PUT_SCORE_MAX;
    if (c->score < -PUT_SCORE_MAX)
        c->score = -PUT_SCORE_MAX;
}

struct put_trial put_begin(struct put *p, enum put_class c, uint64_t n_bytes)
{
    struct put_trial t = {.n_bytes = n_bytes};
    if (n_bytes >= PUT_TRIED_MIN && put_choice_next(&p->choice[c], &t.streams))
        t.choice = &p->choice[c];
    return t;
}

void put_work(struct put *p, struct put_trial *t)
{
    p->streams = t->streams;
    if (t->choice)
        t->since_ns = clock_now_ns();
}

void put_rest(struct put_trial *t)
{
    if (t->choice)
        t->spent_ns += clock_now_ns() - t->since_ns;
}

void put_end(struct put_trial *t)
{
    if (t->choice)
        put_choice_vote(t->choice, t->streams,
                        (double)t->spent_ns / (double)t->n_bytes);
}

struct put_trial put_found(const struct put *p, enum put_class c, uint64_t n_bytes)
{
    return (struct put_trial){.streams =
                                  n_bytes >= PUT_TRIED_MIN && p->choice[c].score > 0};
}

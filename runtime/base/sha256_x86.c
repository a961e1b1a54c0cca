/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by the SHA extensions. module.mk compiles this file with -msha -msse4.1; on
 * other machines it is empty. Only sha256.c may use it, after checking the CPU.
 *
 * The instructions take the state as two vectors, ABEF and CDGH, and do two rounds each.
 * w[j % 4] holds words 4j to 4j + 3 of the message schedule. */
#include "runtime/base/sha256_blocks.h"

#if defined(__SHA__) && defined(__SSE4_1__)

#include <immintrin.h>

static __m128i words_load(const uint8_t *p)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);

    return _mm_shuffle_epi8(_mm_loadu_si128((const void *)p), swap);
}

/* The four words after a, b, c, d. */
static __m128i words_next(__m128i a, __m128i b, __m128i c, __m128i d)
{
    __m128i t = _mm_add_epi32(_mm_sha256msg1_epu32(a, b), _mm_alignr_epi8(d, c, 4));

    return _mm_sha256msg2_epu32(t, d);
}

static void sha256_blocks_sha(uint32_t h[8], const uint8_t *p, size_t n_blocks)
{
    __m128i t = _mm_shuffle_epi32(_mm_loadu_si128((const void *)h), 0xb1);
    __m128i u = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(h + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(t, u, 8), cdgh = _mm_blend_epi16(u, t, 0xf0);

    for (; n_blocks > 0; n_blocks--, p += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];

        for (unsigned j = 0; j < 4; j++)
            w[j] = words_load(p + 16 * (size_t)j);
#pragma GCC unroll 16
        for (unsigned j = 0; j < 16; j++) {
            __m128i k = _mm_loadu_si128((const void *)(sha256_constants + 4 * j));
            __m128i wk = _mm_add_epi32(w[j % 4], k);

            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
            if (j < 12)
                w[j % 4] = words_next(w[j % 4], w[(j + 1) % 4], w[(j + 2) % 4],
                                      w[(j + 3) % 4]);
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    t = _mm_shuffle_epi32(abef, 0x1b);
    u = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((void *)h, _mm_blend_epi16(t, u, 0xf0));
    _mm_storeu_si128((void *)(h + 4), _mm_alignr_epi8(u, t, 8));
}

const sha256_blocks_fn sha256_blocks_x86 = sha256_blocks_sha;

#else

const sha256_blocks_fn sha256_blocks_x86 = NULL;

#endif

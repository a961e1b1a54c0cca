/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 for Secret data (encoding) and kubeconfig's *-data fields (decoding). Decoding
 * accepts padding only at the end and does not check the unused bits of the last
 * group. */
#include "operator/doc/base64.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(const void *p, size_t n, char *ret)
{
    const uint8_t *in = p;

    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)in[i] << 16;

        if (i + 1 < n)
            v |= (uint32_t)in[i + 1] << 8;
        if (i + 2 < n)
            v |= in[i + 2];
        *ret++ = digits[v >> 18 & 63];
        *ret++ = digits[v >> 12 & 63];
        *ret++ = '=';
        *ret++ = '=';
        if (i + 1 < n)
            ret[-2] = digits[v >> 6 & 63];
        if (i + 2 < n)
            ret[-1] = digits[v & 63];
    }
    *ret = '\0';
}

int base64_decode(const char *s, void *ret, size_t *ret_n)
{
    uint8_t *out = ret;
    uint32_t acc = 0;
    unsigned n_chars = 0, n_pad = 0;

    for (; *s; s++) {
        const char *d;

        if (strchr(" \t\r\n", *s))
            continue;
        if (*s == '=') {
            n_pad++;
            continue;
        }
        d = strchr(digits, *s);
        if (!d || n_pad)
            return -EINVAL;
        acc = acc << 6 | (uint32_t)(d - digits);
        if (++n_chars % 4 == 0) {
            *out++ = (uint8_t)(acc >> 16);
            *out++ = (uint8_t)(acc >> 8);
            *out++ = (uint8_t)acc;
        }
    }
    if ((n_chars + n_pad) % 4 != 0 || n_pad > 2)
        return -EINVAL;
    if (n_chars % 4 == 3) {
        *out++ = (uint8_t)(acc >> 10);
        *out++ = (uint8_t)(acc >> 2);
    } else if (n_chars % 4 == 2) {
        *out++ = (uint8_t)(acc >> 4);
    }
    *out = '\0';
    *ret_n = (size_t)(out - (uint8_t *)ret);
    return 0;
}

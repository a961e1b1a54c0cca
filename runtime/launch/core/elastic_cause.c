/* SPDX-License-Identifier: Apache-2.0 */
/* Called by elastic_lead.c. */
#include "runtime/launch/core/elastic_cause.h"

#include <string.h>

#define FNV_BASIS 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

static uint64_t hash_byte(uint64_t h, uint8_t b)
{
    return (h ^ b) * FNV_PRIME;
}

static uint64_t hash_text(uint64_t h, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] < '0' || p[i] > '9')
            h = hash_byte(h, (uint8_t)p[i]);
    return hash_byte(h, 0);
}

/* The last line that is not empty. */
static const char *last_line(const char *text, size_t *ret_n)
{
    size_t end = strlen(text), begin;

    while (end > 0 && text[end - 1] == '\n')
        end--;
    for (begin = end; begin > 0 && text[begin - 1] != '\n';)
        begin--;
    *ret_n = end - begin;
    return text + begin;
}

uint64_t elastic_cause(const struct report *r)
{
    uint64_t h = FNV_BASIS;
    size_t n;
    const char *line = last_line(r->tail, &n);

    if (r->blames >= 0 || r->f.exit_code == FAILURE_OTHER_RANK)
        return 0;
    h = hash_byte(h, (uint8_t)r->f.signal);
    h = hash_byte(h, (uint8_t)r->f.exit_code);
    h = hash_text(h, r->f.why, strlen(r->f.why));
    if (r->f.signal == 0) /* what a killed process wrote last is not why */
        h = hash_text(h, line, n);
    return h ? h : 1;
}

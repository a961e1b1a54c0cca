/* SPDX-License-Identifier: Apache-2.0 */
/* Called by core/hvd: which tasks of a TensorFlow job have succeeded. Pure. */
#include "operator/core/index_set.h"

void index_set_add(struct index_set *s, uint32_t index)
{
    s->bits[index / 64] |= UINT64_C(1) << (index % 64);
}

bool index_set_has(const struct index_set *s, uint32_t index)
{
    return index < INDEX_SET_MAX && (s->bits[index / 64] >> (index % 64) & 1) != 0;
}

/* The digits at *p, which moves past them. False: there are none, or too many. */
static bool index_read(const char **p, uint32_t *ret)
{
    uint32_t v = 0;
    const char *at = *p;

    for (; *at >= '0' && *at <= '9'; at++) {
        v = v * 10 + (uint32_t)(*at - '0');
        if (v >= INDEX_SET_MAX)
            return false;
    }
    if (at == *p)
        return false;
    *p = at;
    *ret = v;
    return true;
}

void index_set_read(const char *text, struct index_set *ret)
{
    uint32_t first, last, next = 0; /* next: the least that may follow */

    *ret = (struct index_set){0};
    for (const char *p = text; p && index_read(&p, &first); p++) {
        if (first < next)
            return;
        last = first;
        if (*p == '-' && (p++, !index_read(&p, &last)))
            return;
        for (uint32_t i = first; i <= last; i++)
            index_set_add(ret, i);
        if (last >= next)
            next = last + 1;
        if (*p != ',')
            return;
    }
}

void index_set_write(const struct index_set *s, struct strbuf *out)
{
    const char *comma = "";

    for (uint32_t i = 0; i < INDEX_SET_MAX; i++) {
        uint32_t first = i;

        if (!index_set_has(s, i))
            continue;
        while (index_set_has(s, i + 1))
            i++;
        strbuf_printf(out, i > first ? "%s%u-%u" : "%s%u", comma, first, i);
        comma = ",";
    }
}

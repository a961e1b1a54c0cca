/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of points at equal distance. Times without a report are points without values, so
 * that one time, that of the newest, dates them all. Called by page_table.c and
 * page_detail.c. */
#include "operator/page/core/page_history.h"

#include <math.h>

#include "operator/core/timestamp.h"

static float rate_of(double v)
{
    float f = (float)v;

    return v >= 0 && isfinite(f) ? f : NAN;
}

static void history_push(struct page_history *h, const float v[PAGE_RATES])
{
    uint32_t at = (h->first + h->n) % PAGE_HISTORY_N;

    for (int i = 0; i < PAGE_RATES; i++)
        h->v[at][i] = v[i];
    if (h->n < PAGE_HISTORY_N)
        h->n++;
    else
        h->first = (h->first + 1) % PAGE_HISTORY_N;
}

bool page_history_add(struct page_history *h,
                      const struct live_report *r,
                      uint64_t now_wall_s)
{
    static const float none[PAGE_RATES] = {NAN, NAN, NAN};
    const float v[PAGE_RATES] = {rate_of(r->rates.steps_per_s),
                                 rate_of(r->progress.samples_per_s),
                                 rate_of(r->rates.blocked_share)};
    uint64_t now = now_wall_s / PAGE_HISTORY_S, gap = 0;

    if (h->n > 0 && now <= h->last && h->last - now <= PAGE_HISTORY_N)
        return false;
    if (h->n > 0 && now <= h->last)
        h->n = h->first = 0;
    if (h->n > 0)
        gap = now - h->last - 1;
    for (uint64_t i = 0; i < gap && i < PAGE_HISTORY_N; i++)
        history_push(h, none);
    history_push(h, v);
    h->last = now;
    return true;
}

static void history_write_rate(const struct page_history *h,
                               const char *name,
                               int rate,
                               struct strbuf *out)
{
    strbuf_printf(out, ",\"%s\":[", name);
    for (uint32_t i = 0; i < h->n; i++) {
        float v = h->v[(h->first + i) % PAGE_HISTORY_N][rate];

        if (i > 0)
            strbuf_putc(out, ',');
        if (isnan(v))
            strbuf_puts(out, "null");
        else
            strbuf_printf(out, "%.4g", (double)v);
    }
    strbuf_putc(out, ']');
}

void page_history_write(const struct page_history *h, struct strbuf *out)
{
    static const char *const names[PAGE_RATES] = {"stepsPerSecond", "samplesPerSecond",
                                                  "blockedShare"};
    char end[TIMESTAMP_SIZE];

    strbuf_printf(out, "{\"every\":%u,\"end\":\"%s\"", PAGE_HISTORY_S,
                  timestamp_format_s(h->last * PAGE_HISTORY_S, end));
    for (int i = 0; i < PAGE_RATES; i++)
        history_write_rate(h, names[i], i, out);
    strbuf_putc(out, '}');
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A page of counters, which a training process maps and can write anything to. The
 * Prometheus text of one that is accepted has lines of the known form only, each metric
 * once; its record in the live report has possible numbers and printable names. */
#include <ctype.h>
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "runtime/live/live_page.h"
#include "tests/fuzz/fuzz.h"

/* hvd_NAME{rank="N"[,kind="KIND"]} NUMBER */
static void line_check(const char *line, const struct stats_page *page)
{
    char labels[64];
    size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz_");

    if (strncmp(line, "# HELP hvd_", 11) == 0 || strncmp(line, "# TYPE hvd_", 11) == 0)
        return;
    MUST(strncmp(line, "hvd_", 4) == 0);
    (void)snprintf(labels, sizeof(labels), "{rank=\"%u\"", page->rank);
    MUST(strncmp(line + n, labels, strlen(labels)) == 0);
    line = strchr(line + n, ' ');
    MUST(line && line[-1] == '}' && isdigit((unsigned char)line[1]));
    MUST(line[1 + strspn(line + 1, "0123456789.")] == '\0');
}

static bool is_control(unsigned char c)
{
    return c < ' ' || c == 0x7f;
}

/* What the live report shows of it. */
static void record_check(const struct stats_page *page)
{
    struct live_rank r;
    const struct live_progress *g = &r.progress;

    live_page_fill(page, UINT64_MAX, &r);
    MUST(g->step >= -1 && g->total_steps >= -1 && g->epoch >= -1);
    MUST(g->total_epochs >= -1 && g->samples >= -1 && g->commit_step >= -1);
    MUST(g->n_metrics <= STATS_METRICS_MAX);
    for (size_t i = 0; i < g->n_metrics; i++) {
        const unsigned char *s = (const unsigned char *)g->metrics[i].name;
        size_t k;

        MUST(*s && memchr(s, 0, LIVE_NAME_MAX));
        for (; *s; s += k) {
            k = utf8_length(s);
            MUST(k > 0 && !is_control(*s));
        }
    }
}

FUZZ_TARGET(stats_page)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct stats_page page;
    const struct stats_page *const pages[] = {&page};
    struct err err = ERR_INIT;
    char *rest, *line;
    size_t n_lines = 0;

    memset(&page, 0, sizeof(page)); /* as metrics.c: what a short read leaves */
    memcpy(&page, data, n < sizeof(page) ? n : sizeof(page));
    int rc = stats_page_check(&page, n, &err);
    if (rc) {
        MUST(rc == -EBADMSG && err.code == rc && err.text[0]);
        return 0;
    }
    MUST(n >= sizeof(page));
    strbuf_init(&b, 1u << 20);
    stats_page_text(pages, 1, &b);
    MUST(strbuf_status(&b) == 0 && strlen(strbuf_str(&b)) == b.n);
    MUST(b.p[b.n - 1] == '\n');
    b.p[b.n - 1] = '\0';
    for (rest = b.p; (line = strsep(&rest, "\n")); n_lines++)
        line_check(line, &page);
    MUST(n_lines < 3u * STATS_N_WORDS + 6);
    record_check(&page);
    return 0;
}

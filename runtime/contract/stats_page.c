/* SPDX-License-Identifier: Apache-2.0 */
/* The table of counters as Prometheus text and Markdown. Called by hvd_stats_text in a
 * training process and by the launchers, which show all ranks that they have started.
 */
#include "runtime/contract/stats_page.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "runtime/base/mem.h"

enum unit { UNIT_ONE, UNIT_NS, UNIT_NOW, UNIT_NOW_NS };

static const struct metric {
    size_t at; /* first word */
    size_t n;  /* words: STATS_KINDS or 1 */
    enum unit unit;
    const char *name, *help;
} metrics[] = {
#define BY_KIND(name, metric, help) {STATS_##name, STATS_KINDS, UNIT_ONE, metric, help},
    STATS_BY_KIND(BY_KIND)
#undef BY_KIND
#define SINGLE(name, unit, metric, help) {STATS_##name, 1, UNIT_##unit, metric, help},
        STATS_SINGLE(SINGLE)
#undef SINGLE
};

/* As enum collective counts (core/types.h); hvd_stats_test compares. */
static const char *const kinds[] = {
    "allreduce",          "allgather", "broadcast", "barrier", "alltoall",
    "reducescatter",      "reduce",    "gather",    "join",    "process_set_add",
    "process_set_remove", "sendrecv",  "register",  "probe"};

const char *stats_kind_name(size_t kind)
{
    return kind < ARRAY_LEN(kinds) ? kinds[kind] : NULL;
}

int stats_page_check(const void *p, size_t n, struct err *err)
{
    const struct stats_page *page = p;

    if (n < sizeof(*page))
        return err_set(err, -EBADMSG, "statistics: %zu bytes, a page has %zu", n,
                       sizeof(*page));
    if (page->magic != STATS_MAGIC)
        return err_set(err, -EBADMSG, "statistics: not a page of counters");
    if (page->version != STATS_VERSION || page->n_words < STATS_N_WORDS)
        return err_set(err, -EBADMSG,
                       "statistics: version %u with %u counters, this is %u with %d",
                       page->version, page->n_words, STATS_VERSION, STATS_N_WORDS);
    return 0;
}

/* --- progress --- */

_Static_assert(sizeof(struct stats_progress) % 8 == 0, "whole words");

void stats_progress_init(struct stats_progress *p)
{
    memset(p, 0, sizeof(*p));
    p->step = p->total_steps = p->epoch = p->total_epochs = -1;
    p->samples = p->commit_step = -1;
}

void stats_page_put_progress(struct stats_page *page, const struct stats_progress *p)
{
    uint64_t turn = atomic_load_explicit(&page->progress_turn, memory_order_relaxed);
    const size_t n =
        offsetof(struct stats_progress, metrics) + p->n_metrics * sizeof(p->metrics[0]);

    turn |= 1;
    /* release: a reader that sees one of the words sees the odd turn before it, and one
     * that sees the even turn sees all words. */
    atomic_store_explicit(&page->progress_turn, turn, memory_order_relaxed);
    for (size_t i = 0; i < n / 8; i++) {
        uint64_t word;

        memcpy(&word, (const char *)p + 8 * i, 8);
        atomic_store_explicit(&page->progress[i], word, memory_order_release);
    }
    atomic_store_explicit(&page->progress_turn, turn + 1, memory_order_release);
}

void stats_page_get_progress(const struct stats_page *page, struct stats_progress *ret)
{
    uint64_t n;

    for (size_t i = 0; i < STATS_PROGRESS_WORDS; i++) {
        uint64_t word = atomic_load_explicit(&page->progress[i], memory_order_relaxed);

        memcpy((char *)ret + 8 * i, &word, 8);
    }
    n = ret->n_metrics;
    ret->n_metrics = 0;
    if (n > STATS_METRICS_MAX || page->progress_turn % 2 != 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (ret->metrics[i].name[0]
            && memchr(ret->metrics[i].name, 0, sizeof(ret->metrics[i].name)))
            ret->metrics[ret->n_metrics++] = ret->metrics[i];
}

/* --- text --- */

static void put_value(enum unit unit, uint64_t v, struct strbuf *out)
{
    switch (unit) {
    case UNIT_ONE:
    case UNIT_NOW:
        strbuf_printf(out, " %" PRIu64 "\n", v);
        break;
    case UNIT_NS:
    case UNIT_NOW_NS:
        strbuf_printf(out, " %" PRIu64 ".%09" PRIu64 "\n", v / 1000000000u,
                      v % 1000000000u);
        break;
    }
}

static void
put_metric(const struct metric *m, const struct stats_page *page, struct strbuf *out)
{
    if (m->n == 1) {
        strbuf_printf(out, "%s{rank=\"%u\"}", m->name, page->rank);
        put_value(m->unit, stats_word(page, m->at), out);
        return;
    }
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        if (stats_word(page, STATS_TENSORS + k) == 0)
            continue;
        strbuf_printf(out, "%s{rank=\"%u\",kind=\"%s\"}", m->name, page->rank,
                      kinds[k]);
        put_value(m->unit, stats_word(page, m->at + k), out);
    }
}

static void
put_head(const char *name, const char *type, const char *help, struct strbuf *out)
{
    strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void stats_page_text(const struct stats_page *const *pages,
                     size_t n,
                     struct strbuf *out)
{
    put_head("hvd_world_size", "gauge", "ranks of the world", out);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(out, "hvd_world_size{rank=\"%u\"} %u\n", pages[i]->rank,
                      pages[i]->size);
    put_head("hvd_world_generation", "gauge", "generation of the world", out);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(out, "hvd_world_generation{rank=\"%u\"} %u\n", pages[i]->rank,
                      pages[i]->generation);
    for (size_t m = 0; m < ARRAY_LEN(metrics); m++) {
        bool is_gauge = metrics[m].unit == UNIT_NOW || metrics[m].unit == UNIT_NOW_NS;

        put_head(metrics[m].name, is_gauge ? "gauge" : "counter", metrics[m].help, out);
        for (size_t i = 0; i < n; i++)
            put_metric(&metrics[m], pages[i], out);
    }
}

void stats_page_markdown(struct strbuf *out)
{
    strbuf_puts(out, "| metric | meaning |\n|---|---|\n"
                     "| `hvd_world_size` | ranks of the world |\n"
                     "| `hvd_world_generation` | generation of the world |\n");
    for (size_t m = 0; m < ARRAY_LEN(metrics); m++)
        strbuf_printf(out, "| `%s` | %s |\n", metrics[m].name, metrics[m].help);
}

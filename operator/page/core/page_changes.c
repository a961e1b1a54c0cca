/* SPDX-License-Identifier: Apache-2.0 */
/* What a viewer sees of the table: all rows in scope, or those that changed since a
 * revision. The latter are at the end of the list of changes, and deletions at the end of
 * their ring, so a viewer that asks every second costs as much as the changes of a second.
 * A row belongs to the namespace and the kind in its key (page_table.c, invariant 3).
 * Called by page.c. */
#include "operator/page/core/page_table.h"

#include <string.h>

#include "operator/core/store/store.h"
#include "operator/page/core/page_entry.h"
#include "runtime/base/utf8.h"

#define MPI_PREFIX "mpijob:" /* of keys: store.h */

static bool scope_has(const struct page_scope *s, const char *key)
{
    bool is_mpi = store_key_kind(key) == KUBE_MPIJOB;
    size_t n;

    if (is_mpi ? !s->has_mpi : !s->has_hvd)
        return false;
    if (!s->ns)
        return true;
    key += is_mpi ? strlen(MPI_PREFIX) : 0;
    n = strlen(s->ns);
    return strncmp(key, s->ns, n) == 0 && key[n] == '/';
}

void page_table_all(const struct page_table *t,
                    const struct page_scope *s,
                    struct strbuf *out)
{
    size_t n = 0;

    strbuf_puts(out, "{\"jobs\":[");
    for (size_t i = 0; i < t->rows.n; i++) {
        const struct page_entry *e = t->rows.v[i];

        if (!scope_has(s, e->key))
            continue;
        strbuf_puts(out, n++ ? "," : "");
        strbuf_add(out, e->row, e->row_n);
    }
    strbuf_printf(out, "],\"kinds\":[%s%s%s]}", s->has_hvd ? "\"horovodjobs\"" : "",
                  s->has_hvd && s->has_mpi ? "," : "", s->has_mpi ? "\"mpijobs\"" : "");
}

static size_t table_write_changed(const struct page_table *t,
                                  const struct page_scope *s,
                                  uint64_t revision,
                                  struct strbuf *out)
{
    const struct page_link *l = t->changed.older;
    size_t n = 0;

    while (l->of && l->of->revision > revision)
        l = l->older;
    for (l = l->newer; l->of; l = l->newer) {
        if (!scope_has(s, l->of->key))
            continue;
        strbuf_puts(out, n++ ? "," : "{\"jobs\":[");
        strbuf_add(out, l->of->row, l->of->row_n);
    }
    return n;
}

/* Without those that are back with the same uid: what could not be shown for a while. */
static size_t table_write_gone(const struct page_table *t,
                               const struct page_scope *s,
                               uint64_t revision,
                               const char *head,
                               struct strbuf *out)
{
    uint64_t i = t->n_gone, end = t->n_gone > PAGE_GONE_N ? i - PAGE_GONE_N : 0;
    size_t n = 0;

    while (i > end && t->gone[(i - 1) % PAGE_GONE_N].revision > revision)
        i--;
    for (; i < t->n_gone; i++) {
        const struct page_gone *g = &t->gone[i % PAGE_GONE_N];
        const struct page_entry *e = keyed_find(&t->rows, g->key);

        if (!scope_has(s, g->key) || (e && strcmp(e->uid, g->uid) == 0))
            continue;
        strbuf_puts(out, n++ ? ",\"" : head);
        utf8_put_json(g->uid, out);
        strbuf_putc(out, '"');
    }
    return n;
}

bool page_table_since(const struct page_table *t,
                      const struct page_scope *s,
                      uint64_t revision,
                      bool *ret_is_lost,
                      struct strbuf *out)
{
    size_t n, n_gone;

    *ret_is_lost = revision < t->forgotten || revision > t->revision;
    if (*ret_is_lost)
        return false;
    n = table_write_changed(t, s, revision, out);
    n_gone = table_write_gone(t, s, revision,
                              n ? "],\"gone\":[\"" : "{\"jobs\":[],\"gone\":[\"", out);
    if (n + n_gone == 0)
        return false;
    strbuf_puts(out, n_gone ? "]}" : "],\"gone\":[]}");
    return true;
}

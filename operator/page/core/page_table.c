/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all rows.
 *
 *   put(key, object) --> entry: uid, row (JSON text), revision --> all(), since()
 *                                  |
 *   note(key, report) ---------> history ----------------------> detail (page_detail.c)
 *
 * Each change of a row raises the table's revision, and the entry moves to the end of a
 * list (page_changes.c reads it from there). A deletion moves key and uid of the entry into a
 * ring and needs no memory.
 *
 * Invariants
 *  1. The list `changed` has all entries, in the order of their revisions.
 *  2. No two changes have the same revision.
 *  3. A row belongs to the namespace and the kind in its key: scopes are decided by keys
 *     alone (page_view_make compares the object with its key).
 * Called by page.c. */
#include "operator/page/core/page_table.h"

#include <errno.h>
#include <string.h>

#include "operator/page/core/page_entry.h"
#include "operator/page/core/page_row.h"
#include "runtime/base/mem.h"

static void page_link_init(struct page_link *l, struct page_entry *of)
{
    *l = (struct page_link){.older = l, .newer = l, .of = of};
}

static void page_link_drop(struct page_link *l)
{
    l->older->newer = l->newer;
    l->newer->older = l->older;
    l->older = l->newer = l;
}

/* Moves it to the end, as the newest. */
static void page_link_move(struct page_link *head, struct page_link *l)
{
    page_link_drop(l);
    l->older = head->older;
    l->newer = head;
    head->older->newer = l;
    head->older = l;
}

struct page_table *page_table_new(void)
{
    struct page_table *t = mem_zalloc(sizeof(*t));

    if (t) {
        page_link_init(&t->changed, NULL);
        page_link_init(&t->noted, NULL);
    }
    return t;
}

/* --- entries --------------------------------------------------------------------- */

static void entry_free(struct page_entry *e)
{
    if (!e)
        return;
    mem_free(e->key);
    mem_free(e->uid);
    mem_free(e->row);
    mem_free(e->history);
    mem_free(e);
}

static void entry_freep(struct page_entry **e)
{
    entry_free(*e);
}

static struct page_entry *entry_new(const char *key, const char *uid)
{
    struct page_entry *e = mem_zalloc(sizeof(*e));

    if (!e)
        return NULL;
    page_link_init(&e->changed, e);
    page_link_init(&e->noted, e);
    e->key = mem_strdup(key);
    e->uid = mem_strdup(uid);
    if (e->key && e->uid)
        return e;
    entry_free(e);
    return NULL;
}

static void table_drop_history(struct page_table *t, struct page_entry *e)
{
    if (!e->history)
        return;
    page_link_drop(&e->noted);
    mem_free(TAKE(e->history));
    t->n_histories--;
}

/* The entry is not in t->rows any more. */
static void table_bury(struct page_table *t, struct page_entry *e)
{
    struct page_gone *g = &t->gone[t->n_gone++ % PAGE_GONE_N];

    if (g->key)
        t->forgotten = g->revision;
    mem_free(g->key);
    mem_free(g->uid);
    g->revision = ++t->revision;
    g->key = TAKE(e->key);
    g->uid = TAKE(e->uid);
    table_drop_history(t, e);
    page_link_drop(&e->changed);
    entry_free(e);
}

static void table_drop(struct page_table *t, struct page_entry *e)
{
    if (!e)
        return;
    keyed_remove(&t->rows, e);
    table_bury(t, e);
}

void page_table_free(struct page_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->rows.n; i++)
        entry_free(t->rows.v[i]);
    keyed_release(&t->rows);
    for (size_t i = 0; i < PAGE_GONE_N; i++) {
        mem_free(t->gone[i].key);
        mem_free(t->gone[i].uid);
    }
    mem_free(t);
}

/* --- put ------------------------------------------------------------------------- */

/* Replaces the entry of that key, if there is one; `e` has another uid. */
static int table_insert(struct page_table *t, struct page_entry *e)
{
    struct page_entry *old = keyed_find(&t->rows, e->key);

    if (!old)
        return keyed_insert(&t->rows, e) < 0 ? -ENOMEM : 0;
    t->rows.v[keyed_from(&t->rows, e->key)] = e;
    table_bury(t, old);
    return 0;
}

static int table_put_row(struct page_table *t,
                         const char *key,
                         const struct page_view *v,
                         const struct strbuf *row)
{
    struct page_entry *e = keyed_find(&t->rows, key);
    CLEANUP(entry_freep) struct page_entry *made = NULL;
    AUTOFREE char *text = NULL;
    int rc;

    if (e && strcmp(e->uid, v->uid) != 0)
        e = NULL;
    if (e && e->row_n == row->n && memcmp(e->row, row->p, row->n) == 0) {
        e->slots = v->slots;
        return 0;
    }
    text = mem_strndup(row->p, row->n);
    if (!text)
        return -ENOMEM;
    if (!e) {
        made = entry_new(key, v->uid);
        rc = made ? table_insert(t, made) : -ENOMEM;
        if (rc < 0)
            return rc;
        e = TAKE(made);
    }
    mem_free(e->row);
    e->row = TAKE(text);
    e->row_n = row->n;
    e->slots = v->slots;
    e->revision = ++t->revision;
    page_link_move(&t->changed, &e->changed);
    return 0;
}

static uint32_t table_known_slots(const struct page_entry *e, const struct node *object)
{
    const char *uid = node_str(object, "metadata.uid");

    return e && uid && strcmp(e->uid, uid) == 0 ? e->slots : 0;
}

int page_table_put(struct page_table *t, const char *key, const struct node *object)
{
    struct page_entry *e = keyed_find(&t->rows, key);
    CLEANUP(arena_release) struct arena a = {0};
    CLEANUP(strbuf_release) struct strbuf row = {0};
    struct build b = {.arena = &a};
    struct page_view v;
    int rc;

    if (!object) {
        table_drop(t, e);
        return 0;
    }
    arena_init(&a, PAGE_ARENA_MAX);
    strbuf_init(&row, PAGE_ROW_MAX);
    rc = page_view_make(&b, key, object, table_known_slots(e, object), &v);
    if (rc == 0)
        rc = page_row_write(&b, &v, &row);
    if (rc == 0)
        return table_put_row(t, key, &v, &row);
    if (rc != -ENOMEM)
        table_drop(t, e);
    return rc == -ENOMEM ? rc : -EINVAL;
}

/* --- reading --------------------------------------------------------------------- */

uint64_t page_table_revision(const struct page_table *t)
{
    return t->revision;
}

size_t page_table_n(const struct page_table *t)
{
    return t->rows.n;
}

size_t page_table_bytes(const struct page_table *t)
{
    size_t n = sizeof(*t) + t->rows.cap * sizeof(*t->rows.v)
               + t->n_histories * sizeof(struct page_history);

    for (size_t i = 0; i < t->rows.n; i++) {
        const struct page_entry *e = t->rows.v[i];

        n += sizeof(*e) + strlen(e->key) + strlen(e->uid) + e->row_n + 3;
    }
    for (size_t i = 0; i < PAGE_GONE_N && t->gone[i].key; i++)
        n += strlen(t->gone[i].key) + strlen(t->gone[i].uid) + 2;
    return n;
}

/* --- history --------------------------------------------------------------------- */

/* NULL: out of memory, or all histories are in use. */
static struct page_history *
table_add_history(struct page_table *t, struct page_entry *e, uint64_t now_wall_s)
{
    struct page_entry *oldest = t->noted.newer->of;

    if (t->n_histories >= PAGE_HISTORIES_N) {
        if (oldest->history->last * PAGE_HISTORY_S + PAGE_HISTORY_IDLE_S > now_wall_s)
            return NULL;
        table_drop_history(t, oldest);
    }
    e->history = mem_zalloc(sizeof(*e->history));
    t->n_histories += e->history != NULL;
    return e->history;
}

void page_table_note(struct page_table *t,
                     const char *key,
                     const struct live_report *r,
                     uint64_t now_wall_s)
{
    struct page_entry *e = keyed_find(&t->rows, key);

    if (!e || (!e->history && !table_add_history(t, e, now_wall_s)))
        return;
    if (page_history_add(e->history, r, now_wall_s))
        page_link_move(&t->noted, &e->noted);
}

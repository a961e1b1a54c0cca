/* SPDX-License-Identifier: Apache-2.0 */
/* Golden files. One file holds many cases:
 *
 *     # a comment
 *     == name of the case
 *     the input, as YAML
 *     --
 *     the transcript of what the code does with it
 *
 * The whole transcript is compared. GOLDEN_UPDATE=1 writes the transcripts that come
 * out into the file; read the diff before you commit it. */
#ifndef TESTS_UNIT_GOLDEN_H
#define TESTS_UNIT_GOLDEN_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/plan.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"

#define GOLDEN_MAX_BYTES (4u << 20)
#define GOLDEN_MAX_PATH  1024

/* Prints to out what comes of the case. */
typedef void (*golden_case_fn)(void *arg,
                               const char *name,
                               const char *input,
                               struct strbuf *out);

static inline char *golden_read(const char *path)
{
    char *text = NULL;
    size_t n;
    struct err err = ERR_INIT;

    if (fd_read_file(path, GOLDEN_MAX_BYTES, &text, &n, &err) < 0)
        fail_msg("%s: %s", path, err.text);
    return text;
}

static inline struct node *golden_yaml(struct arena *a, const char *text)
{
    struct node *o;
    struct err err = ERR_INIT;

    if (yaml_read(a, text, strlen(text), &o, &err) < 0)
        fail_msg("%s:\n%s", err.text, text);
    return o;
}

/* The text from p to the line that starts with mark, cut off there; *ret_next is what
 * follows the mark, or NULL when there is no such line. */
static inline char *golden_cut(char *p, const char *mark, char **ret_next)
{
    size_t n = strlen(mark);
    char *at = p;

    while (at && strncmp(at, mark, n) != 0) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    *ret_next = at ? at + n : NULL;
    if (at)
        *at = '\0';
    return p;
}

/* Runs every case of the file. */
static inline void golden_file(const char *path, golden_case_fn run, void *arg)
{
    char *text = golden_read(path), *next, *input, *want, *head;
    struct strbuf all, got;
    unsigned n_run = 0, n_bad = 0;

    strbuf_init(&all, GOLDEN_MAX_BYTES);
    strbuf_init(&got, GOLDEN_MAX_BYTES);
    strbuf_puts(&all, golden_cut(text, "== ", &next));
    while ((head = next)) {
        input = strchr(head, '\n');
        assert_non_null(input);
        *input++ = '\0';
        (void)golden_cut(input, "--\n", &want);
        if (!want)
            fail_msg("%s: %s: no line \"--\"", path, head);
        (void)golden_cut(want, "== ", &next);
        strbuf_clear(&got);
        run(arg, head, input, &got);
        if (next)
            strbuf_putc(&got, '\n');
        assert_int_equal(strbuf_status(&got), 0);
        strbuf_printf(&all, "== %s\n%s--\n%s", head, input, strbuf_str(&got));
        n_run++;
        if (strcmp(want, strbuf_str(&got)) == 0 || getenv("GOLDEN_UPDATE"))
            continue;
        n_bad++;
        fprintf(stderr, "%s: %s differs; got:\n%swanted:\n%s", path, head,
                strbuf_str(&got), want);
    }
    assert_true(n_run > 0);
    if (getenv("GOLDEN_UPDATE"))
        assert_int_equal(fd_write_file(path, strbuf_str(&all), all.n, 0644, NULL), 0);
    strbuf_release(&all);
    strbuf_release(&got);
    mem_free(text);
    if (n_bad > 0)
        fail_msg("%s: %u of %u cases differ (GOLDEN_UPDATE=1 writes what came out)",
                 path, n_bad, n_run);
}

/* Runs every case of every .txt file in the folder. */
static inline void golden_folder(const char *folder, golden_case_fn run, void *arg)
{
    struct dirent **entry;
    int n = scandir(folder, &entry, NULL, alphasort);
    unsigned n_files = 0;

    for (int i = 0; i < n; i++) {
        const char *end = strrchr(entry[i]->d_name, '.');
        char path[600];

        if (end && strcmp(end, ".txt") == 0) {
            (void)snprintf(path, sizeof(path), "%s/%s", folder, entry[i]->d_name);
            golden_file(path, run, arg);
            n_files++;
        }
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    assert_true(n_files > 0);
}

/* --- differences as input ------------------------------------------------------- */

/* The member or the array item of that name; NULL if there is none. */
static inline struct node *golden_find(const struct node *o, const char *key)
{
    struct node *c = o ? o->first : NULL;

    for (; c; c = c->next) {
        if (o->type == NODE_OBJECT && strcmp(c->key, key) == 0)
            break;
        if (o->type == NODE_ARRAY && node_str(c, "name")
            && strcmp(node_str(c, "name"), key) == 0)
            break;
        if (o->type == NODE_ARRAY && node_str(c, "type")
            && strcmp(node_str(c, "type"), key) == 0)
            break;
    }
    return c;
}

/* Sets the value at a path: keys joined by dots; an item of an array goes by its name
 * or type. Null removes it. */
static inline void
golden_set(struct build *b, struct node *o, const char *path, const struct node *value)
{
    char *p = arena_strdup(b->arena, path), *dot;

    for (; (dot = strchr(p, '.')); p = dot + 1) {
        struct node *at;

        *dot = '\0';
        at = golden_find(o, p);
        if (!at && o->type == NODE_ARRAY)
            fail_msg("%s: no item %s", path, p);
        o = at ? at : node_child(b, o, p, NODE_OBJECT);
    }
    if (value->type == NODE_NULL)
        node_drop(o, p);
    else
        node_set(b, o, p, node_copy(b, value));
    assert_int_equal(b->status, 0);
}

/* --- differences as output ------------------------------------------------------
 *
 * An object is one line: its path, then key=value of each member that has no lines of
 * its own; of two trees, only what differs. "-key" or "-path": it is in the first tree
 * only. Items of an array go by name or type where each has one, else by position;
 * "order" lists the items in their order, unless the new ones are the last. */

static inline bool golden_has_lines(const struct node *n)
{
    return n && n->first
           && (n->type == NODE_OBJECT
               || (n->type == NODE_ARRAY && n->first->type == NODE_OBJECT));
}

static inline void golden_print_value(const struct node *n, struct strbuf *out)
{
    const char *s = n->type == NODE_STRING ? n->u.s : NULL;
    bool is_plain = s && *s && strcmp(s, "true") != 0 && strcmp(s, "false") != 0
                    && strcmp(s, "null") != 0;
    char *end;

    if (is_plain) {
        (void)strtod(s, &end);
        is_plain = *end != '\0';
    }
    for (const char *p = s; is_plain && *p; p++)
        is_plain = *p > ' ' && *p < 0x7f && !strchr("\"\\=[]{}", *p);
    if (is_plain)
        strbuf_puts(out, s);
    else
        json_write(n, out);
}

/* "name" or "type" if each item of both has one of its own, else NULL. */
static inline const char *golden_label(const struct node *a, const struct node *b)
{
    static const char *const labels[] = {"name", "type"};
    const struct node *const list[] = {a, b};

    for (size_t i = 0; i < ARRAY_LEN(labels); i++) {
        bool is_good = true;

        for (size_t k = 0; k < ARRAY_LEN(list); k++) {
            for (struct node *c = list[k] ? list[k]->first : NULL; c; c = c->next) {
                const char *s = node_str(c, labels[i]);

                is_good = is_good && s && node_with(list[k], labels[i], s) == c;
            }
        }
        if (is_good)
            return labels[i];
    }
    return NULL;
}

static inline void golden_changes(const char *path,
                                  const struct node *from,
                                  const struct node *to,
                                  const char *label,
                                  struct strbuf *out);

/* The items in the order that they have once those of from that stay are followed by
 * the new ones: is that the order of to? */
static inline bool
golden_is_in_order(const struct node *from, const struct node *to, const char *label)
{
    const struct node *c = to->first;

    for (const struct node *f = from->first; f; f = f->next) {
        if (!node_with(to, label, node_str(f, label)))
            continue;
        if (strcmp(node_str(c, label), node_str(f, label)) != 0)
            return false;
        c = c->next;
    }
    return true;
}

static inline void golden_array_changes(const char *path,
                                        const struct node *from,
                                        const struct node *to,
                                        struct strbuf *out)
{
    const char *label = golden_label(from, to);
    char item[GOLDEN_MAX_PATH];
    size_t i = 0;

    for (const struct node *c = to->first; c; c = c->next, i++) {
        if (label)
            (void)snprintf(item, sizeof(item), "%.400s[%.400s]", path,
                           node_str(c, label));
        else
            (void)snprintf(item, sizeof(item), "%.400s[%zu]", path, i);
        golden_changes(item,
                       label ? node_with(from, label, node_str(c, label))
                             : node_item(from, i),
                       c, label, out);
    }
    for (const struct node *c = label && from ? from->first : NULL; c; c = c->next) {
        if (!node_with(to, label, node_str(c, label)))
            strbuf_printf(out, "-%s[%s]\n", path, node_str(c, label));
    }
    for (i = !label && from ? from->n : 0; i > to->n; i--)
        strbuf_printf(out, "-%s[%zu]\n", path, i - 1);
    if (!label || !from || golden_is_in_order(from, to, label))
        return;
    strbuf_printf(out, "%s order", path);
    for (const struct node *c = to->first; c; c = c->next)
        strbuf_printf(out, " %s", node_str(c, label));
    strbuf_putc(out, '\n');
}

/* Prints to, as far as it differs from from, which may be NULL. The member label is in
 * the path. */
static inline void golden_changes(const char *path,
                                  const struct node *from,
                                  const struct node *to,
                                  const char *label,
                                  struct strbuf *out)
{
    bool is_begun = false, has_nested = false;

    for (const struct node *c = to->first; c; c = c->next) {
        const struct node *old = golden_find(from, c->key);

        has_nested = has_nested || golden_has_lines(c);
        if (golden_has_lines(c) || (old && node_equal(old, c))
            || (label && strcmp(label, c->key) == 0))
            continue;
        strbuf_printf(out, "%s %s=", is_begun ? "" : path, c->key);
        golden_print_value(c, out);
        is_begun = true;
    }
    for (const struct node *f = from ? from->first : NULL; f; f = f->next) {
        if (golden_find(to, f->key))
            continue;
        strbuf_printf(out, "%s -%s", is_begun ? "" : path, f->key);
        is_begun = true;
    }
    if (is_begun)
        strbuf_putc(out, '\n');
    else if (!from && !has_nested)
        strbuf_printf(out, "%s\n", path);
    for (const struct node *c = to->first; c; c = c->next) {
        const struct node *old = golden_find(from, c->key);
        char member[GOLDEN_MAX_PATH];

        if (!golden_has_lines(c))
            continue;
        if (!golden_has_lines(old) || old->type != c->type)
            old = NULL;
        (void)snprintf(member, sizeof(member), "%.400s.%.400s", path, c->key);
        if (c->type == NODE_ARRAY)
            golden_array_changes(member, old, c, out);
        else
            golden_changes(member, old, c, NULL, out);
    }
}

/* Prints the actions, with what shown() returns of each, after indent. What one stage
 * creates, or deletes, is one line; something shown ends the line. */
static inline void golden_actions(const struct job_plan *p,
                                  const char *indent,
                                  const struct node *(*shown)(const struct action *),
                                  struct strbuf *out)
{
    bool is_first = true;

    for (size_t i = 0; i < p->n; i++) {
        const struct action *x = &p->v[i];
        const struct node *o = shown(x);

        if (is_first)
            strbuf_printf(out, "%s%u %s", indent, x->stage, verb_name(x->verb));
        strbuf_printf(out, " %s %s%s%s%s%s%s", kube_kind_name(x->kind), x->name,
                      x->sub ? "/" : "", x->sub ? x->sub : "", x->uid ? " uid=" : "",
                      x->uid ? x->uid : "", x->is_forced ? " by force" : "");
        if (o) {
            strbuf_putc(out, ' ');
            json_write(o, out);
        }
        is_first = o || i + 1 == p->n || x[1].stage != x->stage || x[1].verb != x->verb;
        strbuf_puts(out, is_first ? "\n" : ",");
    }
}

/* The first set of objects of a file, and the first of each word that the names of cases
 * begin with ("agent" of agent-mpich). Other sets are printed as differences to the one
 * with their word, else to the first of all. */
struct golden_first {
    struct arena arena;
    struct node *sets; /* by word */
};

/* Prints "KIND NAME" of each object, and below it what differs from the object of that
 * kind in the first set or, within the first set of all, before it. If nothing does, the
 * next object follows on the same line. */
static inline void golden_objects(struct golden_first *f,
                                  const char *name,
                                  const struct node *all,
                                  struct strbuf *out)
{
    struct build b = {.arena = &f->arena};
    const char *word = arena_printf(&f->arena, "%.*s", (int)strcspn(name, "-"), name);
    const struct node *like = golden_find(f->sets, word), *first = f->sets->first;
    struct strbuf lines;

    strbuf_init(&lines, GOLDEN_MAX_BYTES);
    for (const struct node *c = all->first; c; c = c->next) {
        const char *kind = node_str(c, "kind");
        const struct node *from = like ? node_with(like, "kind", kind) : NULL;

        if (!from)
            from = node_with(first ? first : all, "kind", kind);
        strbuf_clear(&lines);
        golden_changes(kind, from == c ? NULL : from, c, NULL, &lines);
        strbuf_printf(out, "%s %s%s%s", kind, node_str(c, "metadata.name"),
                      lines.n == 0 && c->next ? ", " : "\n", strbuf_str(&lines));
    }
    strbuf_release(&lines);
    if (!like)
        node_set(&b, f->sets, word, node_copy(&b, all));
    assert_int_equal(b.status, 0);
}

/* Runs every case of a file of objects. */
static inline void golden_objects_file(const char *path, golden_case_fn run)
{
    struct golden_first first;

    arena_init(&first.arena, GOLDEN_MAX_BYTES);
    first.sets = node_object(&(struct build){.arena = &first.arena});
    golden_file(path, run, &first);
    arena_release(&first.arena);
}

#endif

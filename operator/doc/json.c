/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in and out.
 *
 * Reading: jansson parses, because it handles surrogates, escapes and numbers. Its tree
 * is copied into the arena and freed at once, so the operator has one tree type and one
 * way to release it. Writing: ours, because nodes keep their order and the output must
 * be the same byte for byte on every run (golden files, "patch only on change").
 * Invariant: NODE_MAX_DEPTH bounds the depth and thereby the recursion. */
#include "operator/doc/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "runtime/base/json_memory.h"
#include "runtime/base/wiped.h"

static struct node *json_convert(struct build *b, const json_t *j, unsigned depth);

static struct node *
json_convert_object(struct build *b, const json_t *j, unsigned depth)
{
    struct node *o = node_object(b);
    const char *key;
    json_t *value;
    void *it;

    /* json_object_foreach takes a non-const pointer in this version of jansson */
    for (it = json_object_iter((json_t *)(uintptr_t)j); it;
         it = json_object_iter_next((json_t *)(uintptr_t)j, it)) {
        key = json_object_iter_key(it);
        value = json_object_iter_value(it);
        node_append(
            b, o, key,
            json_convert(b, value, depth + 1)); /* jansson keeps each key once */
    }
    return o;
}

static struct node *json_convert(struct build *b, const json_t *j, unsigned depth)
{
    struct node *n = NULL;

    if (depth > NODE_MAX_DEPTH) {
        b->status = -EINVAL;
        return NULL;
    }
    switch (json_typeof(j)) {
    case JSON_NULL:
        return node_null(b);
    case JSON_TRUE:
    case JSON_FALSE:
        return node_boolean(b, json_is_true(j));
    case JSON_INTEGER:
        return node_number(b, json_integer_value(j));
    case JSON_REAL:
        return node_real(b, json_real_value(j));
    case JSON_STRING:
        return node_string(b, json_string_value(j));
    case JSON_ARRAY:
        n = node_array(b);
        for (size_t i = 0; i < json_array_size(j) && !b->status; i++)
            node_add(b, n, json_convert(b, json_array_get(j, i), depth + 1));
        return n;
    case JSON_OBJECT:
        return json_convert_object(b, j, depth);
    }
    return n;
}

int json_read(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err)
{
    struct build b = {.arena = a};
    json_error_t e;
    struct node *root;
    json_t *j;

    json_set_alloc_funcs(json_memory_alloc, wiped_free); /* it may be a Secret's */
    json_memory_begin();
    j = json_loadb(text, n, 0, &e);
    if (json_memory_is_out()) {
        json_decref(j);
        return err_set(err, -ENOMEM, "json: out of memory");
    }
    if (!j)
        return err_set(err, -EINVAL, "json: line %d column %d: %s", e.line, e.column,
                       e.text);
    root = json_convert(&b, j, 0);
    json_decref(j);
    if (b.status == -EINVAL)
        return err_set(err, -EINVAL, "json: nested deeper than %d levels",
                       NODE_MAX_DEPTH);
    if (b.status)
        return err_set(err, b.status, "json: does not fit in %zu bytes", a->max_bytes);
    *ret = root;
    return 0;
}

static void write_string(const char *s, struct strbuf *out)
{
    strbuf_putc(out, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;

        if (c == '"' || c == '\\')
            strbuf_printf(out, "\\%c", c);
        else if (c == '\n')
            strbuf_puts(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            strbuf_printf(out, "\\u%04x", c);
        else
            strbuf_putc(out, (char)c);
    }
    strbuf_putc(out, '"');
}

static void json_newline(struct strbuf *out, int indent)
{
    if (indent >= 0)
        strbuf_printf(out, "\n%*s", indent * 2, "");
}

/* indent < 0: compact */
static void write_node(const struct node *n, struct strbuf *out, int indent)
{
    int inner = indent < 0 ? indent : indent + 1;
    bool is_object = n->type == NODE_OBJECT;

    switch (n->type) {
    case NODE_NULL:
        strbuf_puts(out, "null");
        return;
    case NODE_BOOL:
        strbuf_puts(out, n->u.b ? "true" : "false");
        return;
    case NODE_INT:
        strbuf_printf(out, "%" PRId64, n->u.i);
        return;
    case NODE_REAL: /* JSON has no NaN: other writers use null, too */
        if (isfinite(n->u.d))
            strbuf_printf(out, "%.17g", n->u.d);
        else
            strbuf_puts(out, "null");
        return;
    case NODE_STRING:
        write_string(n->u.s, out);
        return;
    case NODE_ARRAY:
    case NODE_OBJECT:
        break;
    }
    strbuf_putc(out, is_object ? '{' : '[');
    for (const struct node *c = n->first; c; c = c->next) {
        json_newline(out, inner);
        if (is_object) {
            write_string(c->key, out);
            strbuf_puts(out, indent < 0 ? ":" : ": ");
        }
        write_node(c, out, inner);
        if (c->next)
            strbuf_putc(out, ',');
    }
    if (n->first)
        json_newline(out, indent);
    strbuf_putc(out, is_object ? '}' : ']');
}

void json_write(const struct node *n, struct strbuf *out)
{
    write_node(n, out, -1);
}

void json_write_pretty(const struct node *n, struct strbuf *out)
{
    write_node(n, out, 0);
    strbuf_putc(out, '\n');
}

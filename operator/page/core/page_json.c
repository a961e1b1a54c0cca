/* SPDX-License-Identifier: Apache-2.0 */
/* The tree's writer escapes what JSON requires but passes other bytes on. All structure of
 * JSON is ASCII, so invalid bytes can be replaced in the finished text, wherever they came
 * from. Called by page_row.c and page_detail.c. */
#include "operator/page/core/page_json.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/utf8.h"

#define CUT_MARK "..."

void page_json_write(const struct node *n, struct strbuf *out)
{
    size_t at = out->n;

    json_write(n, out);
    if (strbuf_status(out))
        return;
    while (at < out->n) {
        size_t size = utf8_length((const unsigned char *)out->p + at);

        if (size == 0)
            out->p[at] = '?';
        at += size ? size : 1;
    }
}

/* s, or a copy that is cut. NULL: out of memory. */
static const char *page_json_cut(struct arena *a, const char *s, size_t max_bytes)
{
    size_t n = 0, room = max_bytes - strlen(CUT_MARK);

    if (strnlen(s, max_bytes + 1) <= max_bytes)
        return s;
    for (;;) {
        size_t size = utf8_length((const unsigned char *)s + n);

        size = size ? size : 1;
        if (n + size > room)
            break;
        n += size;
    }
    return arena_printf(a, "%.*s" CUT_MARK, (int)n, s);
}

static struct node *page_json_text(struct build *b, const char *s, size_t max_bytes)
{
    const char *text = page_json_cut(b->arena, s, max_bytes);

    if (!text)
        b->status = -ENOMEM;
    return text ? node_string(b, text) : NULL;
}

void page_json_set(
    struct build *b, struct node *o, const char *key, const char *s, size_t max_bytes)
{
    if (s && *s)
        node_append(b, o, key, page_json_text(b, s, max_bytes));
}

void page_json_add(struct build *b, struct node *array, const char *s, size_t max_bytes)
{
    node_add(b, array, page_json_text(b, s, max_bytes));
}

void page_json_copy(struct build *b,
                    struct node *o,
                    const char *key,
                    const struct node *object,
                    size_t max_bytes)
{
    struct strbuf text;
    int rc;

    if (!object || object->type != NODE_OBJECT)
        return;
    strbuf_init(&text, max_bytes);
    json_write(object, &text);
    rc = strbuf_status(&text);
    strbuf_release(&text);
    if (rc == -ENOMEM)
        b->status = rc;
    else if (rc == 0)
        node_append(b, o, key, node_copy(b, object));
}

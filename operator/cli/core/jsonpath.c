/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation of simple jsonpath templates.
 *
 * A path is followed step by step; [*] follows the rest of the path for each child, so the
 * depth of recursion is the number of stars. Texts are printed as they are, as kubectl
 * prints them into a script: the shell makes them safe for a terminal. */
#include "operator/cli/core/jsonpath.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "operator/doc/json.h"

struct jsonpath {
    struct strbuf *out;
    struct err *err;
    bool is_first; /* of the values of one path */
};

static int path_fail(struct jsonpath *j, const char *at, const char *what)
{
    return err_set(j->err, -EINVAL, "jsonpath: %s at \"%.40s\"; %s", what, at,
                   "known are {.name}, ['name'], [0], [*] and {\"text\"}");
}

static void put_value(struct jsonpath *j, const struct node *n)
{
    if (!n)
        return;
    if (!j->is_first)
        strbuf_putc(j->out, ' ');
    j->is_first = false;
    if (n->type == NODE_STRING)
        strbuf_puts(j->out, n->u.s);
    else
        json_write(n, j->out);
}

static const struct node *
object_find_member(const struct node *o, const char *name, size_t n)
{
    for (const struct node *c = o && o->type == NODE_OBJECT ? o->first : NULL; c;
         c = c->next) {
        if (strncmp(c->key, name, n) == 0 && c->key[n] == '\0')
            return c;
    }
    return NULL;
}

static const struct node *array_find_item(const struct node *o, long i)
{
    if (!o || o->type != NODE_ARRAY)
        return NULL;
    if (i < 0)
        i += (long)o->n;
    return i < 0 ? NULL : node_item(o, (size_t)i);
}

static int
path_walk(struct jsonpath *j, const struct node *n, const char *p, const char *end);

/* "[...]" at p. */
static int
path_bracket(struct jsonpath *j, const struct node *n, const char *p, const char *end)
{
    const char *close = memchr(p, ']', (size_t)(end - p));
    char *number_end;
    long i;
    int rc = 0;

    if (!close)
        return path_fail(j, p, "no ]");
    if (close == p + 2 && p[1] == '*') {
        for (const struct node *c = n ? n->first : NULL; c && rc == 0; c = c->next)
            rc = path_walk(j, c, close + 1, end);
        return n && n->first ? rc : path_walk(j, NULL, close + 1, end);
    }
    if (close >= p + 4 && p[1] == '\'' && close[-1] == '\'')
        return path_walk(j, object_find_member(n, p + 2, (size_t)(close - p - 3)),
                         close + 1, end);
    i = strtol(p + 1, &number_end, 10);
    if (number_end != close || close == p + 1)
        return path_fail(j, p, "cannot read");
    return path_walk(j, array_find_item(n, i), close + 1, end);
}

static int
path_walk(struct jsonpath *j, const struct node *n, const char *p, const char *end)
{
    size_t len;

    while (p < end && *p != '[') {
        if (*p != '.')
            return path_fail(j, p, "cannot read");
        p++;
        if (p < end && *p == '[')
            break;
        len = strcspn(p, ".[}");
        if ((len == 0 && p < end) || p + len > end || memchr(p, '*', len))
            return path_fail(j, p - 1, "cannot read");
        n = len > 0 ? object_find_member(n, p, len) : n;
        p += len;
    }
    if (p < end)
        return path_bracket(j, n, p, end);
    put_value(j, n);
    return 0;
}

/* {"text"} with \n, \t, \" and \\. */
static int put_literal(struct jsonpath *j, const char *p, const char *end)
{
    if (end - p < 2 || end[-1] != '"')
        return path_fail(j, p, "no closing quote");
    for (p++; p < end - 1; p++) {
        if (*p == '\\' && p + 1 < end - 1) {
            p++;
            strbuf_putc(j->out, *p == 'n' ? '\n' : *p == 't' ? '\t' : *p);
        } else {
            strbuf_putc(j->out, *p);
        }
    }
    return 0;
}

/* The } that ends the part that starts at p; a quoted text may hold one. */
static const char *part_end(const char *p)
{
    char quote = 0;

    for (; *p; p++) {
        if (quote && *p == '\\' && p[1])
            p++;
        else if (quote && *p == quote)
            quote = 0;
        else if (!quote && (*p == '"' || *p == '\''))
            quote = *p;
        else if (!quote && *p == '}')
            return p;
    }
    return NULL;
}

int jsonpath_write(const struct node *root,
                   const char *template,
                   struct strbuf *out,
                   struct err *err)
{
    struct jsonpath j = {.out = out, .err = err};
    int rc = 0;

    for (const char *p = template; *p && rc == 0;) {
        size_t n = strcspn(p, "{");
        const char *end;

        strbuf_add(out, p, n);
        p += n;
        if (!*p)
            break;
        p++;
        end = part_end(p);
        if (!end)
            return path_fail(&j, p, "no }");
        j.is_first = true;
        if (*p == '"')
            rc = put_literal(&j, p, end);
        else
            rc = path_walk(&j, root, p + (*p == '$' || *p == '@'), end);
        p = end + 1;
    }
    return rc;
}

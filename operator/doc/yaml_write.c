/* SPDX-License-Identifier: Apache-2.0 */
/* Node tree -> YAML.
 *
 * Block style for containers that are not empty. A text is plain only if no reader of
 * YAML 1.1 or 1.2 could take it for something else ("no", "1e3", "0x10", "12:30"); a text
 * of several printable lines is a literal block; any other text is quoted as in JSON,
 * with escapes for the characters that only YAML takes for ends of lines. A fraction
 * without digits behind the point is written as 4.0: as 4, which is enough for JSON, it
 * would be read as an integer. Pure. */
#include "operator/doc/yaml.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "operator/doc/json.h"
#include "runtime/base/mem.h"

static bool is_word(const char *s)
{
    static const char *const words[] = {"true", "false", "yes", "no", "on",
                                        "off",  "null",  "y",   "n"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcasecmp(s, words[i]) == 0)
            return true;
    }
    return false;
}

/* Numbers, times and dates of any version of YAML, and some texts more. */
static bool is_like_number(const char *s)
{
    if (strspn(s, "0123456789") == 4 && s[4] == '-')
        return true;
    return strspn(s, "0123456789abcdefABCDEFxXoO._eE+-:") == strlen(s)
           && strpbrk(s, "0123456789");
}

static bool is_plain(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_./-:=+@,() ";
    size_t n = strlen(s);

    if (n == 0 || strspn(s, letters) != n || strchr(".-:=+@,() ", s[0]))
        return false;
    return s[n - 1] != ' ' && s[n - 1] != ':' && !strstr(s, ": ") && !is_word(s)
           && !is_like_number(s);
}

/* Lines that a literal block can hold. */
static bool is_block(const char *s)
{
    size_t n = strlen(s);

    if (!strchr(s, '\n') || s[0] == ' ' || s[0] == '\n' || n < 2)
        return false;
    for (const char *p = s; *p; p++) {
        unsigned char c = (unsigned char)*p;

        if ((c < 0x20 && c != '\n') || c >= 0x7f)
            return false;
        if (c == ' ' && p[1] == '\n')
            return false;
    }
    return !(s[n - 1] == '\n' && s[n - 2] == '\n');
}

static void put_indent(struct strbuf *out, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++)
        strbuf_puts(out, "  ");
}

static void put_quoted(const char *s, struct strbuf *out)
{
    static const struct {
        const char *bytes, *escape;
    } breaks[] = {{"\xc2\x85", "\\u0085"},
                  {"\xe2\x80\xa8", "\\u2028"},
                  {"\xe2\x80\xa9", "\\u2029"}};
    const struct node n = {.type = NODE_STRING, .u.s = s};
    CLEANUP(strbuf_release) struct strbuf text;
    const char *p, *end;

    strbuf_init(&text, 8 * strlen(s) + 8);
    json_write(&n, &text);
    if (strbuf_status(&text) < 0)
        out->status = strbuf_status(&text);
    for (p = strbuf_str(&text); *p; p = end) {
        size_t i = 0;

        while (i < ARRAY_LEN(breaks)
               && strncmp(p, breaks[i].bytes, strlen(breaks[i].bytes)) != 0)
            i++;
        end = p + (i < ARRAY_LEN(breaks) ? strlen(breaks[i].bytes) : 1);
        if (i < ARRAY_LEN(breaks))
            strbuf_puts(out, breaks[i].escape);
        else
            strbuf_putc(out, *p);
    }
}

static void put_block(const char *s, struct strbuf *out, unsigned depth)
{
    size_t n = strlen(s);

    strbuf_puts(out, s[n - 1] == '\n' ? "|" : "|-");
    while (*s) {
        size_t len = strcspn(s, "\n");

        strbuf_putc(out, '\n');
        if (len > 0)
            put_indent(out, depth);
        strbuf_add(out, s, len);
        s += len + (s[len] == '\n');
    }
}

static void put_text(const char *s, struct strbuf *out, unsigned depth)
{
    if (is_plain(s))
        strbuf_puts(out, s);
    else if (is_block(s))
        put_block(s, out, depth);
    else
        put_quoted(s, out);
}

static void put_real(const struct node *n, struct strbuf *out)
{
    size_t at = out->n;

    json_write(n, out);
    if (strbuf_status(out) == 0 && !strpbrk(strbuf_str(out) + at, ".en"))
        strbuf_puts(out, ".0"); /* "n" is in null: JSON has no infinite number */
}

static bool is_nested(const struct node *n)
{
    return (n->type == NODE_ARRAY || n->type == NODE_OBJECT) && n->first;
}

static void put_scalar(const struct node *n, struct strbuf *out, unsigned depth)
{
    switch (n->type) {
    case NODE_NULL:
    case NODE_BOOL:
    case NODE_INT:
        json_write(n, out);
        return;
    case NODE_REAL:
        put_real(n, out);
        return;
    case NODE_STRING:
        put_text(n->u.s, out, depth);
        return;
    case NODE_ARRAY:
        strbuf_puts(out, "[]");
        return;
    case NODE_OBJECT:
        strbuf_puts(out, "{}");
        return;
    }
}

static void put_key(const char *key, struct strbuf *out)
{
    if (is_plain(key))
        strbuf_puts(out, key);
    else
        put_quoted(key, out);
    strbuf_putc(out, ':');
}

/* The items or members of n, each on a line of its own. is_started: the first one
 * continues a line that is indented already. */
static void
put_members(const struct node *n, struct strbuf *out, unsigned depth, bool is_started)
{
    for (const struct node *c = n->first; c; c = c->next) {
        if (!is_started)
            put_indent(out, depth);
        is_started = false;
        if (n->type == NODE_ARRAY) {
            strbuf_puts(out, "- ");
            if (is_nested(c)) {
                put_members(c, out, depth + 1, true);
                continue;
            }
            put_scalar(c, out, depth + 1);
        } else {
            put_key(c->key, out);
            if (is_nested(c)) {
                strbuf_putc(out, '\n');
                put_members(c, out, depth + (c->type == NODE_OBJECT), false);
                continue;
            }
            strbuf_putc(out, ' ');
            put_scalar(c, out, depth + 1);
        }
        strbuf_putc(out, '\n');
    }
}

void yaml_write(const struct node *n, struct strbuf *out)
{
    if (is_nested(n)) {
        put_members(n, out, 0, false);
        return;
    }
    put_scalar(n, out, 1);
    strbuf_putc(out, '\n');
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Spellings are Horovod's, including its long options with one dash (-np, -hostfile,
 * -prefix-timestamp), which getopt_long does not support. Documents of vendors print en
 * dashes instead of hyphens; a command line copied from them is accepted, with a
 * warning. Called by options.c. */
#include "runtime/launch/core/option_text.h"

#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spelling.h"

#define N_SPELLINGS 4

static const struct launch_option_row rows[OPT_COUNT] = {
#define ROW(id, name, alias, off, off_alias, value, kind, min, max, var, key, needs,   \
            group, help)                                                               \
    [OPT_##id] = {name, alias, off, off_alias, value,       OPTION_##kind,             \
                  min,  max,   var, key,       OPT_##needs, OPTION_GROUP_##group,      \
                  help},
    OPTIONS(ROW)
#undef ROW
};

const struct launch_option_row *option_row(enum option_id id)
{
    return &rows[id];
}

static const char *row_spelling(const struct launch_option_row *row, size_t k)
{
    const char *all[N_SPELLINGS] = {row->name, row->alias, row->off, row->off_alias};
    return all[k];
}

bool option_find(const char *name, size_t len, struct option_match *ret)
{
    for (size_t i = 0; i < OPT_COUNT; i++)
        for (size_t k = 0; k < N_SPELLINGS; k++) {
            const char *s = row_spelling(&rows[i], k);
            if (*s && strlen(s) == len && !strncmp(s, name, len)) {
                *ret = (struct option_match){(enum option_id)i, s, k >= 2};
                return true;
            }
        }
    return false;
}

size_t option_find_prefix(const char *name,
                          size_t len,
                          struct option_match *ret,
                          struct strbuf *out)
{
    size_t n = 0;
    if (len < 3 || strncmp(name, "--", 2) != 0)
        return 0;
    for (size_t i = 0; i < OPT_COUNT; i++)
        for (size_t k = 0; k < N_SPELLINGS; k++) {
            const char *s = row_spelling(&rows[i], k);
            if (strncmp(s, name, len) != 0)
                continue;
            if (n && ret->id == (enum option_id)i && ret->is_off == (k >= 2))
                continue; /* another spelling of the same option */
            *ret = (struct option_match){(enum option_id)i, s, k >= 2};
            strbuf_printf(out, "%s%s", n ? ", " : "", s);
            n++;
        }
    return n;
}

/* The distance is doubled so that of two names at the same distance the one that starts
 * with a is nearer. */
static unsigned
option_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    return 2 * spelling_distance(a, a_len, b, b_len) + (strncmp(a, b, a_len) != 0);
}

const char *option_nearest(const char *name, size_t len)
{
    const char *best = rows[0].name;
    unsigned best_distance = UINT32_MAX;
    for (size_t i = 0; i < OPT_COUNT; i++)
        for (size_t k = 0; k < N_SPELLINGS; k++) {
            const char *s = row_spelling(&rows[i], k);
            unsigned d = *s ? option_distance(name, len, s, strlen(s)) : UINT32_MAX;
            if (d < best_distance) {
                best_distance = d;
                best = s;
            }
        }
    return best;
}

/* Length of a row's key, or for k == 1 of the section before its dot. */
static size_t row_key_bytes(const struct launch_option_row *row, size_t k)
{
    return k ? strcspn(row->key, ".") : strlen(row->key);
}

const char *options_nearest_key(const char *key, size_t *ret_len)
{
    const char *best = "controller";
    unsigned best_distance = option_distance(key, strlen(key), best, strlen(best));
    *ret_len = strlen(best);
    for (size_t i = 0; i < OPT_COUNT; i++)
        for (size_t k = 0; k < 2 && *rows[i].key; k++) {
            size_t len = row_key_bytes(&rows[i], k);
            unsigned d = k && strchr(key, '.')
                             ? UINT32_MAX
                             : option_distance(key, strlen(key), rows[i].key, len);
            if (d < best_distance) {
                best_distance = d;
                best = rows[i].key;
                *ret_len = len;
            }
        }
    return best;
}

bool options_has_section(const char *section)
{
    size_t len = strlen(section);
    for (size_t i = 0; i < OPT_COUNT; i++)
        if (!strncmp(rows[i].key, section, len) && rows[i].key[len] == '.')
            return true;
    return false;
}

/* Length of a typographic dash at the start of s; 0: none. */
static size_t text_dash_bytes(const char *s)
{
    if (!strncmp(s, "\xe2\x88\x92", 3)) /* minus sign */
        return 3;
    if (!strncmp(s, "\xe2\x80", 2) && (unsigned char)s[2] >= 0x90
        && (unsigned char)s[2] <= 0x95)
        return 3;
    return 0;
}

const char *option_plain_dashes(const char *text, struct arena *arena)
{
    size_t n_dashes = 0, n = 0;
    const char *end = text + strcspn(text, "=");
    if (text[0] != '-' && !text_dash_bytes(text))
        return text;
    for (const char *p = text; p < end; p++)
        n_dashes += text_dash_bytes(p) != 0;
    if (!n_dashes)
        return text;
    char *plain = arena_alloc(arena, strlen(text) + 1);
    if (!plain)
        return NULL;
    for (const char *p = text; *p;) {
        size_t bytes = p < end ? text_dash_bytes(p) : 0;
        plain[n++] = bytes ? '-' : *p;
        p += bytes ? bytes : 1;
    }
    plain[n] = '\0';
    return plain;
}

bool option_is_placeholder(const char *text)
{
    size_t len = text[0] == '{' ? strcspn(text + 1, "{}") : 0;
    return len > 0 && text[len + 1] == '}';
}

static void row_add_help(const struct launch_option_row *r, struct strbuf *out)
{
    const char *separator = "  ";
    for (size_t k = 0; k < N_SPELLINGS; k++)
        if (*row_spelling(r, k)) {
            strbuf_printf(out, "%s%s", separator, row_spelling(r, k));
            separator = ", ";
        }
    strbuf_printf(out, "%s%s\n      %s\n", *r->value ? " " : "", r->value, r->help);
}

void options_help(const char *program, struct strbuf *out)
{
    static const char *const titles[] = {
#define TITLE(id, title) title,
        OPTION_GROUPS(TITLE)
#undef TITLE
    };
    strbuf_printf(
        out,
        "usage: %s -np N [options] [--] command [arguments]\n\n"
        "Starts N processes of the command, each as one rank of a Horovod job.\n",
        program);
    for (size_t g = 0; g < ARRAY_LEN(titles); g++) {
        strbuf_printf(out, "\n%s:\n", titles[g]);
        for (size_t i = 0; i < OPT_COUNT; i++)
            if (rows[i].group == (enum option_group)g)
                row_add_help(&rows[i], out);
    }
    strbuf_printf(
        out,
        "\nThe exit code is that of the first rank that failed, 128 + signal when it "
        "was killed,\n127 or 126 when the command cannot be started, 2 for a wrong "
        "command line, 125 for\na failure of %s itself.\n",
        program);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What reaches a terminal passes through here. A job's names, labels, messages and log
 * lines belong to its user; an escape sequence in them could change what an administrator
 * sees or types. So nothing but printable characters is passed on. */
#include "operator/cli/core/show_text.h"

#include <stdio.h>
#include <string.h>

#include "operator/core/timestamp.h"
#include "runtime/base/mem.h"

/* Length of the character at p and its code; 0: not UTF-8. */
static size_t text_decode(const char *p, size_t n, uint32_t *ret_code)
{
    const unsigned char *s = (const unsigned char *)p;
    size_t len = s[0] < 0x80   ? 1
                 : s[0] < 0xc2 ? 0
                 : s[0] < 0xe0 ? 2
                 : s[0] < 0xf0 ? 3
                 : s[0] < 0xf5 ? 4
                               : 0;
    static const unsigned char bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c;

    if (len == 0 || len > n)
        return 0;
    c = s[0] & bits[len];
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *ret_code = c;
    return len;
}

/* Characters that show as themselves and move the cursor by their width only. */
static bool code_is_safe(uint32_t c)
{
    return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0xad && c != 0x61c
           && !(c >= 0x200b && c <= 0x200f) && !(c >= 0x2028 && c <= 0x202e)
           && !(c >= 0x2060 && c <= 0x206f) && c != 0xfeff
           && !(c >= 0xfff9 && c <= 0xfffb) && !(c >= 0xe0000 && c <= 0xe0fff);
}

/* Without printf: a log may consist of such bytes. */
static void text_put_hex(struct strbuf *out, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";
    const char text[] = {'\\', 'x', digits[c >> 4], digits[c & 0xf]};

    strbuf_add(out, text, sizeof(text));
}

/* How many bytes at p are printable ASCII. */
static size_t text_plain(const char *p, size_t n)
{
    size_t i = 0;

    while (i < n && p[i] >= 0x20 && p[i] < 0x7f)
        i++;
    return i;
}

void text_put_safe(struct strbuf *out, const char *p, size_t n, bool lines)
{
    while (n > 0) {
        uint32_t c = 0;
        size_t len = text_plain(p, n);

        if (len > 0) {
            strbuf_add(out, p, len);
            p += len;
            n -= len;
            continue;
        }
        len = text_decode(p, n, &c);
        if (len == 0) {
            text_put_hex(out, (unsigned char)*p);
            len = 1;
        } else if (c == '\n' || c == '\t') {
            strbuf_putc(out, lines ? (char)c : ' ');
        } else if (c < 0x80 && !code_is_safe(c)) {
            text_put_hex(out, (unsigned char)c);
        } else if (!code_is_safe(c)) {
            strbuf_printf(out, "\\u{%x}", (unsigned)c);
        } else {
            strbuf_add(out, p, len);
        }
        p += len;
        n -= len;
    }
}

const char *text_safe(struct arena *a, const char *s)
{
    struct strbuf b;
    const char *copy;

    strbuf_init(&b, 1u << 20);
    text_put_safe(&b, s, strlen(s), false);
    copy = arena_strdup(a, strbuf_str(&b));
    strbuf_release(&b);
    return copy ? copy : "";
}

/* As apimachinery's HumanDuration. */
char *text_age(uint64_t s, char ret[AGE_SIZE])
{
    uint64_t m = s / 60, h = s / 3600, d = h / 24, y = d / 365;

#define AGE(...) (void)snprintf(ret, AGE_SIZE, __VA_ARGS__)
#define UNIT(v, big, small, rest)                                                      \
    ((rest) ? AGE("%llu" big "%llu" small, (unsigned long long)(v),                    \
                  (unsigned long long)(rest))                                          \
            : AGE("%llu" big, (unsigned long long)(v)))
    if (s < 120)
        AGE("%llus", (unsigned long long)s);
    else if (m < 10)
        UNIT(m, "m", "s", s % 60);
    else if (h < 3)
        AGE("%llum", (unsigned long long)m);
    else if (h < 8)
        UNIT(h, "h", "m", m % 60);
    else if (h < 48)
        AGE("%lluh", (unsigned long long)h);
    else if (d < 8)
        UNIT(d, "d", "h", h % 24);
    else if (d < 2 * 365)
        AGE("%llud", (unsigned long long)d);
    else if (d < 8 * 365)
        UNIT(y, "y", "d", d % 365);
    else
        AGE("%lluy", (unsigned long long)y);
#undef UNIT
#undef AGE
    return ret;
}

char *text_since(const char *time, uint64_t now_s, char ret[AGE_SIZE])
{
    uint64_t us;

    if (!time || timestamp_parse_us(time, &us) < 0) {
        (void)snprintf(ret, AGE_SIZE, "-");
        return ret;
    }
    return text_age(now_s > us / 1000000 ? now_s - us / 1000000 : 0, ret);
}

enum tint tint_of_state(const char *state)
{
    static const struct {
        const char *state;
        enum tint tint;
    } rows[] = {{"Running", TINT_GOOD},    {"Succeeded", TINT_GOOD},
                {"Pending", TINT_BUSY},    {"Restarting", TINT_BUSY},
                {"Suspended", TINT_DIM},   {"Failed", TINT_BAD},
                {"Terminating", TINT_DIM}, {"Warning", TINT_BAD}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(state, rows[i].state) == 0)
            return rows[i].tint;
    }
    return TINT_NONE;
}

void text_put_tinted(struct strbuf *out, const char *s, enum tint t, bool has_colour)
{
    static const char *const codes[] = {[TINT_GOOD] = "32",
                                        [TINT_BUSY] = "33",
                                        [TINT_BAD] = "31",
                                        [TINT_DIM] = "2",
                                        [TINT_HEAD] = "1"};

    if (has_colour && t != TINT_NONE)
        strbuf_printf(out, "\033[%sm%s\033[0m", codes[t], s);
    else
        strbuf_puts(out, s);
}

/* --- tables ---------------------------------------------------------------------- */

struct table_row {
    struct table_row *next;
    const char *cell[TABLE_MAX_COLUMNS];
    enum tint tint[TABLE_MAX_COLUMNS];
    size_t n;
};

void table_init(struct show_table *t, struct arena *a)
{
    *t = (struct show_table){.arena = a};
}

void table_head(struct show_table *t, const char *name)
{
    t->head[t->n_columns++] = name;
}

void table_row(struct show_table *t)
{
    struct table_row *r = arena_alloc(t->arena, sizeof(*r));

    if (!r)
        t->is_out_of_memory = true;
    else if (t->last)
        t->last->next = r;
    else
        t->first = r;
    t->last = r ? r : t->last;
}

void table_cell(struct show_table *t, const char *text, enum tint tint)
{
    struct table_row *r = t->last;

    if (!r || r->n == TABLE_MAX_COLUMNS)
        return;
    r->tint[r->n] = tint;
    r->cell[r->n++] = text && *text ? text_safe(t->arena, text) : "-";
}

void table_cellf(struct show_table *t, const char *fmt, ...)
{
    struct strbuf b;
    va_list ap;

    strbuf_init(&b, 4096);
    va_start(ap, fmt);
    strbuf_vprintf(&b, fmt, ap);
    va_end(ap);
    table_cell(t, strbuf_str(&b), TINT_NONE);
    strbuf_release(&b);
}

/* Characters, as far as a terminal shows each in one column. */
static size_t text_width(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void put_cell(
    struct strbuf *out, const char *s, enum tint tint, size_t width, bool has_colour)
{
    text_put_tinted(out, s, tint, has_colour);
    for (size_t n = text_width(s); n < width + 3 && width > 0; n++)
        strbuf_putc(out, ' ');
}

void table_write(struct show_table *t,
                 bool has_headers,
                 bool has_colour,
                 struct strbuf *out)
{
    size_t *width = t->width;

    for (size_t c = 0; c < t->n_columns; c++) {
        size_t w = strlen(t->head[c]);

        width[c] = w > width[c] && has_headers ? w : width[c];
    }
    for (const struct table_row *r = t->first; r; r = r->next) {
        for (size_t c = 0; c < r->n && c < t->n_columns; c++) {
            size_t w = text_width(r->cell[c]);

            width[c] = w > width[c] ? w : width[c];
        }
    }
    if (t->n_columns > 0)
        width[t->n_columns - 1] = 0; /* nothing follows */
    for (size_t c = 0; c < t->n_columns && has_headers; c++)
        put_cell(out, t->head[c], TINT_HEAD, width[c], has_colour);
    if (has_headers)
        strbuf_putc(out, '\n');
    for (const struct table_row *r = t->first; r; r = r->next) {
        for (size_t c = 0; c < r->n && c < t->n_columns; c++)
            put_cell(out, r->cell[c], r->tint[c], width[c], has_colour);
        strbuf_putc(out, '\n');
    }
    t->first = t->last = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Called by step_node.c, which writes, and step_status.c, which reads. */
#include "runtime/launch/core/step_line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/places.h"

#define LINE_BYTES 400 /* of a part, in one line */

_Static_assert(2 * LINE_BYTES + 32 < STEP_LINE_MAX, "with kind, number and label");

void step_hello_put(const struct step_hello *h, struct strbuf *out)
{
    strbuf_printf(out, "%u %u %u %u %llu %s", h->n_ranks, h->first, h->last, h->size,
                  (unsigned long long)h->run_ms, h->host);
}

int step_hello_parse(const void *p, size_t n, struct step_hello *ret, struct err *err)
{
    struct step_hello h = {.n_ranks = 0};
    char text[512];
    unsigned long long run_ms;

    if (n >= sizeof(text))
        return err_set(err, -EPROTO, "a node's first line has %zu bytes", n);
    memcpy(text, p, n);
    text[n] = '\0';
    if (sscanf(text, "%u %u %u %u %llu %255s", &h.n_ranks, &h.first, &h.last, &h.size,
               &run_ms, h.host)
            != 6
        || h.n_ranks > h.size || h.size > WORLD_MAX_RANKS
        || (h.size > 0 && (h.first > h.last || h.last >= h.size)))
        return err_set(err, -EPROTO, "a node's first line is \"%.100s\"", text);
    h.run_ms = run_ms;
    *ret = h;
    return 0;
}

void step_line_put(
    enum step_kind kind, uint32_t number, const void *p, size_t n, struct strbuf *out)
{
    const uint8_t *from = p;

    do {
        char hex[2 * LINE_BYTES + 1];
        size_t part = n > LINE_BYTES ? LINE_BYTES : n;

        hex_encode(from, part, hex);
        from += part;
        n -= part;
        strbuf_printf(out, "%c %u %c %s\n", (char)kind, number, n > 0 ? '+' : '.', hex);
    } while (n > 0);
}

void step_line_clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

void step_part_release(struct step_part *p)
{
    strbuf_release(&p->data);
}

bool step_line_label(const char *line, uint32_t *ret_task, const char **ret_rest)
{
    const char *p = line + strspn(line, " ");
    size_t n = strcspn(p, ":");
    char digits[12];

    if (n == 0 || n >= sizeof(digits) || p[n] != ':' || p[n + 1] != ' ')
        return false;
    memcpy(digits, p, n);
    digits[n] = '\0';
    if (parse_u32("task", digits, 0, UINT32_MAX, ret_task, NULL) < 0)
        return false;
    *ret_rest = p + n + 2;
    return true;
}

static int step_part_refuse(struct step_part *p, const char *line, struct err *err)
{
    p->is_open = false;
    return err_set(err, -EPROTO, "no line of hvd-agent: \"%.100s\"", line);
}

int step_part_take(struct step_part *p, const char *line, struct err *err)
{
    uint8_t bytes[LINE_BYTES];
    unsigned number;
    char kind, more;
    int at = 0;
    size_t n;

    if (sscanf(line, "%c %u %c %n", &kind, &number, &more, &at) != 3 || at == 0
        || !strchr("NRSFK", kind) || (more != '+' && more != '.'))
        return step_part_refuse(p, line, err);
    n = strlen(line + at);
    if (n % 2 != 0 || n / 2 > sizeof(bytes) || hex_decode(line + at, bytes, n / 2) < 0)
        return step_part_refuse(p, line, err);
    if (!p->is_open) {
        strbuf_release(&p->data);
        strbuf_init(&p->data, STEP_PART_MAX);
        p->kind = (enum step_kind)kind;
        p->number = number;
    } else if (p->kind != (enum step_kind)kind || p->number != number) {
        return step_part_refuse(p, line, err);
    }
    strbuf_add(&p->data, bytes, n / 2);
    p->is_open = more == '+';
    if (strbuf_status(&p->data) < 0)
        return step_part_refuse(p, line, err);
    return p->is_open ? 0 : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The stall record as lines of text, so that people can read the file too. Written by
 * observe/stall_file.c in rank 0, read by the agent. */
#include "runtime/contract/stall_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head[] = "ringmaster-stall/1\n";

static char text_printable(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f ? '?' : c;
}

static void text_put_line(struct strbuf *out, const char *key, const char *text)
{
    strbuf_printf(out, "%s ", key);
    for (; *text; text++)
        strbuf_putc(out, text_printable(*text));
    strbuf_putc(out, '\n');
}

void stall_record_pack(const struct stall_record *r, struct strbuf *out)
{
    strbuf_puts(out, head);
    strbuf_printf(out, "since_us %" PRIu64 "\nseen_us %" PRIu64 "\n", r->since_wall_us,
                  r->seen_wall_us);
    strbuf_printf(out, "generation %u\nsize %u\npid %u\n", r->generation, r->size,
                  r->pid);
    text_put_line(out, "op", r->op);
    text_put_line(out, "tensor", r->tensor);
    strbuf_printf(out, "n_missing %u\n", r->n_missing);
    for (uint32_t i = 0; i < r->n_listed; i++) {
        const struct stall_missing *m = &r->missing[i];
        char key[64];

        (void)snprintf(key, sizeof(key), "missing %u%s%s", m->rank, m->op[0] ? " " : "",
                       m->op);
        text_put_line(out, key, m->tensor);
    }
    if (r->deadlock[0])
        text_put_line(out, "deadlock", r->deadlock);
}

static bool text_get_number(const char *s, uint64_t max, uint64_t *ret)
{
    char *end;

    if (*s < '0' || *s > '9' || strlen(s) > 20)
        return false;
    *ret = strtoull(s, &end, 10);
    return *end == '\0' && *ret <= max;
}

/* "1 BARRIER epoch/3" or "1 ". */
static bool missing_parse(char *s, struct stall_missing *ret)
{
    char *op = strchr(s, ' '), *tensor = NULL;
    uint64_t rank;

    if (op)
        *op++ = '\0';
    if (op && *op)
        tensor = strchr(op, ' ');
    if (!text_get_number(s, UINT32_MAX, &rank) || (op && *op && !tensor))
        return false;
    ret->rank = (uint32_t)rank;
    if (!tensor)
        return true;
    *tensor++ = '\0';
    (void)snprintf(ret->op, sizeof(ret->op), "%s", op);
    (void)snprintf(ret->tensor, sizeof(ret->tensor), "%s", tensor);
    return true;
}

static bool line_get_number(struct stall_record *r, const char *key, const char *value)
{
    const struct {
        const char *key;
        uint64_t *wide;
        uint32_t *narrow;
    } numbers[] = {
        {"since_us", &r->since_wall_us, NULL},
        {"seen_us", &r->seen_wall_us, NULL},
        {"generation", NULL, &r->generation},
        {"size", NULL, &r->size},
        {"pid", NULL, &r->pid},
        {"n_missing", NULL, &r->n_missing},
    };
    uint64_t v = 0;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(key, numbers[i].key) != 0)
            continue;
        if (!text_get_number(value, numbers[i].wide ? UINT64_MAX : UINT32_MAX, &v))
            return false;
        if (numbers[i].wide)
            *numbers[i].wide = v;
        else
            *numbers[i].narrow = (uint32_t)v;
    }
    return true;
}

static bool line_parse(struct stall_record *r, char *line)
{
    char *value = strchr(line, ' ');

    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(line, "op") == 0)
        (void)snprintf(r->op, sizeof(r->op), "%s", value);
    else if (strcmp(line, "tensor") == 0)
        (void)snprintf(r->tensor, sizeof(r->tensor), "%s", value);
    else if (strcmp(line, "deadlock") == 0)
        (void)snprintf(r->deadlock, sizeof(r->deadlock), "%s", value);
    else if (strcmp(line, "missing") == 0 && r->n_listed < STALL_MISSING_MAX)
        return missing_parse(value, &r->missing[r->n_listed++]);
    else
        return line_get_number(r, line, value);
    return true;
}

int stall_record_unpack(const char *text,
                        size_t n,
                        struct stall_record *ret,
                        struct err *err)
{
    struct stall_record r = {0};
    char line[1024];

    if (n < strlen(head) || memcmp(text, head, strlen(head)) != 0)
        return err_set(err, -EPROTO, "stall record: it does not begin with %.18s",
                       head);
    for (size_t at = strlen(head); at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : 0;

        if (!end || length >= sizeof(line) || memchr(text + at, '\0', length))
            return err_set(err, -EPROTO, "stall record: it has a damaged line");
        for (size_t i = 0; i < length; i++)
            line[i] = text_printable(text[at + i]);
        line[length] = '\0';
        if (!line_parse(&r, line))
            return err_set(err, -EPROTO, "stall record: bad line \"%.60s\"", line);
        at += length + 1;
    }
    if (r.since_wall_us == 0 || r.n_missing < r.n_listed)
        return err_set(err, -EPROTO, "stall record: it is not complete");
    *ret = r;
    return 0;
}

bool stall_record_is_missing(const struct stall_record *r, uint32_t rank)
{
    for (uint32_t i = 0; i < r->n_listed; i++)
        if (r->missing[i].rank == rank)
            return true;
    return false;
}

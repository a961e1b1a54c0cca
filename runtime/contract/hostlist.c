/* SPDX-License-Identifier: Apache-2.0 */
/* The list itself, its -H and hostfile forms, and the renderers; Slurm's forms are in
 * slurm_list.c. All parsers append to the caller's list and on failure cut it back to
 * its former length, so that a failed parse leaves no trace.
 *
 * A host name here is what may come from outside: 1 to 255 printable ASCII characters
 * without blanks and without the separators of any list form. It is not checked against
 * DNS: names with underscores are in use, and resolution decides. */
#include "runtime/contract/hostlist.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

void hostlist_init(struct hostlist *hl)
{
    memset(hl, 0, sizeof(*hl));
}

static void cut_to(struct hostlist *hl, size_t n)
{
    while (hl->n > n)
        mem_free(hl->v[--hl->n].name);
}

void hostlist_release(struct hostlist *hl)
{
    cut_to(hl, 0);
    mem_free(hl->v);
    hostlist_init(hl);
}

static bool is_name_char(char c)
{
    return c > ' ' && c < 0x7f && !strchr(",[]=#\"'\\()", c);
}

static int check_name(const char *name, struct err *err)
{
    size_t n = strnlen(name, HOST_NAME_MAX_BYTES);

    if (n == 0 || n >= HOST_NAME_MAX_BYTES)
        return err_set(err, -EINVAL,
                       "host name \"%.40s\" has %zu bytes, allowed are 1 to %d", name,
                       strlen(name), HOST_NAME_MAX_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        if (!is_name_char(name[i]))
            return err_set(
                err, -EINVAL,
                "host name \"%.80s\": byte 0x%02x at offset %zu is not allowed", name,
                (unsigned char)name[i], i);
    return 0;
}

int hostlist_append(struct hostlist *hl,
                    const char *name,
                    uint32_t slots,
                    struct err *err)
{
    int rc = check_name(name, err);

    if (rc)
        return rc;
    if (slots > HOST_MAX_SLOTS)
        return err_set(err, -EINVAL, "host %.80s: %u slots exceed %d", name, slots,
                       HOST_MAX_SLOTS);
    void *v = hl->v;
    rc = mem_grow(&v, hl->n, &hl->cap, sizeof(*hl->v), HOSTLIST_MAX_HOSTS);
    hl->v = v;
    if (rc == -E2BIG)
        return err_set(err, rc, "more than %d hosts", HOSTLIST_MAX_HOSTS);
    char *copy = rc ? NULL : mem_strdup(name);
    if (!copy)
        return err_set(err, -ENOMEM, "out of memory for host %.80s", name);
    hl->v[hl->n++] = (struct host){copy, slots};
    return 0;
}

uint64_t hostlist_slots(const struct hostlist *hl)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < hl->n; i++)
        sum += hl->v[i].slots;
    return sum;
}

int hostlist_copy(const struct hostlist *from, struct hostlist *ret, struct err *err)
{
    size_t before = ret->n;

    for (size_t i = 0; i < from->n; i++) {
        int rc = hostlist_append(ret, from->v[i].name, from->v[i].slots, err);

        if (rc) {
            cut_to(ret, before);
            return rc;
        }
    }
    return 0;
}

static int entry_compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorting a copy keeps 65536 hosts cheap. */
static int check_twice(const struct hostlist *hl, struct err *err)
{
    if (hl->n < 2)
        return 0;

    AUTOFREE const char **names = mem_calloc(hl->n, sizeof(*names));
    if (!names)
        return err_set(err, -ENOMEM, "out of memory for %zu hosts", hl->n);
    for (size_t i = 0; i < hl->n; i++)
        names[i] = hl->v[i].name;
    qsort(names, hl->n, sizeof(*names), entry_compare_names);
    for (size_t i = 1; i < hl->n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return err_set(
                err, -EINVAL,
                "host %.80s is listed twice: list it once with all its slots",
                names[i]);
    return 0;
}

/* "name", "name:4", "[v6]", "[v6]:4" of n bytes. *ret_has_slots: a count was given.
 * name has room for HOST_NAME_MAX_BYTES. The error message has no position: callers add
 * it as a prefix. */
static int split_host(const char *s,
                      size_t n,
                      char *name,
                      uint32_t *ret_slots,
                      bool *ret_has_slots,
                      struct err *err)
{
    char count[16];
    const char *host = s, *rest = NULL;
    size_t host_n, rest_n = 0;

    if (n && s[0] == '[') {
        const char *end = memchr(s, ']', n);

        if (!end)
            return err_set(err, -EINVAL, "\"%.*s\" lacks its ]", n < 80 ? (int)n : 80,
                           s);
        host = s + 1;
        host_n = (size_t)(end - host);
        rest = end + 1;
        rest_n = n - host_n - 2;
    } else {
        const char *colon = memchr(s, ':', n);

        host_n = colon ? (size_t)(colon - s) : n;
        rest = s + host_n;
        rest_n = n - host_n;
        if (colon && memchr(colon + 1, ':', rest_n - 1))
            return err_set(
                err, -EINVAL,
                "\"%.*s\": an IPv6 address requires brackets, as in [fe80::1]:4",
                n < 80 ? (int)n : 80, s);
    }
    if (host_n == 0 || host_n >= HOST_NAME_MAX_BYTES)
        return err_set(err, -EINVAL,
                       "host name of %zu bytes in \"%.*s\", allowed are 1 to %d",
                       host_n, n < 80 ? (int)n : 80, s, HOST_NAME_MAX_BYTES - 1);
    memcpy(name, host, host_n);
    name[host_n] = '\0';
    *ret_has_slots = rest_n > 0;
    *ret_slots = 1;
    if (rest_n == 0)
        return 0;
    if (rest[0] != ':' || rest_n - 1 >= sizeof(count))
        return err_set(err, -EINVAL,
                       "\"%.*s\" must be host, host:slots or [address]:slots",
                       n < 80 ? (int)n : 80, s);
    memcpy(count, rest + 1, rest_n - 1);
    count[rest_n - 1] = '\0';
    if (parse_u32("slots", count, 1, HOST_MAX_SLOTS, ret_slots, err) == 0)
        return 0;
    (void)err_prefix(err, "host %.80s",
                     name); /* a number out of range is syntax here */
    return err_recode(err, -EINVAL);
}

static int parse_hosts(const char *s, struct hostlist *ret, struct err *err)
{
    for (const char *p = s;; p++) {
        size_t n = strcspn(p, ",");
        char name[HOST_NAME_MAX_BYTES];
        uint32_t slots;
        bool has_slots;
        int rc = n ? 0 : err_set(err, -EINVAL, "an entry is empty");

        if (rc == 0)
            rc = split_host(p, n, name, &slots, &has_slots, err);
        if (rc == 0)
            rc = hostlist_append(ret, name, slots, err);
        if (rc) {
            (void)err_prefix(err, "host list, offset %zu", (size_t)(p - s)); /* rc */
            return rc;
        }
        p += n;
        if (!*p)
            return 0;
    }
}

int hostlist_parse_hosts(const char *s, struct hostlist *ret, struct err *err)
{
    size_t before = ret->n;
    int rc = parse_hosts(s, ret, err);

    if (rc == 0)
        rc = check_twice(ret, err);
    if (rc)
        cut_to(ret, before);
    return rc;
}

/* --- hostfile --- */

static const char *const blanks = " \t\r\v\f";

struct line {
    char name[HOST_NAME_MAX_BYTES];
    uint32_t slots, max_slots;
    bool has_slots, has_max;
};

static int parse_option(const char *s, size_t n, struct line *l, struct err *err)
{
    char text[32];
    int rc;

    if (n < sizeof(text)) {
        memcpy(text, s, n);
        text[n] = '\0';
        if (strncmp(text, "slots=", 6) == 0) {
            if (l->has_slots)
                return err_set(err, -EINVAL, "slots are given twice");
            l->has_slots = true;
            rc = parse_u32("slots", text + 6, 1, HOST_MAX_SLOTS, &l->slots, err);
            return rc ? err_recode(err, -EINVAL) : 0;
        }
        if (strncmp(text, "max_slots=", 10) == 0
            || strncmp(text, "max-slots=", 10) == 0) {
            l->has_max = true;
            rc = parse_u32("max_slots", text + 10, 1, HOST_MAX_SLOTS, &l->max_slots,
                           err);
            return rc ? err_recode(err, -EINVAL) : 0;
        }
    }
    return err_set(err, -EINVAL, "\"%.*s\" is neither slots=N nor max_slots=N",
                   n < 80 ? (int)n : 80, s);
}

/* One line without its newline. */
static int parse_line(const char *s, size_t n, struct hostlist *ret, struct err *err)
{
    struct line l = {.slots = 1};
    const char *end = s + n;
    bool has_name = false;
    int rc = 0;

    while (rc == 0) {
        while (s < end && strchr(blanks, *s))
            s++;
        if (s == end || *s == '#')
            break;

        const char *word = s;
        while (s < end && *s != '#' && !strchr(blanks, *s))
            s++;
        size_t word_n = (size_t)(s - word);
        if (has_name)
            rc = parse_option(word, word_n, &l, err);
        else
            rc = split_host(word, word_n, l.name, &l.slots, &l.has_slots, err);
        has_name = true;
    }
    if (rc || !has_name)
        return rc;
    if (l.has_max && l.max_slots < l.slots)
        return err_set(err, -EINVAL, "max_slots=%u is below slots=%u", l.max_slots,
                       l.slots);
    return hostlist_append(ret, l.name, l.slots, err);
}

int hostlist_parse_hostfile(const char *text, struct hostlist *ret, struct err *err)
{
    size_t before = ret->n, line = 1;
    int rc = 0;

    for (const char *p = text; rc == 0; p++, line++) {
        size_t n = strcspn(p, "\n");

        rc = parse_line(p, n, ret, err);
        if (rc)
            (void)err_prefix(err, "hostfile, line %zu", line); /* rc is returned */
        p += n;
        if (!*p)
            break;
    }
    if (rc == 0)
        rc = check_twice(ret, err);
    if (rc)
        cut_to(ret, before);
    return rc;
}

/* --- renderers --- */

static void render_name(const char *name, struct strbuf *out)
{
    bool is_v6 = strchr(name, ':') != NULL;

    strbuf_printf(out, is_v6 ? "[%s]" : "%s", name);
}

void hostlist_render_hosts(const struct hostlist *hl, struct strbuf *out)
{
    for (size_t i = 0; i < hl->n; i++) {
        if (i)
            strbuf_putc(out, ',');
        render_name(hl->v[i].name, out);
        strbuf_printf(out, ":%u", hl->v[i].slots);
    }
}

void hostlist_render_hostfile(const struct hostlist *hl, struct strbuf *out)
{
    for (size_t i = 0; i < hl->n; i++) {
        render_name(hl->v[i].name, out);
        strbuf_printf(out, " slots=%u\n", hl->v[i].slots);
    }
}

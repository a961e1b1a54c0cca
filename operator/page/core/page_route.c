/* SPDX-License-Identifier: Apache-2.0 */
/* Paths by table, parameters by table.
 *
 * Names reach paths of the API server and label selectors, so only the characters of
 * Kubernetes' names pass. A path is split at '/' before it is decoded: an encoded slash is
 * part of a name, and thereby refused. A parameter that the request does not have is
 * refused, so that a misspelt one is not ignored. Called by page_http.c. */
#include "operator/page/core/page_route.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/base/utf8.h"

#define PART_SIZE 256 /* of one name or value, decoded */
#define SHOWN_MAX 48  /* of a text in an error message */

enum page_parameter { PARAMETER_NAMESPACE, PARAMETER_RANK, PARAMETER_TAIL };
#define PARAMETERS 3
static const char *const parameter_names[PARAMETERS] = {"namespace", "rank", "tail"};

struct path_row {
    const char *path; /* of what belongs to a job: behind its name */
    enum page_what what;
    unsigned parameters; /* a bit for each */
    const char *allowed; /* for the message */
};
#define LIST_PARAMETERS (1u << PARAMETER_NAMESPACE)
#define LOG_PARAMETERS  (1u << PARAMETER_RANK | 1u << PARAMETER_TAIL)

static const struct path_row pages[] = {
    {"/", PAGE_GET_HTML, 0, NULL},
    {"/page.css", PAGE_GET_CSS, 0, NULL},
    {"/page.js", PAGE_GET_JS, 0, NULL},
    {"/api/v1/watch", PAGE_GET_WATCH, LIST_PARAMETERS, "namespace"},
    {"/api/v1/jobs", PAGE_GET_JOBS, LIST_PARAMETERS, "namespace"},
};
static const struct path_row parts_of_job[] = {
    {"", PAGE_GET_JOB, 0, NULL},
    {"events", PAGE_GET_EVENTS, 0, NULL},
    {"ranks", PAGE_GET_RANKS, 0, NULL},
    {"stacks", PAGE_GET_STACKS, 0, NULL},
    {"log", PAGE_GET_LOG, LOG_PARAMETERS, "rank and tail"},
};
#define JOBS "/api/v1/jobs/"

/* --- texts ----------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes s[0..n). False: it is longer than PART_SIZE - 1, or '%' is not followed by two
 * digits, or it has a NUL. */
static bool part_decode(const char *s, size_t n, char ret[PART_SIZE])
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        char c = s[i];

        if (c == '%') {
            int high = i + 2 < n ? hex_digit(s[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(s[i + 2]) : -1;

            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (!c || at == PART_SIZE - 1)
            return false;
        ret[at++] = c;
    }
    ret[at] = '\0';
    return true;
}

/* s[0..n) for a message: short, without control characters. */
static const char *part_show(const char *s, size_t n, char ret[SHOWN_MAX])
{
    char text[SHOWN_MAX * 2];

    if (n > sizeof(text) - 1)
        n = sizeof(text) - 1;
    memcpy(text, s, n);
    text[n] = '\0';
    utf8_clean(text, ret, SHOWN_MAX);
    return ret;
}

/* Labels of a-z, 0-9 and '-', which neither begin nor end with '-', joined by dots. */
static bool name_is_valid(const char *s, size_t max, bool may_have_dots)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

    if (!*s || strlen(s) > max)
        return false;
    for (;;) {
        size_t n = strcspn(s, ".");

        if (n == 0 || !strchr(letters, s[0]) || !strchr(letters, s[n - 1])
            || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") < n)
            return false;
        if (!s[n])
            return true;
        if (!may_have_dots)
            return false;
        s += n + 1;
    }
}

static int namespace_read(const char *s, size_t n, char ret[64], struct err *err)
{
    char text[PART_SIZE], shown[SHOWN_MAX];

    if (!part_decode(s, n, text) || !name_is_valid(text, 63, false))
        return err_set(err, -EINVAL,
                       "namespace: \"%s\" is not the name of a namespace: at most 63 "
                       "lower-case letters, digits and '-'",
                       part_show(s, n, shown));
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

static int job_name_read(const char *s, size_t n, char ret[254], struct err *err)
{
    char text[PART_SIZE], shown[SHOWN_MAX];

    if (!part_decode(s, n, text) || !name_is_valid(text, 253, true))
        return err_set(err, -EINVAL,
                       "name: \"%s\" is not the name of a job: at most 253 lower-case "
                       "letters, digits, '-' and '.'",
                       part_show(s, n, shown));
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

/* --- path ------------------------------------------------------------------------ */

static const struct path_row *
row_find(const struct path_row *rows, size_t n_rows, const char *path)
{
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].path, path) == 0)
            return &rows[i];
    }
    return NULL;
}

/* Takes the next part of the path, up to a '/', which is skipped, or the end. */
static const char *path_take(const char **path, size_t *ret_n)
{
    const char *s = *path;

    *ret_n = strcspn(s, "/");
    *path += *ret_n + (s[*ret_n] == '/');
    return s;
}

static const struct path_row *no_path(const char *path, struct err *err)
{
    char shown[SHOWN_MAX];

    (void)err_set(err, -ENOENT, "path: there is no \"%s\"",
                  part_show(path, strlen(path), shown));
    return NULL;
}

/* KIND/NS/NAME, and a part of the job. */
static const struct path_row *
job_path_read(const char *path, struct page_route *ret, struct err *err)
{
    const char *rest = path + strlen(JOBS), *kind, *ns, *name, *part;
    size_t n_kind, n_ns, n_name;
    const struct path_row *row;

    kind = path_take(&rest, &n_kind);
    ns = path_take(&rest, &n_ns);
    name = path_take(&rest, &n_name);
    part = rest;
    row = row_find(parts_of_job, ARRAY_LEN(parts_of_job), part);
    if (!row || n_name == 0 || (!*part && name[n_name] == '/'))
        return no_path(path, err);
    if (n_kind == strlen("horovodjobs") && memcmp(kind, "horovodjobs", n_kind) == 0)
        ret->kind = KUBE_JOB;
    else if (n_kind == strlen("mpijobs") && memcmp(kind, "mpijobs", n_kind) == 0)
        ret->kind = KUBE_MPIJOB;
    else
        return no_path(path, err);
    if (namespace_read(ns, n_ns, ret->ns, err) < 0
        || job_name_read(name, n_name, ret->name, err) < 0)
        return NULL;
    return row;
}

static const struct path_row *
path_read(const char *path, struct page_route *ret, struct err *err)
{
    const struct path_row *row = row_find(pages, ARRAY_LEN(pages), path);

    if (row)
        return row;
    if (strncmp(path, JOBS, strlen(JOBS)) != 0)
        return no_path(path, err);
    return job_path_read(path, ret, err);
}

/* --- query ----------------------------------------------------------------------- */

static int number_read(const char *field,
                       const char *s,
                       size_t n,
                       uint32_t min,
                       uint32_t max,
                       uint32_t *ret,
                       struct err *err)
{
    char text[PART_SIZE], shown[SHOWN_MAX];

    if (!part_decode(s, n, text) || strlen(text) >= SHOWN_MAX)
        return err_set(err, -EINVAL, "%s: \"%s\" is not a number from %u to %u", field,
                       part_show(s, n, shown), min, max);
    part_show(text, strlen(text), shown);
    return parse_u32(field, shown, min, max, ret, err) < 0 ? err_recode(err, -EINVAL)
                                                           : 0;
}

static int parameter_read(enum page_parameter p,
                          const char *s,
                          size_t n,
                          struct page_route *ret,
                          struct err *err)
{
    uint32_t rank;
    int rc = -EINVAL;

    switch (p) {
    case PARAMETER_NAMESPACE:
        return namespace_read(s, n, ret->ns, err);
    case PARAMETER_RANK:
        rc = number_read("rank", s, n, 0, PAGE_RANK_MAX, &rank, err);
        if (rc == 0)
            ret->rank = rank;
        return rc;
    case PARAMETER_TAIL:
        return number_read("tail", s, n, 1, PAGE_TAIL_MAX, &ret->tail, err);
    }
    return rc;
}

static int parameter_find(const char *s, size_t n)
{
    char name[PART_SIZE];

    for (int p = 0; p < PARAMETERS && part_decode(s, n, name); p++) {
        if (strcmp(parameter_names[p], name) == 0)
            return p;
    }
    return -1;
}

static int query_read(const struct path_row *row,
                      const char *query,
                      struct page_route *ret,
                      struct err *err)
{
    unsigned seen = 0;
    char shown[SHOWN_MAX];

    while (*query) {
        size_t n = strcspn(query, "&"), n_name = strcspn(query, "&=");
        size_t value = n_name + (query[n_name] == '=');
        int p = parameter_find(query, n_name), rc;

        if (p < 0 || !(row->parameters >> p & 1))
            return err_set(err, -EINVAL, "parameter \"%s\" is unknown here; %s%s",
                           part_show(query, n_name, shown),
                           row->allowed ? "there is only " : "there is none",
                           row->allowed ? row->allowed : "");
        if (seen >> p & 1)
            return err_set(err, -EINVAL, "%s: it may be given only once",
                           parameter_names[p]);
        seen |= 1u << p;
        rc = parameter_read((enum page_parameter)p, query + value, n - value, ret, err);
        if (rc < 0)
            return rc;
        query += n + (query[n] == '&');
    }
    return 0;
}

int page_route_parse(const char *path,
                     const char *query,
                     struct page_route *ret,
                     struct err *err)
{
    struct page_route r = {.rank = -1, .tail = PAGE_TAIL_DEFAULT};
    struct err mine = ERR_INIT;
    const struct path_row *row;
    int rc;

    err = err ? err : &mine;
    row = path_read(path, &r, err);
    if (!row)
        return err->code;
    r.what = row->what;
    rc = query_read(row, query ? query : "", &r, err);
    if (rc == 0)
        *ret = r;
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A URL of the status page, "PATH?QUERY": what is accepted has names of Kubernetes and
 * numbers in range, and its canonical URL means the same; what is refused has a sentence
 * without control characters. */
#include <errno.h>

#include "operator/page/core/page_route.h"
#include "runtime/base/strbuf.h"
#include "tests/fuzz/fuzz.h"

static void must_be_a_name(const char *s, const char *letters)
{
    MUST(strspn(s, letters) == strlen(s));
    MUST(*s != '-' && *s != '.' && !strstr(s, ".."));
}

/* The URL of what was read, without escapes. */
static void
write_url(const struct page_route *r, struct strbuf *path, struct strbuf *query)
{
    static const char *const paths[] = {
        [PAGE_GET_HTML] = "/",
        [PAGE_GET_CSS] = "/page.css",
        [PAGE_GET_JS] = "/page.js",
        [PAGE_GET_WATCH] = "/api/v1/watch",
        [PAGE_GET_JOBS] = "/api/v1/jobs",
        [PAGE_GET_JOB] = "",
        [PAGE_GET_EVENTS] = "/events",
        [PAGE_GET_RANKS] = "/ranks",
        [PAGE_GET_STACKS] = "/stacks",
        [PAGE_GET_LOG] = "/log",
    };

    if (r->what >= PAGE_GET_JOB)
        strbuf_printf(path, "/api/v1/jobs/%s/%s/%s",
                      r->kind == KUBE_MPIJOB ? "mpijobs" : "horovodjobs", r->ns,
                      r->name);
    else if (*r->ns)
        strbuf_printf(query, "namespace=%s", r->ns);
    strbuf_puts(path, paths[r->what]);
    if (r->what == PAGE_GET_LOG)
        strbuf_printf(query, "tail=%u", r->tail);
    if (r->rank >= 0)
        strbuf_printf(query, "&rank=%lld", (long long)r->rank);
}

static void must_mean_the_same(const struct page_route *r)
{
    struct strbuf path, query;
    struct page_route again;

    strbuf_init(&path, 1024);
    strbuf_init(&query, 1024);
    write_url(r, &path, &query);
    MUST(page_route_parse(strbuf_str(&path), strbuf_str(&query), &again, NULL) == 0);
    MUST(again.what == r->what && again.kind == r->kind && again.rank == r->rank
         && again.tail == r->tail);
    MUST(strcmp(again.ns, r->ns) == 0 && strcmp(again.name, r->name) == 0);
    strbuf_release(&path);
    strbuf_release(&query);
}

FUZZ_TARGET(page_route)
{
    char url[4096];
    size_t size = n < sizeof(url) ? n : sizeof(url) - 1;
    struct page_route r;
    struct err err = ERR_INIT;
    char *query;

    if (size)
        memcpy(url, data, size);
    url[size] = '\0';
    query = strchr(url, '?');
    if (query)
        *query++ = '\0';
    fuzz_fill(&r, sizeof(r));
    if (page_route_parse(url, query, &r, &err) < 0) {
        MUST(err.code == -EINVAL || err.code == -ENOENT);
        for (const char *s = err.text; *s; s++)
            MUST((unsigned char)*s >= ' ');
        MUST(*err.text && fuzz_is_filled(&r, sizeof(r)));
        return 0;
    }
    must_be_a_name(r.ns, "abcdefghijklmnopqrstuvwxyz0123456789-");
    must_be_a_name(r.name, "abcdefghijklmnopqrstuvwxyz0123456789-.");
    MUST((r.what >= PAGE_GET_JOB) == (*r.name != '\0'));
    MUST(r.rank >= -1 && r.rank <= PAGE_RANK_MAX);
    MUST(r.tail >= 1 && r.tail <= PAGE_TAIL_MAX);
    must_mean_the_same(&r);
    return 0;
}

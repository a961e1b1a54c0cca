/* SPDX-License-Identifier: Apache-2.0 */
/* One job for the status page. Its pods are those that the job or its launcher's Job owns. */
#include "operator/page/page_job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/ask.h"
#include "operator/doc/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define JOB_ARENA        (64u << 20)
#define DETAIL_MAX_BYTES (8u << 20)

/* NULL: out of memory. */
static const struct pod **job_pods(const struct page_viewer *v,
                                   const struct job_meta *job,
                                   struct arena *a,
                                   size_t *ret_n)
{
    const struct store *s = v->page->op->store;
    struct keyed_range at = {0};
    const struct pod *p, **list;
    size_t n = 0, i = 0;

    while (store_next_pod(s, job, &at))
        n++;
    list = arena_calloc(a, n + 1, sizeof(const struct pod *));
    if (!list)
        return NULL;
    at = (struct keyed_range){0};
    while ((p = store_next_pod(s, job, &at)) && i < n) {
        if (store_owns_pod(s, job, p))
            list[i++] = p;
    }
    *ret_n = i;
    return list;
}

static int job_write(const struct page_viewer *v,
                     const char *key,
                     const struct node *object,
                     struct arena *a,
                     struct strbuf *out)
{
    struct page_detail d = {.key = key,
                            .object = object,
                            .now_wall_s = clock_wall_s(),
                            .may_events = v->is_allowed[1],
                            .may_log = v->is_allowed[2]};
    struct job_meta meta;
    int rc = meta_decode(v->route.kind, object, &meta, NULL);

    if (rc < 0)
        return rc;
    d.pods = job_pods(v, &meta, a, &d.n_pods);
    if (!d.pods)
        return -ENOMEM;
    if (v->page->op->ask)
        d.report = ask_peek(v->page->op->ask, key, a, &d.report_wall_s);
    return page_table_detail(v->page->table, &d, out);
}

static void
job_answer_text(struct page_viewer *v, const char *key, const char *p, size_t n)
{
    struct page_answer answer = {.status = 200};
    struct page_text *t = NULL;
    struct node *object;
    struct strbuf out;
    struct arena a;
    int rc;

    arena_init(&a, JOB_ARENA);
    strbuf_init(&out, DETAIL_MAX_BYTES);
    rc = json_read(&a, p, n, &object, NULL);
    if (rc == 0)
        rc = job_write(v, key, object, &a, &out);
    if (rc == 0)
        rc = strbuf_status(&out);
    if (rc == 0)
        t = page_text_new(strbuf_str(&out), out.n);
    if (t)
        page_call_answer(v->call, &answer, t);
    else if (rc == -ENOENT)
        page_call_refuse(v->call, 404, "no such job");
    else
        page_call_refuse(v->call, 503,
                         rc == -EINVAL ? "the job cannot be read" : "out of memory");
    page_text_unref(t);
    strbuf_release(&out);
    arena_release(&a);
}

static int job_key(const struct page_viewer *v, char ret[STORE_KEY_SIZE])
{
    return store_key(v->route.kind, v->route.ns, v->route.name, ret);
}

static void on_job_fetched(void *arg, int http, const char *p, size_t n)
{
    struct page_viewer *v = arg;
    char key[STORE_KEY_SIZE];

    if (http != 200)
        viewer_answer_text(v, http, p, n);
    else if (job_key(v, key) < 0)
        page_call_refuse(v->call, 404, "no such job");
    else
        job_answer_text(v, key, p, n);
}

void page_job_answer(struct page_viewer *v)
{
    char key[STORE_KEY_SIZE];
    const struct page_query q = {.what = PAGE_JOB, .key = key};
    struct job_text text = {0};
    int rc = job_key(v, key);

    if (rc == 0)
        rc = store_job_text(v->page->op->store, key, &text);
    if (rc == -ENODATA)
        page_fetch_start(v->page->fetch, &q, on_job_fetched, v);
    else if (rc < 0)
        page_call_refuse(v->call, 404, "no such job");
    else
        job_answer_text(v, key, text.p, text.n);
}

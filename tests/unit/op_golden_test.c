/* SPDX-License-Identifier: Apache-2.0 */
/* Golden files of the pure core.
 *
 *   tests/golden/plan/CASE/{job.yaml, observed.json} -> plan.txt, status.json
 *   tests/golden/objects/CASE/job.yaml               -> objects.json
 *
 * observed.json: {"now": s, "workers": ["absent" | "expected" | "overdue" | POD |
 * {"gone": POD}, ...], "secret": bool, "service": bool, "outcome": {"trouble",
 * "reason", "message"}}. GOLDEN_UPDATE=1 writes what comes out; look at the diff before
 * you commit it. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "operator/core/hvd_objects.h"
#include "operator/core/hvd_plan.h"
#include "operator/core/hvd_status.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define ARENA_BYTES (16u << 20)

struct fixture {
    struct arena arena;
    char dir[512];
    struct hvd_job job;
    const struct node *object;
    struct strbuf problems;
};

static char *read_text(const struct fixture *f, const char *name, size_t *ret_n)
{
    char path[800];
    char *text = NULL;
    struct err err = ERR_INIT;

    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    if (fd_read_file(path, 1u << 20, &text, ret_n, &err) < 0)
        return NULL;
    return text;
}

static void load_job(struct fixture *f)
{
    struct err err = ERR_INIT;
    struct job_meta meta;
    struct node *o;
    size_t n;
    char *text = read_text(f, "job.yaml", &n);

    assert_non_null(text);
    if (yaml_read(&f->arena, text, n, &o, &err) < 0)
        fail_msg("%s: %s", f->dir, err.text);
    mem_free(text);
    f->object = o;
    assert_int_equal(meta_decode(KUBE_JOB, o, &meta, &err), 0);
    hvd_job_init(&f->job, &meta);
    strbuf_init(&f->problems, 65536);
    assert_int_equal(hvd_decode_spec(o, &f->arena, &f->job, &f->problems), 0);
    hvd_validate(&f->job, &f->problems);
}

/* Compares with the file, or writes it. */
static void compare(const struct fixture *f, const char *name, const struct strbuf *got)
{
    char path[800];
    size_t n;
    char *want;

    assert_int_equal(strbuf_status(got), 0);
    (void)snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    if (getenv("GOLDEN_UPDATE")) {
        assert_int_equal(fd_write_file(path, strbuf_str(got), got->n, 0644, NULL), 0);
        return;
    }
    want = read_text(f, name, &n);
    if (!want)
        fail_msg("%s is missing: run with GOLDEN_UPDATE=1", path);
    if (strcmp(want, strbuf_str(got)) != 0)
        fail_msg("%s differs; got:\n%s\nwanted:\n%s", path, strbuf_str(got), want);
    mem_free(want);
}

/* What is left of a pod when it comes by a watch. */
static const struct node *as_watched(struct arena *a, const struct node *pod)
{
    struct strbuf text, kept;
    struct node *out;

    strbuf_init(&text, ARENA_BYTES);
    strbuf_init(&kept, ARENA_BYTES);
    json_write(pod, &text);
    assert_int_equal(json_prune((struct span){text.p, text.n}, pod_rules, &kept), 0);
    assert_int_equal(json_read(a, kept.p, kept.n, &out, NULL), 0);
    strbuf_release(&text);
    strbuf_release(&kept);
    return out;
}

static void load_worker(const struct node *w, struct arena *a, struct worker *ret)
{
    const struct node *gone = node_get(w, "gone");
    struct pod *pod = arena_alloc(a, sizeof(*pod));

    *ret = (struct worker){.state = WORKER_ABSENT};
    if (w->type == NODE_STRING) {
        ret->is_overdue = strcmp(w->u.s, "overdue") == 0;
        if (ret->is_overdue || strcmp(w->u.s, "expected") == 0)
            ret->state = WORKER_EXPECTED;
        else
            assert_string_equal(w->u.s, "absent");
        return;
    }
    assert_int_equal(pod_decode(KUBE_JOB, as_watched(a, gone ? gone : w), pod, NULL),
                     0);
    ret->state = gone ? WORKER_GONE : WORKER_SEEN;
    ret->pod = pod;
}

static uint64_t
load_observed(struct fixture *f, struct observed *seen, struct outcome *outcome)
{
    size_t n = 0;
    char *text = read_text(f, "observed.json", &n);
    const struct node *workers;
    struct err err = ERR_INIT;
    struct worker *w;
    struct node *o;
    uint32_t i = 0;

    assert_non_null(text);
    if (json_read(&f->arena, text, n, &o, &err) < 0)
        fail_msg("%s: %s", f->dir, err.text);
    mem_free(text);
    workers = node_get(o, "workers");
    w = arena_calloc(&f->arena, workers->n + 1, sizeof(*w));
    for (const struct node *c = workers->first; c; c = c->next)
        load_worker(c, &f->arena, &w[i++]);
    *seen = (struct observed){.crew[ROLE_WORKER] = {.w = w, .n = i}};
    if (node_bool(o, "secret", false))
        seen->fact[KUBE_SECRET].state = FACT_THERE;
    if (node_bool(o, "service", false))
        seen->fact[KUBE_SERVICE].state = FACT_THERE;
    *outcome = (struct outcome){.reason = "", .message = ""};
    if (node_get(o, "outcome")) {
        outcome->trouble = strcmp(node_str(o, "outcome.trouble"), "retry") == 0
                               ? TROUBLE_RETRY
                               : TROUBLE_REJECTED;
        outcome->reason = node_str(o, "outcome.reason");
        outcome->message = node_str(o, "outcome.message");
    }
    return (uint64_t)node_int(o, "now", 0);
}

static void print_plan(const struct fixture *f,
                       const struct verdict *v,
                       const struct outcome *outcome,
                       const struct plan *p,
                       uint64_t requeue_ms,
                       struct strbuf *out)
{
    struct event_note note[DECISION_MAX_NOTES];
    size_t n = status_events(&f->job, v, outcome, note);

    strbuf_printf(out, "state  %s %s: %s\n", state_name(v->state), v->reason,
                  v->message);
    for (size_t i = 0; i < p->n; i++) {
        const struct action *x = &p->v[i];

        strbuf_printf(out, "%u      %s %s %s", x->stage, verb_name(x->verb),
                      kube_kind_name(x->kind), x->name);
        strbuf_printf(out, "%s%s\n", x->uid ? " uid=" : "", x->uid ? x->uid : "");
    }
    for (size_t i = 0; i < n; i++)
        strbuf_printf(out, "event  %s %s: %s\n",
                      note[i].is_warning ? "Warning" : "Normal", note[i].reason,
                      note[i].message);
    if (requeue_ms)
        strbuf_printf(out, "again  after %llu ms\n", (unsigned long long)requeue_ms);
}

static void run_plan(struct fixture *f)
{
    struct build b = {.arena = &f->arena};
    struct observed seen;
    struct outcome outcome;
    struct verdict v;
    struct plan p = {0};
    struct node *status;
    struct strbuf out;
    uint64_t now_s;

    load_job(f);
    now_s = load_observed(f, &seen, &outcome);
    if (f->problems.n > 0)
        outcome = (struct outcome){.trouble = TROUBLE_REJECTED,
                                   .reason = "InvalidSpec",
                                   .message = strbuf_str(&f->problems)};
    assert_int_equal(verdict_make(&f->job, &seen, &outcome, &f->arena, &v), 0);
    if (f->problems.n == 0)
        assert_int_equal(hvd_plan_make(&f->job, &seen, &v, &f->arena, &p), 0);
    strbuf_init(&out, 1u << 20);
    print_plan(f, &v, &outcome, &p,
               f->problems.n == 0 ? hvd_plan_requeue_ms(&seen, &v) : 0, &out);
    compare(f, "plan.txt", &out);
    strbuf_clear(&out);
    status = status_make(&b, &f->job, &v, &outcome, now_s);
    assert_non_null(status);
    json_write_pretty(status, &out);
    compare(f, "status.json", &out);
    strbuf_release(&out);

    /* what has been written is not written again: the same world gives the same status
     */
    f->job.meta.status = status;
    assert_int_equal(verdict_make(&f->job, &seen, &outcome, &f->arena, &v), 0);
    assert_true(
        node_equal(status, status_make(&b, &f->job, &v, &outcome, now_s + 1000)));
}

static void add(const struct fixture *f,
                struct build *b,
                struct node *all,
                struct node *object,
                const struct err *err)
{
    if (!object)
        fail_msg("%s: %s", f->dir, err->text);
    node_add(b, all, object);
}

/* Everything that the job has, of each role the last pod. */
static void run_objects(struct fixture *f)
{
    static const struct object_config cfg = {.runtime_image = "runtime:1",
                                             .cluster_domain = ""};
    static const enum kube_kind kinds[] = {KUBE_SECRET, KUBE_SERVICE, KUBE_CONFIGMAP,
                                           KUBE_VOLCANO_GROUP, KUBE_SCHEDULER_GROUP};
    struct build b = {.arena = &f->arena};
    struct secrets secrets = {.ssh_private = "", .ssh_public = ""};
    struct action x = {.verb = VERB_CREATE};
    struct err err = ERR_INIT;
    struct strbuf out;
    struct node *all = node_array(&b);

    load_job(f);
    assert_string_equal(strbuf_str(&f->problems), "");
    memset(secrets.token, 0xab, sizeof(secrets.token));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        x.kind = kinds[i];
        if (object_is_wanted(&f->job, &cfg, x.kind))
            add(f, &b, all,
                front_horovodjob.build(&b, &f->job.meta, &cfg, &x, &secrets, &err),
                &err);
    }
    x.kind = KUBE_POD;
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (f->job.role[r].n == 0)
            continue;
        x.role = (enum role)r;
        x.index = f->job.role[r].n - 1;
        add(f, &b, all,
            front_horovodjob.build(&b, &f->job.meta, &cfg, &x, &secrets, &err), &err);
    }
    assert_int_equal(b.status, 0);
    strbuf_init(&out, 1u << 20);
    json_write_pretty(all, &out);
    compare(f, "objects.json", &out);
    strbuf_release(&out);
}

static void each_case(const char *root, void (*run)(struct fixture *))
{
    struct dirent **entry;
    int n = scandir(root, &entry, NULL, alphasort), n_run = 0;

    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        struct fixture f = {0};

        if (entry[i]->d_name[0] != '.') {
            (void)snprintf(f.dir, sizeof(f.dir), "%s/%.200s", root, entry[i]->d_name);
            arena_init(&f.arena, ARENA_BYTES);
            run(&f);
            strbuf_release(&f.problems);
            arena_release(&f.arena);
            n_run++;
        }
        free(entry[i]);
    }
    free(entry);
    assert_true(n_run > 0);
}

static void plans(void **state)
{
    (void)state;
    each_case("tests/golden/plan", run_plan);
}

static void objects(void **state)
{
    (void)state;
    each_case("tests/golden/objects", run_objects);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans),
                                       cmocka_unit_test(objects)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Golden files of the pure core.
 *
 *   tests/golden/plan/CASE/{job.yaml, observed.json} -> plan.txt, status.json
 *   tests/golden/objects/CASE/job.yaml               -> objects.json
 *
 * observed.json: {"now": s, "workers": ["absent" | "expected" | "overdue" | POD |
 * {"gone": POD}, ...], "Launcher", "PS", "Chief", "Evaluator": the same, "secret":
 * bool, "service": bool, "group": bool (Volcano's PodGroup), "outcome": {"trouble",
 * "reason", "message"}}. A POD may also be short:
 * {"phase": "Running", "generation": 2, "world": "2 3", "deleting": true, "reason":
 * "Evicted", "disrupted": true, "conditions": {"MyOwn": "True"}, "node", "finalizer",
 * "stopped": true, "runtime": "image", "exit": 3, "report": {"rank", "of" (a worker) or
 * "host", "exit", "signal", "why", "us"}}. GOLDEN_UPDATE=1 writes what comes out; look
 * at the diff before you commit it.
 */
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
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define ARENA_BYTES (16u << 20)

struct fixture {
    struct arena arena;
    char dir[512];
    struct job_meta *job;
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
    assert_int_equal(meta_decode(KUBE_JOB, o, &meta, &err), 0);
    strbuf_init(&f->problems, 65536);
    f->job = front_horovodjob.open(o, &meta, &f->arena, &f->problems);
    assert_non_null(f->job);
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
    else if (strcmp(want, strbuf_str(got)) != 0)
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
    assert_int_equal(json_prune((struct json_span){text.p, text.n}, pod_rules, &kept),
                     0);
    assert_int_equal(json_read(a, kept.p, kept.n, &out, NULL), 0);
    strbuf_release(&text);
    strbuf_release(&kept);
    return out;
}

static const char *said_or(const struct node *o, const char *key, const char *dflt)
{
    const char *s = node_str(o, key);

    return s ? s : dflt;
}

/* The short form of a pod, in full. */
static const struct node *
spelt_out(struct arena *a, const struct node *w, enum role role, uint32_t i)
{
    const struct node *report = node_get(w, "report");
    const struct node *more = node_get(w, "conditions");
    struct strbuf t;
    struct node *out;
    char said[400] = "", host[40], node[16];
    bool is_over = node_get(w, "exit") || report;

    if (node_get(w, "metadata"))
        return w;
    (void)snprintf(host, sizeof(host), "demo-%s-%u",
                   role_name(node_get(report, "of") ? ROLE_WORKER : role),
                   (unsigned)node_int(report, "of", i));
    (void)snprintf(node, sizeof(node), "n%u", i);
    if (report)
        (void)snprintf(said, sizeof(said),
                       "ringmaster-failure/1 rank=%d host=%s exit=%d "
                       "signal=%d at=%lld why=\\\"%s\\\"\\nlast line\\n",
                       (int)node_int(report, "rank", i), said_or(report, "host", host),
                       (int)node_int(report, "exit", 0),
                       (int)node_int(report, "signal", 0),
                       1767225660000000ll + (long long)node_int(report, "us", 0),
                       said_or(report, "why", ""));
    strbuf_init(&t, 8192);
    strbuf_printf(&t,
                  "{\"metadata\":{\"name\":\"demo-%s-%u\",\"namespace\":\"ns\","
                  "\"uid\":\"uid-%s-%u\",\"labels\":{\"ringmaster.dev/generation\":"
                  "\"%d\"}",
                  role_name(role), i, role_name(role), i,
                  (int)node_int(w, "generation", 1));
    if (node_get(w, "world"))
        strbuf_printf(&t, ",\"annotations\":{\"ringmaster.dev/world\":\"%s\"}",
                      node_str(w, "world"));
    if (node_bool(w, "deleting", false))
        strbuf_puts(&t, ",\"deletionTimestamp\":\"2026-01-01T00:01:30Z\","
                        "\"deletionGracePeriodSeconds\":30");
    if (node_str(w, "finalizer"))
        strbuf_printf(&t, ",\"finalizers\":[\"%s\"]", node_str(w, "finalizer"));
    strbuf_printf(&t,
                  "},\"spec\":{\"nodeName\":\"%s\",\"initContainers\":[{\"name\":"
                  "\"ringmaster-install\",\"image\":\"%s\"}],%s\"containers\":[{"
                  "\"name\":\"train\"}]},\"status\":{\"phase\":\"%s\"",
                  said_or(w, "node", node), said_or(w, "runtime", "runtime:1"),
                  node_bool(w, "stopped", false) ? "\"activeDeadlineSeconds\":1," : "",
                  node_str(w, "phase"));
    if (node_str(w, "reason"))
        strbuf_printf(&t, ",\"reason\":\"%s\",\"message\":\"as Kubernetes says\"",
                      node_str(w, "reason"));
    strbuf_printf(&t, ",\"conditions\":[{\"type\":\"Ready\",\"status\":\"%s\"}",
                  strcmp(node_str(w, "phase"), "Running") == 0 ? "True" : "False");
    if (node_bool(w, "disrupted", false))
        strbuf_puts(&t, ",{\"type\":\"DisruptionTarget\",\"status\":\"True\","
                        "\"reason\":\"EvictionByEvictionAPI\",\"message\":\"m\"}");
    for (const struct node *c = more ? more->first : NULL; c; c = c->next)
        strbuf_printf(&t, ",{\"type\":\"%s\",\"status\":\"%s\"}", c->key, c->u.s);
    strbuf_puts(&t, "]");
    if (is_over)
        strbuf_printf(&t,
                      ",\"containerStatuses\":[{\"name\":\"train\",\"state\":{"
                      "\"terminated\":{\"exitCode\":%d,\"reason\":\"Error\","
                      "\"finishedAt\":\"2026-01-01T00:01:00Z\",\"message\":"
                      "\"%s\"}}}]",
                      (int)node_int(w, "exit", node_int(report, "exit", 0)), said);
    strbuf_puts(&t, "}}");
    if (json_read(a, strbuf_str(&t), t.n, &out, NULL) < 0)
        fail_msg("bad pod: %s", strbuf_str(&t));
    strbuf_release(&t);
    return out;
}

static void load_worker(const struct node *w,
                        enum role role,
                        uint32_t i,
                        struct arena *a,
                        struct worker *ret)
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
    w = spelt_out(a, gone ? gone : w, role, i);
    assert_int_equal(pod_decode(KUBE_JOB, as_watched(a, w),
                                arena_alloc(a, POD_CONDITIONS_SIZE), pod, NULL),
                     0);
    ret->state = gone ? WORKER_GONE : WORKER_SEEN;
    ret->pod = pod;
}

/* As many places as the job wants, or more. */
static void load_crew(struct fixture *f,
                      const struct node *list,
                      enum role role,
                      uint32_t wanted,
                      struct crew *ret)
{
    size_t n = list && list->n > wanted ? list->n : wanted;
    struct worker *w = arena_calloc(&f->arena, n + 1, sizeof(*w));
    uint32_t i = 0;

    assert_non_null(w);
    for (const struct node *c = list ? list->first : NULL; c; c = c->next, i++)
        load_worker(c, role, i, &f->arena, &w[i]);
    *ret = (struct crew){.w = w, .n = (uint32_t)n};
}

static uint64_t
load_observed(struct fixture *f, struct observed *seen, struct sync_outcome *outcome)
{
    size_t n = 0;
    char *text = read_text(f, "observed.json", &n);
    struct err err = ERR_INIT;
    struct job_shape shape;
    struct node *o;

    assert_non_null(text);
    if (json_read(&f->arena, text, n, &o, &err) < 0)
        fail_msg("%s: %s", f->dir, err.text);
    mem_free(text);
    *seen = (struct observed){0};
    front_horovodjob.shape(f->job, &shape);
    for (int r = 0; r < ROLE_COUNT; r++)
        load_crew(f,
                  node_get(o, r == ROLE_WORKER ? "workers" : role_title((enum role)r)),
                  (enum role)r, shape.n[r], &seen->crew[r]);
    if (node_bool(o, "secret", false))
        seen->fact[KUBE_SECRET].state = FACT_THERE;
    if (node_bool(o, "service", false))
        seen->fact[KUBE_SERVICE].state = FACT_THERE;
    if (node_get(o, "group"))
        seen->fact[KUBE_VOLCANO_GROUP].state =
            node_bool(o, "group", false) ? FACT_THERE : FACT_ABSENT;
    *outcome = (struct sync_outcome){.reason = "", .message = ""};
    if (node_get(o, "outcome")) {
        outcome->trouble = strcmp(node_str(o, "outcome.trouble"), "retry") == 0
                               ? TROUBLE_RETRY
                               : TROUBLE_REJECTED;
        outcome->reason = node_str(o, "outcome.reason");
        outcome->message = node_str(o, "outcome.message");
    }
    return (uint64_t)node_int(o, "now", 0);
}

static void print_action(const struct action *x, struct strbuf *out)
{
    struct strbuf body;

    strbuf_printf(out, "%u      %s %s %s", x->stage, verb_name(x->verb),
                  kube_kind_name(x->kind), x->name);
    if (x->uid)
        strbuf_printf(out, " uid=%s", x->uid);
    if (x->body) {
        strbuf_init(&body, 65536);
        json_write(x->body, &body);
        strbuf_printf(out, " %s", strbuf_str(&body));
        strbuf_release(&body);
    }
    strbuf_puts(out, "\n");
}

static void print_plan(const struct decision *d, struct strbuf *out)
{
    strbuf_printf(out, "state  %s %s: %s\n", state_name(d->state), d->reason,
                  d->message);
    for (size_t i = 0; i < d->plan.n; i++)
        print_action(&d->plan.v[i], out);
    for (size_t i = 0; i < d->n_notes; i++)
        strbuf_printf(out, "event  %s %s: %s\n",
                      d->note[i].is_warning ? "Warning" : "Normal", d->note[i].reason,
                      d->note[i].message);
    if (d->requeue_ms)
        strbuf_printf(out, "again  after %llu ms\n", (unsigned long long)d->requeue_ms);
}

static void decide(struct fixture *f,
                   const struct observed *seen,
                   const struct sync_outcome *outcome,
                   uint64_t now_s,
                   struct decision *ret)
{
    static const struct object_config cfg = {.runtime_image = "runtime:1",
                                             .cluster_domain = ""};
    struct question q = {.job = f->job,
                         .seen = seen,
                         .outcome = outcome,
                         .cfg = &cfg,
                         .now_wall_s = now_s,
                         .arena = &f->arena};

    assert_int_equal(front_horovodjob.decide(&q, ret), 0);
}

/* The snapshot's pods live only until the shell waits; the decision is used after that.
 */
static void spoil(const struct pod *p)
{
    char *const texts[] = {p->name,    p->node,           p->reason,
                           p->message, p->exit_container, p->exit_text};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        memset(texts[i], '?', strlen(texts[i]));
}

static void spoil_all(const struct observed *seen)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            if (seen->crew[r].w[i].pod)
                spoil(seen->crew[r].w[i].pod);
        }
    }
}

static void must_outlive_pods(const struct observed *seen, const struct decision *d)
{
    struct strbuf before, after;

    strbuf_init(&before, 1u << 20);
    strbuf_init(&after, 1u << 20);
    print_plan(d, &before);
    spoil_all(seen);
    print_plan(d, &after);
    assert_string_equal(strbuf_str(&before), strbuf_str(&after));
    strbuf_release(&before);
    strbuf_release(&after);
}

/* What has been written is not written again, unless it leads on: the same world gives
 * the same status. */
static void must_not_repeat(struct fixture *f,
                            const struct observed *seen,
                            const struct sync_outcome *outcome,
                            uint64_t now_s,
                            const struct decision *d)
{
    const struct node *old = f->job->status;
    struct decision again;

    if (state_of_status(old) != d->state || !old
        || node_int(old, "generation", 1) != node_int(d->status, "generation", 1))
        return;
    f->job->status = d->status;
    decide(f, seen, outcome, now_s, &again);
    if (again.state == d->state)
        assert_true(node_equal(d->status, again.status));
}

static void run_plan(struct fixture *f)
{
    struct observed seen;
    struct sync_outcome outcome;
    struct decision d;
    struct strbuf out;
    uint64_t now_s;

    load_job(f);
    now_s = load_observed(f, &seen, &outcome);
    if (f->problems.n > 0)
        outcome = (struct sync_outcome){.trouble = TROUBLE_REJECTED,
                                        .is_of_spec = true,
                                        .reason = "InvalidSpec",
                                        .message = strbuf_str(&f->problems)};
    decide(f, &seen, &outcome, now_s, &d);
    strbuf_init(&out, 1u << 20);
    print_plan(&d, &out);
    compare(f, "plan.txt", &out);
    strbuf_clear(&out);
    json_write_pretty(d.status, &out);
    compare(f, "status.json", &out);
    strbuf_release(&out);

    must_not_repeat(f, &seen, &outcome, now_s, &d);
    must_outlive_pods(&seen, &d);
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
    const struct hvd_job *job;
    struct node *all = node_array(&b);

    load_job(f);
    job = (const struct hvd_job *)(const void *)f->job;
    assert_string_equal(strbuf_str(&f->problems), "");
    memset(secrets.token, 0xab, sizeof(secrets.token));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        x.kind = kinds[i];
        if (object_is_wanted(job, &cfg, x.kind))
            add(f, &b, all,
                front_horovodjob.build(&b, f->job, &cfg, &x, &secrets, &err), &err);
    }
    x.kind = KUBE_POD;
    for (int r = 0; r < ROLE_COUNT; r++) {
        if (job->role[r].n == 0)
            continue;
        x.role = (enum role)r;
        x.index = job->role[r].n - 1;
        add(f, &b, all, front_horovodjob.build(&b, f->job, &cfg, &x, &secrets, &err),
            &err);
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Lives of MPIJobs, step by step.
 *
 * The cases are in tests/golden/mpi-run (tests/unit/golden.h): differences to the job in
 * base.yaml as "a.path: value"; was, the name of a stored status there (none when absent);
 * gang, which scheduler the operator is configured for; and steps.
 *
 * A step is what is seen at a time; its plan counts as carried out, unless it has an
 * outcome, and its status as stored. Fields of a step:
 *   what, now       a title; seconds
 *   set             {path.in.the.job: value} from here on
 *   workers         absent | expected | overdue | gone, or a phase: pending running
 *                   ready succeeded failed evicted; behind it "deleting", "@second"
 *                   (runs, or has ended, since), "~second" (was made) and "^second"
 *                   (was to be deleted, and a finalizer holds it)
 *   launcher        absent | expected | overdue | gone, or {state, suspended, started,
 *                   deleting, ttl, complete: time, reason, message, failed: n}
 *   launchers       pods of the launcher, as workers; or {phase, reason, message, at, exit, text}
 *   outcome         {trouble: retry | rejected, reason, message, conflict}
 *   restart         the operator knows nothing but what watches show
 *   found           what it looks for is there
 *
 * The transcript has what a step changes in the stored status; nothing if it stays.
 *
 * Each step is decided three times, as in a sync and after it: the last time nothing
 * may change. */
#include "tests/unit/unit.h"

#include "operator/core/front.h"
#include "tests/unit/golden.h"
#include "tests/unit/mpi_fixture.h"
#include "tests/unit/torture.h"

#define MAX_PODS 8

struct run {
    struct mpi_fixture *f;
    const struct node *step;
    struct object_config cfg;
    struct observed seen;
    struct worker worker[MAX_PODS];
    struct pod pod[MAX_PODS], launcher_pod[MAX_PODS];
    const struct pod *launcher_pods[MAX_PODS];
    struct batch_job batch;
    struct sync_outcome outcome;
    struct fact fact[KUBE_KIND_COUNT]; /* from step to step */
    const char *name;                  /* of the case */
    struct strbuf *out;                /* the transcript */
};

static const struct sync_outcome no_trouble = {.reason = "", .message = ""};

/* --- what is seen ---------------------------------------------------------------- */

/* Fields are char * because a copy owns them; nothing is changed through these. */
static char *text_borrow(const char *s)
{
    return (char *)(uintptr_t)s;
}

static char *node_borrow_text(const struct node *o, const char *key, const char *dflt)
{
    const char *s = node_str(o, key);

    return text_borrow(s ? s : dflt);
}

static struct pod make_pod(const char *name, const char *words)
{
    static const struct {
        const char *word;
        enum pod_phase phase;
    } phases[] = {{"pending", POD_PENDING}, {"running", POD_RUNNING},
                  {"ready", POD_RUNNING},   {"succeeded", POD_SUCCEEDED},
                  {"failed", POD_FAILED},   {"evicted", POD_FAILED}};
    const char *at = strchr(words, '@'), *made = strchr(words, '~');
    const char *ending = strchr(words, '^');
    struct pod p = {.ns = text_borrow("lab"),
                    .name = text_borrow(name),
                    .uid = text_borrow(name),
                    .reason =
                        text_borrow(strncmp(words, "evicted", 7) == 0 ? "Evicted" : ""),
                    .message = text_borrow(""),
                    .exit_text = text_borrow(""),
                    .waiting = text_borrow(""),
                    .wait_reason = text_borrow(""),
                    .wait_container = text_borrow(""),
                    .hint = text_borrow(""),
                    .node = text_borrow("n1"),
                    .finalizer = text_borrow(ending ? "a/b" : ""),
                    .ip = text_borrow(""),
                    .phase = POD_UNKNOWN};

    for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
        if (strncmp(words, phases[i].word, strlen(phases[i].word)) == 0)
            p.phase = phases[i].phase;
    }
    assert_true(p.phase != POD_UNKNOWN);
    p.is_ready = strncmp(words, "ready", 5) == 0;
    p.is_deleting = strstr(words, "deleting") != NULL;
    if (at && p.phase == POD_RUNNING)
        p.run_wall_us = strtoull(at + 1, NULL, 10) * 1000000u;
    else if (at)
        p.exit_wall_us = strtoull(at + 1, NULL, 10) * 1000000u;
    if (ending)
        p.delete_wall_us = strtoull(ending + 1, NULL, 10) * 1000000u;
    if (made)
        p.made_wall_us = strtoull(made + 1, NULL, 10) * 1000000u;
    return p;
}

static enum worker_state named_state(const char *s)
{
    if (strcmp(s, "absent") == 0)
        return WORKER_ABSENT;
    if (strcmp(s, "expected") == 0 || strcmp(s, "overdue") == 0)
        return WORKER_EXPECTED;
    return strcmp(s, "gone") == 0 ? WORKER_GONE : WORKER_SEEN;
}

static void see_workers(struct run *r)
{
    const struct node *list = node_get(r->step, "workers");
    uint32_t n = 0;

    for (const struct node *c = list ? list->first : NULL; c; c = c->next, n++) {
        char *name = arena_printf(&r->f->arena, "pi-worker-%u", n);

        assert_true(n < MAX_PODS);
        r->worker[n] = (struct worker){.state = named_state(c->u.s),
                                       .is_overdue = strcmp(c->u.s, "overdue") == 0};
        if (r->worker[n].state != WORKER_SEEN)
            continue;
        r->pod[n] = make_pod(name, c->u.s);
        r->worker[n].pod = &r->pod[n];
    }
    for (; n < r->f->job->worker.n; n++)
        r->worker[n] = (struct worker){.state = WORKER_ABSENT};
    r->seen.crew[ROLE_WORKER] = (struct crew){.w = r->worker, .n = n};
}

static void see_launcher(struct run *r)
{
    const struct node *o = node_get(r->step, "launcher");
    const char *state = !o                       ? "absent"
                        : o->type == NODE_STRING ? o->u.s
                                                 : node_borrow_text(o, "state", "seen");

    r->seen.batch_state = named_state(state);
    r->seen.is_batch_overdue = strcmp(state, "overdue") == 0;
    r->batch =
        (struct batch_job){.uid = text_borrow("launcher-uid"),
                           .resource_version = text_borrow("7"),
                           .reason = node_borrow_text(o, "reason", ""),
                           .message = node_borrow_text(o, "message", ""),
                           .completion_time = node_borrow_text(o, "complete", ""),
                           .is_complete = node_get(o, "complete") != NULL,
                           .is_failed = node_get(o, "reason") != NULL,
                           .is_suspended = node_bool(o, "suspended", false),
                           .has_start_time = node_bool(o, "started", false),
                           .ttl_s = node_int(o, "ttl", -1),
                           .is_deleting = node_bool(o, "deleting", false),
                           .failed = (uint32_t)node_int(o, "failed", 0)};
    if (r->seen.batch_state == WORKER_SEEN || r->seen.batch_state == WORKER_GONE)
        r->seen.batch = &r->batch;
}

static void see_launcher_pods(struct run *r)
{
    const struct node *list = node_get(r->step, "launchers");
    uint32_t n = 0;

    for (const struct node *c = list ? list->first : NULL; c; c = c->next, n++) {
        assert_true(n < MAX_PODS);
        r->launcher_pod[n] = make_pod(
            "pi-launcher-x", c->type == NODE_STRING ? c->u.s : node_str(c, "phase"));
        if (c->type == NODE_OBJECT) {
            r->launcher_pod[n].reason = node_borrow_text(c, "reason", "");
            r->launcher_pod[n].message = node_borrow_text(c, "message", "");
            r->launcher_pod[n].exit_text = node_borrow_text(c, "text", "");
            r->launcher_pod[n].exit_code = (int)node_int(c, "exit", 0);
            r->launcher_pod[n].has_exit = node_get(c, "exit") != NULL;
            r->launcher_pod[n].exit_container = text_borrow("launcher");
            r->launcher_pod[n].exit_wall_us = (uint64_t)node_int(c, "at", 0) * 1000000u;
        }
        r->launcher_pods[n] = &r->launcher_pod[n];
    }
    r->seen.batch_pods = r->launcher_pods;
    r->seen.n_batch_pods = n;
}

static void run_see_world(struct run *r)
{
    const char *trouble = node_str(r->step, "outcome.trouble");

    r->seen = (struct observed){.batch_state = WORKER_ABSENT};
    if (node_bool(r->step, "restart", false))
        memset(r->fact, 0, sizeof(r->fact));
    memcpy(r->seen.fact, r->fact, sizeof(r->fact));
    see_workers(r);
    see_launcher(r);
    see_launcher_pods(r);
    r->outcome = no_trouble;
    if (trouble)
        r->outcome = (struct sync_outcome){
            .trouble = strcmp(trouble, "retry") == 0 ? TROUBLE_RETRY : TROUBLE_REJECTED,
            .reason = node_str(r->step, "outcome.reason"),
            .message = node_str(r->step, "outcome.message"),
            .is_conflict = node_bool(r->step, "outcome.conflict", false)};
}

/* --- carrying out ---------------------------------------------------------------- */

static void run_apply_action(struct run *r, const struct action *x)
{
    struct fact *fact = &r->seen.fact[x->kind];

    if (x->kind == KUBE_POD && x->verb == VERB_CREATE)
        r->worker[x->index].state = WORKER_EXPECTED;
    else if (x->kind == KUBE_BATCH && x->verb == VERB_CREATE)
        r->seen.batch_state = WORKER_EXPECTED;
    else if (x->kind == KUBE_POD || x->kind == KUBE_BATCH)
        return;
    else if (x->verb == VERB_DELETE)
        fact->state = FACT_ABSENT;
    else if (x->verb == VERB_LOOK)
        fact->state = node_bool(r->step, "found", false) ? FACT_THERE : FACT_ABSENT;
    else {
        fact->state = FACT_THERE;
        memcpy(fact->digest, x->digest, sizeof(fact->digest));
    }
    (void)snprintf(fact->uid, sizeof(fact->uid), "%s-uid",
                   fact->state == FACT_THERE ? kube_kind_name(x->kind) : "no");
}

/* --- the transcript -------------------------------------------------------------- */

/* The part of the body that is printed: of a ConfigMap its script, of what is created
 * its spec; NULL: none. */
static const struct node *action_shown(const struct action *x)
{
    const struct node *script =
        node_get(node_get(x->body, "data"), "discover_hosts.sh");

    if (script || x->verb == VERB_UPDATE)
        return script ? script : x->body;
    return x->kind == KUBE_SERVICE ? NULL : node_get(x->body, "spec");
}

static void print_decision(struct run *r, const struct decision *d)
{
    for (size_t i = 0; i < d->n_notes; i++)
        strbuf_printf(r->out, "  %s%s %s: %s\n",
                      d->note[i].is_warning ? "Warning" : "Normal",
                      d->note[i].repeat == EVENT_COUNTED ? "*" : "", d->note[i].reason,
                      d->note[i].message);
    strbuf_printf(r->out, "state %s %s\n", state_name(d->state), d->reason);
    if (d->requeue_ms)
        strbuf_printf(r->out, "  again after %llu ms\n",
                      (unsigned long long)d->requeue_ms);
    if (!d->status)
        strbuf_puts(r->out, "status is left alone\n");
    else
        golden_changes("status", r->f->job->meta.status, d->status, NULL, r->out);
}

/* --- a step ---------------------------------------------------------------------- */

static void
run_decide(struct run *r, const struct sync_outcome *outcome, struct decision *ret)
{
    const struct question q = {.job = &r->f->job->meta,
                               .seen = &r->seen,
                               .outcome = outcome,
                               .cfg = &r->cfg,
                               .now_wall_s = (uint64_t)node_int(r->step, "now", 0),
                               .arena = &r->f->arena};

    assert_int_equal(front_mpijob.decide(&q, ret), 0);
    assert_true(ret->plan.n <= ret->plan.cap);
    for (size_t i = 1; i < ret->plan.n; i++)
        assert_true(ret->plan.v[i].stage >= ret->plan.v[i - 1].stage);
}

static void set_fields(struct run *r)
{
    struct build b = {.arena = &r->f->arena};
    const struct node *set = node_get(r->step, "set");

    for (const struct node *c = set ? set->first : NULL; c; c = c->next)
        golden_set(&b, r->f->object, c->key, c);
}

static void check_quiet(struct run *r)
{
    struct decision d;

    /* a failed action fails again, until it is carried out */
    run_decide(r, r->outcome.trouble == TROUBLE_RETRY ? &r->outcome : &no_trouble, &d);
    if (d.status && !node_equal(d.status, r->f->job->meta.status)) {
        strbuf_puts(r->out, "  written again:\n");
        golden_changes("status", r->f->job->meta.status, d.status, NULL, r->out);
        fail_msg("%s: %s: status is not stable:\n%s", r->name,
                 node_str(r->step, "what"), strbuf_str(r->out));
    }
    for (size_t i = 0; i < d.n_notes; i++) {
        if (!d.note[i].is_warning || d.note[i].repeat != EVENT_COUNTED)
            fail_msg("%s: %s: told again: %s", r->name, node_str(r->step, "what"),
                     d.note[i].reason);
    }
}

static void run_step(struct run *r)
{
    struct build b = {.arena = &r->f->arena};
    struct decision d;

    set_fields(r);
    fixture_open(r->f);
    run_see_world(r);
    strbuf_printf(r->out, "step: %s\n", node_str(r->step, "what"));
    run_decide(r, &no_trouble, &d);
    golden_actions(&d.plan, "  ", action_shown, r->out);
    for (size_t i = 0; r->outcome.trouble == TROUBLE_NONE && i < d.plan.n; i++)
        run_apply_action(r, &d.plan.v[i]);
    run_decide(r, &r->outcome, &d);
    print_decision(r, &d);
    if (d.status)
        node_set(&b, r->f->object, "status", node_copy(&b, d.status));
    memcpy(r->fact, r->seen.fact, sizeof(r->fact));
    fixture_open(r->f);
    check_quiet(r);
}

static void run_case(void *arg, const char *name, const char *input, struct strbuf *out)
{
    CLEANUP(fixture_release) struct mpi_fixture f;
    struct run r = {.f = &f, .name = name, .out = out};
    struct build b = {.arena = &f.arena};
    const struct node *base, *in, *was;
    const char *gang;

    fixture_init(&f);
    base = golden_yaml(&f.arena, arg);
    in = golden_yaml(&f.arena, input);
    was = node_get(in, "was");
    f.object = node_copy(&b, node_get(base, "job"));
    if (was)
        node_set(&b, f.object, "status",
                 node_copy(&b, golden_find(node_get(base, "status"), was->u.s)));
    for (const struct node *c = in->first; c; c = c->next) {
        if (strchr(c->key, '.'))
            golden_set(&b, f.object, c->key, c);
    }
    fixture_open(&f);
    gang = node_str(in, "gang");
    r.cfg = (struct object_config){.runtime_image = "r",
                                   .cluster_domain = "",
                                   .gang = !gang ? GANG_NONE
                                           : strcmp(gang, "volcano") == 0
                                               ? GANG_VOLCANO
                                               : GANG_SCHEDULER_PLUGINS,
                                   .gang_scheduler = gang ? gang : ""};
    for (r.step = node_get(in, "steps")->first; r.step; r.step = r.step->next)
        run_step(&r);
}

UNIT_TEST(lives_are_as_in_the_golden_files)
{
    char *base = golden_read("tests/golden/mpi-run/base.yaml");

    golden_folder("tests/golden/mpi-run", run_case, base);
    mem_free(base);
}

/* --- out of memory --------------------------------------------------------------- */

#define TORTURED                                                                       \
    "metadata: {name: pi, namespace: lab, uid: u}\n"                                   \
    "spec: {runPolicy: {activeDeadlineSeconds: 60, suspend: %s}, slotsPerWorker: %d, " \
    "mpiReplicaSpecs: {Launcher: {template: {spec: {nodeSelector: {a: b}, "            \
    "containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}, Worker: {replicas: " \
    "2, template: {spec: {containers: [{name: c}]}}}}}"

static int look_once(struct run *r, struct arena *a)
{
    static const enum kube_kind kinds[] = {KUBE_POD, KUBE_BATCH, KUBE_SECRET};
    const struct secrets secrets = {.ssh_private = "p", .ssh_public = "q"};
    struct question q = {.outcome = &r->outcome,
                         .seen = &r->seen,
                         .cfg = &r->cfg,
                         .now_wall_s = 100,
                         .arena = a};
    struct build b = {.arena = a};
    struct job_meta meta;
    struct decision d;
    struct strbuf problems;
    int rc;

    strbuf_init(&problems, 65536);
    rc = meta_decode(KUBE_MPIJOB, r->f->object, &meta, NULL);
    q.job = rc < 0 ? NULL : front_mpijob.open(r->f->object, &meta, a, &problems);
    strbuf_release(&problems);
    if (!q.job)
        return -ENOMEM;
    rc = front_mpijob.decide(&q, &d);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(kinds); i++) {
        const struct action x = {.kind = kinds[i], .name = "n"};
        struct err err = ERR_INIT;

        if (!front_mpijob.build(&b, q.job, &r->cfg, &x, &secrets, &err))
            rc = err.code;
    }
    return rc;
}

static int look_and_forget(void *arg)
{
    struct arena a;
    int rc;

    arena_init(&a, MPI_ARENA_BYTES);
    rc = look_once(arg, &a);
    arena_release(&a);
    return rc;
}

UNIT_TEST(memory_may_run_out)
{
    static const struct {
        const char *suspend;
        int slots;
        enum trouble trouble;
    } row[] = {{"false", 1, TROUBLE_NONE},
               {"false", 1, TROUBLE_REJECTED},
               {"true", 1, TROUBLE_RETRY},
               {"false", -1, TROUBLE_NONE}};

    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        CLEANUP(fixture_release) struct mpi_fixture f;
        struct run r = {.f = &f,
                        .cfg = {.runtime_image = "r",
                                .cluster_domain = "",
                                .gang = GANG_VOLCANO,
                                .gang_scheduler = "volcano"},
                        .outcome = {.trouble = row[i].trouble,
                                    .reason = "NameTaken",
                                    .message = "Pod x: taken"}};
        char yaml[1024];

        (void)snprintf(yaml, sizeof(yaml), TORTURED, row[i].suspend, row[i].slots);
        fixture_start(&f, yaml);
        r.step = node_object(&(struct build){.arena = &f.arena});
        see_workers(&r);
        r.batch = (struct batch_job){.uid = text_borrow("u"),
                                     .resource_version = text_borrow("7"),
                                     .reason = text_borrow(""),
                                     .message = text_borrow(""),
                                     .completion_time = text_borrow(""),
                                     .is_suspended = true,
                                     .has_start_time = true};
        r.seen.batch_state = WORKER_SEEN;
        r.seen.batch = &r.batch;
        torture(look_and_forget, &r);
    }
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* The HorovodJob planner: what it decides in one sync, case by case.
 *
 * tests/golden/plan/base.yaml has the jobs and the stored statuses, and the cases of the
 * other files (tests/unit/golden.h) are differences to those. Members of a case:
 *   job             the name of a job in base.yaml (default: plain), or a whole job
 *   was             the name of a stored status in base.yaml, or a whole status; none
 *                   when absent
 *   a.path          the value at that path of the job; null: no value
 *   now             seconds since 2026-01-01T00:00:00Z (default: 100)
 *   workers, Launcher, PS, Chief, Evaluator
 *                   the pods of that role: absent | expected | overdue, or a POD
 *   secret, service, group
 *                   true: that object is known to exist (the default of the first two
 *                   once a status is stored); group: false: it does not
 *   outcome         {trouble: retry | rejected, reason, message} of the last sync
 *
 * POD is a phase, or an object:
 *   phase           Pending | Running | Succeeded | Failed
 *   gone            true: the pod no longer exists, and this is what was last seen of it
 *   unlisted        true: and it disappeared while no watch was open
 *   generation, world, node, finalizer, reason, message, deleting
 *                   as in the pod; by default the generation and the world of the
 *                   stored status, where the pod has one
 *   disrupted       true: condition DisruptionTarget, with the message "disruption" and
 *                   the reason "disruptedBy"
 *   conditions      {type: status}, more of them
 *   made            its creationTimestamp; none by default
 *   stopped         true: activeDeadlineSeconds is 1
 *   tracked         true: it has the operator's finalizer
 *   runtime         the image of the init container
 *   waiting, unscheduled
 *                   why its container does not run; why it has no node
 *   exit, exitReason, text, at
 *                   how container "train" ended: code, reason, message, time
 *   report          the failure report in its message: {rank, exit, signal, why, us,
 *                   output, host or "of" (a worker's index), at}
 *   others          containers besides "train": [{name, exit, exitReason, text, at,
 *                   init: true, restarts: true}]; without an exit they run, "since"
 *
 * The transcript has the state, the actions of the plan with their stage, the events,
 * and what is written to the status, as differences to the stored one with the counts of
 * the pods. If the job becomes Failed, Succeeded or Restarting, the differences are to
 * what that change writes to every job (op_plan_status.h), and the event of that change
 * has no line. */
#include "tests/unit/unit.h"

#include "operator/core/hvd/hvd_objects.h"
#include "tests/unit/golden.h"
#include "tests/unit/op_plan_status.h"

#define FOLDER      "tests/golden/plan"
#define ARENA_BYTES (16u << 20)
#define START_S     1767225600u /* 2026-01-01T00:00:00Z */

static const struct object_config cfg = {.runtime_image = "runtime:1",
                                         .cluster_domain = ""};

struct fixture {
    struct arena arena;
    struct build b;
    const struct node *input;
    const struct node *stored; /* status; NULL: none */
    struct job_meta *job;
    struct strbuf problems;
};

/* --- input ----------------------------------------------------------------------- */

/* The member of that name in base.yaml's section, with what all members of the section
 * have, or the member itself if it is whole. */
static struct node *plan_base(struct fixture *f,
                              const struct node *base,
                              const char *section,
                              const struct node *what,
                              const char *dflt)
{
    const char *name = what ? what->u.s : dflt;
    struct node *o;

    if (what && what->type == NODE_OBJECT)
        return node_copy(&f->b, what);
    what = node_get(node_get(base, section), name);
    if (!what)
        fail_msg("base.yaml has no %s %s", section, name);
    o = node_copy(&f->b, node_get(node_get(base, section), "all"));
    for (const struct node *c = what->first; c; c = c->next)
        golden_set(&f->b, o, c->key, c);
    return o;
}

static void plan_open_job(struct fixture *f)
{
    struct err err = ERR_INIT;
    struct job_meta meta;
    char *text = golden_read(FOLDER "/base.yaml");
    const struct node *base = golden_yaml(&f->arena, text);
    const struct node *was = node_get(f->input, "was");
    struct node *o = plan_base(f, base, "job", node_get(f->input, "job"), "plain");

    mem_free(text);
    if (was)
        node_set(&f->b, o, "status", plan_base(f, base, "status", was, ""));
    for (const struct node *c = f->input->first; c; c = c->next) {
        if (strchr(c->key, '.'))
            golden_set(&f->b, o, c->key, c);
    }
    f->stored = node_get(o, "status");
    assert_int_equal(meta_decode(KUBE_JOB, o, &meta, &err), 0);
    strbuf_init(&f->problems, 65536);
    f->job = front_horovodjob.open(o, &meta, &f->arena, &f->problems);
    assert_non_null(f->job);
}

/* What is left of a pod when it arrives by a watch. */
static const struct node *plan_prune_pod(struct arena *a, const struct node *pod)
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

static const char *str_or(const struct node *o, const char *key, const char *dflt)
{
    const char *s = node_str(o, key);

    return s ? s : dflt;
}

/* The termination message of an agent whose rank has failed. */
static char *
plan_report(struct arena *a, const struct node *report, enum role role, uint32_t i)
{
    const char *of = role_name(node_get(report, "of") ? ROLE_WORKER : role);
    char *host = arena_printf(a, "demo-%s-%u", of, (unsigned)node_int(report, "of", i));
    char *at = arena_printf(
        a, "%lld", (START_S + 60) * 1000000ll + (long long)node_int(report, "us", 0));

    return arena_printf(a,
                        "ringmaster-failure/1 rank=%d host=%s exit=%d signal=%d at=%s "
                        "why=\"%s\"\n%s",
                        (int)node_int(report, "rank", i), str_or(report, "host", host),
                        (int)node_int(report, "exit", 0),
                        (int)node_int(report, "signal", 0), str_or(report, "at", at),
                        str_or(report, "why", ""),
                        str_or(report, "output", "last line\n"));
}

static void
plan_set(struct build *b, struct node *o, const char *path, const char *value)
{
    golden_set(b, o, path, node_string(b, value));
}

static void plan_add_condition(struct build *b,
                               struct node *pod,
                               const char *type,
                               const char *status,
                               const char *reason,
                               const char *message)
{
    struct node *list = node_child(b, node_child(b, pod, "status", NODE_OBJECT),
                                   "conditions", NODE_ARRAY);
    struct node *c = node_object(b);

    node_set_str(b, c, "type", type);
    node_set_str(b, c, "status", status);
    if (reason)
        node_set_str(b, c, "reason", reason);
    if (message)
        node_set_str(b, c, "message", message);
    node_add(b, list, c);
}

static void plan_add_conditions(struct build *b, struct node *pod, const struct node *w)
{
    const struct node *more = node_get(w, "conditions");
    bool is_ready =
        strcmp(node_str(w, "phase"), "Running") == 0 && !node_get(w, "exit");

    plan_add_condition(b, pod, "Ready", is_ready ? "True" : "False", NULL, NULL);
    if (node_bool(w, "disrupted", false))
        plan_add_condition(b, pod, "DisruptionTarget", "True",
                           str_or(w, "disruptedBy", "EvictionByEvictionAPI"),
                           str_or(w, "disruption", "m"));
    if (node_get(w, "unscheduled"))
        plan_add_condition(b, pod, "PodScheduled", "False", "Unschedulable",
                           node_str(w, "unscheduled"));
    for (const struct node *c = more ? more->first : NULL; c; c = c->next)
        plan_add_condition(b, pod, c->key, c->u.s, NULL, NULL);
}

/* Adds the container's status: that it has ended, if w has an exit, or it runs. */
static void plan_add_status(struct build *b,
                            struct node *pod,
                            const char *list,
                            const char *name,
                            const struct node *w,
                            const char *text)
{
    struct node *o = node_object(b);
    struct node *all =
        node_child(b, node_child(b, pod, "status", NODE_OBJECT), list, NODE_ARRAY);
    int64_t code = node_int(w, "exit", node_int(w, "report.exit", 0));

    node_set_str(b, o, "name", name);
    if (node_get(w, "exit") || node_get(w, "report")) {
        plan_set(b, o, "state.terminated.reason", str_or(w, "exitReason", "Error"));
        plan_set(b, o, "state.terminated.finishedAt",
                 str_or(w, "at", "2026-01-01T00:01:00Z"));
        if (node_str(w, "since"))
            plan_set(b, o, "state.terminated.startedAt", node_str(w, "since"));
        golden_set(b, o, "state.terminated.exitCode", node_number(b, code));
        if (text)
            plan_set(b, o, "state.terminated.message", text);
    } else if (node_get(w, "waiting")) {
        plan_set(b, o, "state.waiting.reason", "ErrImagePull");
        plan_set(b, o, "state.waiting.message", node_str(w, "waiting"));
    } else {
        golden_set(b, o, "state.running", node_object(b));
        if (node_str(w, "since"))
            plan_set(b, o, "state.running.startedAt", node_str(w, "since"));
    }
    node_add(b, all, o);
}

static struct node *plan_add_container(struct build *b,
                                       struct node *pod,
                                       const char *list,
                                       const char *name)
{
    struct node *o = node_object(b);

    node_set_str(b, o, "name", name);
    node_add(
        b, node_child(b, node_child(b, pod, "spec", NODE_OBJECT), list, NODE_ARRAY), o);
    return o;
}

static void plan_add_others(struct build *b, struct node *pod, const struct node *list)
{
    for (const struct node *c = list ? list->first : NULL; c; c = c->next) {
        const char *name = node_str(c, "name");
        bool is_init = node_bool(c, "init", false);
        struct node *o;

        plan_add_status(b, pod, is_init ? "initContainerStatuses" : "containerStatuses",
                        name, c, node_str(c, "text"));
        if (is_init && strcmp(name, "ringmaster-install") == 0)
            continue;
        o = plan_add_container(b, pod, is_init ? "initContainers" : "containers", name);
        if (node_bool(c, "restarts", false))
            node_set_str(b, o, "restartPolicy", "Always");
    }
}

/* The pod as the API server has it. */
static const struct node *
plan_make_pod(struct fixture *f, const struct node *w, enum role role, uint32_t i)
{
    struct build *b = &f->b;
    struct arena *a = &f->arena;
    struct node *pod = node_object(b), *owner = node_object(b), *meta;
    int generation =
        (int)node_int(w, "generation", node_int(f->stored, "generation", 1));
    const char *world = node_str(w, "world"), *text = node_str(w, "text");
    const struct hvd_job *job = (const struct hvd_job *)(const void *)f->job;

    if (!world && role == (job->elastic.is_set ? ROLE_LAUNCHER : ROLE_WORKER))
        world = arena_printf(
            a, "%d %d", generation,
            (int)node_int(f->stored, "workerReplicas", job->role[ROLE_WORKER].n)
                + (int)job->elastic.spares);
    meta = node_child(b, pod, "metadata", NODE_OBJECT);
    node_set_str(b, meta, "namespace", "ns");
    node_set_str(b, meta, "name", arena_printf(a, "demo-%s-%u", role_name(role), i));
    node_set_str(b, meta, "uid", arena_printf(a, "uid-%s-%u", role_name(role), i));
    node_set_str(b, owner, "uid", "job-uid");
    node_set_bool(b, owner, "controller", true);
    node_add(b, node_child(b, meta, "ownerReferences", NODE_ARRAY), owner);
    node_set_str(b, node_child(b, meta, "labels", NODE_OBJECT),
                 "ringmaster.dev/job-name", "demo");
    node_set_str(b, node_child(b, meta, "labels", NODE_OBJECT),
                 "ringmaster.dev/generation", arena_printf(a, "%d", generation));
    if (world && *world)
        node_set_str(b, node_child(b, meta, "annotations", NODE_OBJECT),
                     "ringmaster.dev/world", world);
    if (node_str(w, "made"))
        node_set_str(b, meta, "creationTimestamp", node_str(w, "made"));
    if (node_bool(w, "deleting", false)) {
        node_set_str(b, meta, "deletionTimestamp", "2026-01-01T00:01:30Z");
        node_set_int(b, meta, "deletionGracePeriodSeconds", 30);
    }
    if (node_bool(w, "tracked", false))
        node_add_str(b, node_child(b, meta, "finalizers", NODE_ARRAY),
                     "ringmaster.dev/tracking");
    if (node_str(w, "finalizer"))
        node_add_str(b, node_child(b, meta, "finalizers", NODE_ARRAY),
                     node_str(w, "finalizer"));
    plan_set(b, pod, "spec.nodeName", str_or(w, "node", arena_printf(a, "n%u", i)));
    node_set_str(b, plan_add_container(b, pod, "initContainers", "ringmaster-install"),
                 "image", str_or(w, "runtime", "runtime:1"));
    (void)plan_add_container(b, pod, "containers", "train");
    if (node_bool(w, "stopped", false))
        golden_set(b, pod, "spec.activeDeadlineSeconds", node_number(b, 1));
    plan_set(b, pod, "status.phase", node_str(w, "phase"));
    if (node_str(w, "reason")) {
        plan_set(b, pod, "status.reason", node_str(w, "reason"));
        plan_set(b, pod, "status.message", str_or(w, "message", "as Kubernetes says"));
    }
    plan_add_conditions(b, pod, w);
    plan_add_others(b, pod, node_get(w, "others"));
    if (node_get(w, "report"))
        text = plan_report(a, node_get(w, "report"), role, i);
    if (node_get(w, "exit") || node_get(w, "report") || node_get(w, "waiting"))
        plan_add_status(b, pod, "containerStatuses", "train", w, text ? text : "");
    assert_int_equal(b->status, 0);
    return pod;
}

static void plan_load_worker(struct fixture *f,
                             const struct node *w,
                             enum role role,
                             uint32_t i,
                             struct worker *ret)
{
    struct pod *pod = arena_alloc(&f->arena, sizeof(*pod));
    struct node *o;

    *ret = (struct worker){.state = WORKER_ABSENT};
    if (w->type == NODE_STRING && strcmp(w->u.s, "absent") == 0)
        return;
    if (w->type == NODE_STRING
        && (strcmp(w->u.s, "overdue") == 0 || strcmp(w->u.s, "expected") == 0)) {
        ret->is_overdue = strcmp(w->u.s, "overdue") == 0;
        ret->state = WORKER_EXPECTED;
        return;
    }
    if (w->type == NODE_STRING) {
        o = node_object(&f->b);
        node_set_str(&f->b, o, "phase", w->u.s);
        w = o;
    }
    ret->state = node_bool(w, "gone", false) ? WORKER_GONE : WORKER_SEEN;
    ret->pod = pod;
    o = node_copy(&f->b, w);
    w = plan_prune_pod(&f->arena, plan_make_pod(f, w, role, i));
    assert_int_equal(
        pod_decode(KUBE_JOB, w, arena_alloc(&f->arena, POD_CONDITIONS_SIZE), pod, NULL),
        0);
    pod->is_unlisted = node_bool(o, "unlisted", false);
}

/* As many pods as the job requires, or more. */
static void plan_load_crew(struct fixture *f,
                           const struct node *list,
                           enum role role,
                           uint32_t required,
                           struct crew *ret)
{
    size_t n = list && list->n > required ? list->n : required;
    struct worker *w = arena_calloc(&f->arena, n + 1, sizeof(*w));
    uint32_t i = 0;

    assert_non_null(w);
    for (const struct node *c = list ? list->first : NULL; c; c = c->next, i++)
        plan_load_worker(f, c, role, i, &w[i]);
    *ret = (struct crew){.w = w, .n = (uint32_t)n};
}

static void plan_load_observed(struct fixture *f,
                               struct observed *seen,
                               struct sync_outcome *outcome)
{
    const struct node *o = f->input;
    struct job_shape shape;

    *seen = (struct observed){0};
    front_horovodjob.shape(f->job, &shape);
    for (int r = 0; r < ROLE_COUNT; r++)
        plan_load_crew(
            f, node_get(o, r == ROLE_WORKER ? "workers" : role_title((enum role)r)),
            (enum role)r, shape.n[r], &seen->crew[r]);
    if (node_bool(o, "secret", f->stored != NULL))
        seen->fact[KUBE_SECRET].state = FACT_THERE;
    if (node_bool(o, "service", f->stored != NULL))
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
}

/* --- transcript ------------------------------------------------------------------ */

static const struct node *action_body(const struct action *x)
{
    return x->body;
}

static void plan_print_decision(const struct decision *d, struct strbuf *out)
{
    strbuf_printf(out, "%s %s: %s\n", state_name(d->state), d->reason, d->message);
    golden_actions(&d->plan, "", action_body, out);
    if (d->requeue_ms)
        strbuf_printf(out, "again after %llu ms\n", (unsigned long long)d->requeue_ms);
}

static void plan_print_events(const struct decision *d, struct strbuf *out)
{
    for (size_t i = 0; i < d->n_notes; i++)
        strbuf_printf(out, "%s event %s: %s\n",
                      d->note[i].is_warning ? "Warning" : "Normal", d->note[i].reason,
                      d->note[i].message);
}

static void plan_print_changes(struct fixture *f,
                               const struct observed *seen,
                               const struct decision *d,
                               struct strbuf *out)
{
    uint64_t now_s = START_S + (uint64_t)node_int(f->input, "now", 100);
    const struct event_note *e = d->note;
    bool has_ended = plan_has_ended(f->stored, d->state);

    if (has_ended && d->n_notes == 0)
        strbuf_puts(out, "no event\n");
    else if (!has_ended || d->n_notes > 1 || !e->is_warning
             || strcmp(e->reason, d->reason) != 0
             || strcmp(e->message, d->message) != 0)
        plan_print_events(d, out);
    golden_changes("status", plan_expect_status(&f->b, f->stored, seen, d, now_s),
                   d->status, NULL, out);
}

/* --- a case ---------------------------------------------------------------------- */

static void plan_decide(struct fixture *f,
                        const struct observed *seen,
                        const struct sync_outcome *outcome,
                        struct decision *ret)
{
    struct question q = {.job = f->job,
                         .seen = seen,
                         .outcome = outcome,
                         .cfg = &cfg,
                         .now_wall_s =
                             START_S + (uint64_t)node_int(f->input, "now", 100),
                         .arena = &f->arena};

    assert_int_equal(front_horovodjob.decide(&q, ret), 0);
    node_drop(ret->status, "goodput"); /* op_hvd_goodput_test.c has its cases */
    if (ret->n_notes && strcmp(ret->note[ret->n_notes - 1].reason, "Goodput") == 0)
        ret->n_notes--;
}

/* The pods of a snapshot live until the shell waits. The decision is used after that. */
static void plan_spoil_pods(const struct observed *seen)
{
    for (int r = 0; r < ROLE_COUNT; r++) {
        for (uint32_t i = 0; i < seen->crew[r].n; i++) {
            const struct pod *p = seen->crew[r].w[i].pod;
            char *const texts[] = {
                p ? p->name : NULL,           p ? p->node : NULL,
                p ? p->reason : NULL,         p ? p->message : NULL,
                p ? p->exit_container : NULL, p ? p->exit_text : NULL};

            for (size_t k = 0; p && k < ARRAY_LEN(texts); k++)
                memset(texts[k], '?', strlen(texts[k]));
        }
    }
}

static void decision_must_outlive_pods(const struct observed *seen,
                                       const struct decision *d)
{
    struct strbuf before, after;

    strbuf_init(&before, 1u << 20);
    strbuf_init(&after, 1u << 20);
    plan_print_decision(d, &before);
    plan_print_events(d, &before);
    plan_spoil_pods(seen);
    plan_print_decision(d, &after);
    plan_print_events(d, &after);
    assert_string_equal(strbuf_str(&before), strbuf_str(&after));
    strbuf_release(&before);
    strbuf_release(&after);
}

/* A second sync in the same world writes the same status, unless the first one changed
 * the state or the generation. */
static void status_must_not_change_again(struct fixture *f,
                                         const struct observed *seen,
                                         const struct sync_outcome *outcome,
                                         const struct decision *d)
{
    const struct node *old = f->job->status;
    struct decision again;

    if (state_of_status(old) != d->state || !old
        || node_int(old, "generation", 1) != node_int(d->status, "generation", 1))
        return;
    f->job->status = d->status;
    plan_decide(f, seen, outcome, &again);
    if (again.state == d->state)
        assert_true(node_equal(d->status, again.status));
}

static void
plan_run_case(void *arg, const char *name, const char *input, struct strbuf *out)
{
    struct fixture f = {.b = {.arena = &f.arena}};
    struct observed seen;
    struct sync_outcome outcome;
    struct decision d;

    (void)arg;
    (void)name;
    arena_init(&f.arena, ARENA_BYTES);
    f.input = golden_yaml(&f.arena, input);
    plan_open_job(&f);
    plan_load_observed(&f, &seen, &outcome);
    if (f.problems.n > 0)
        outcome = (struct sync_outcome){.trouble = TROUBLE_REJECTED,
                                        .is_of_spec = true,
                                        .reason = "InvalidSpec",
                                        .message = strbuf_str(&f.problems)};
    plan_decide(&f, &seen, &outcome, &d);
    plan_print_decision(&d, out);
    plan_print_changes(&f, &seen, &d, out);

    status_must_not_change_again(&f, &seen, &outcome, &d);
    decision_must_outlive_pods(&seen, &d);
    strbuf_release(&f.problems);
    arena_release(&f.arena);
}

UNIT_TEST(plans_are_as_in_the_golden_files)
{
    golden_folder(FOLDER, plan_run_case, NULL);
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* .status.goodput of HorovodJobs: stories of syncs in tests/golden/goodput. The status of
 * each sync is stored before the next one.
 *
 * Members of a case: a.path, the value at that path of the job; and syncs, a list of
 *   now       seconds since 2026-01-01T00:00:00Z, when the job was made
 *   a.path    as above, from then on
 *   workers   the pods, or those of the sync before: {bound, run, end, exit, deleted:
 *             times and exit code; made (default: 1), waiting, unscheduled; gone: true;
 *             runs: true (since when is not known); generation}
 *   quota     true: the pods could not be created
 *   live      {run, times: [meeting, starting, training, stalled], state, step, commit,
 *             stalls: a rank, at (default: now)}; for this sync only
 *
 * Each sync prints the state, what it writes of goodput ("as stored": nothing; "no write":
 * the status is that which is stored), and the Event. */
#include "tests/unit/unit.h"

#include "operator/core/goodput.h"
#include "operator/core/hvd/hvd_job.h"
#include "runtime/base/mem.h"
#include "runtime/live/live_report.h"
#include "tests/unit/golden.h"

#define ARENA_BYTES (16u << 20)
#define START_S     1767225600ull /* 2026-01-01T00:00:00Z */

struct story {
    struct arena arena;
    struct build b;
    struct node *job;
    const struct node *workers, *launcher; /* of the last sync that has some */
};

static const char job_yaml[] =
    "metadata: {name: demo, namespace: ns, uid: u, generation: 1, resourceVersion: '7',"
    " creationTimestamp: '2026-01-01T00:00:00Z'}\n"
    "spec:\n"
    "  runPolicy: {backoffLimit: 3}\n"
    "  replicaSpecs:\n"
    "    Worker:\n"
    "      replicas: 2\n"
    "      template: {spec: {containers: [{name: t, image: i, command: [c],\n"
    "        resources: {limits: {nvidia.com/gpu: 4}}}]}}\n";

static uint64_t story_us(const struct node *o, const char *key, int64_t dflt)
{
    int64_t s = node_int(o, key, dflt);

    return s >= 0 ? (START_S + (uint64_t)s) * 1000000u : 0;
}

static char *story_text(const struct node *o, const char *key)
{
    const char *s = node_str(o, key);

    return (char *)(uintptr_t)(s ? s : "");
}

/* Without times: those of a story need no document. */
static struct pod *story_new_pod(struct story *t, enum role role, uint32_t i)
{
    struct pod *p = arena_calloc(&t->arena, 1, sizeof(*p));
    struct node *o = node_object(&t->b);
    struct node *meta = node_child(&t->b, o, "metadata", NODE_OBJECT);

    node_set_str(&t->b, meta, "namespace", "ns");
    node_set_str(&t->b, meta, "name",
                 arena_printf(&t->arena, "demo-%s-%u", role_name(role), i));
    node_set_str(&t->b, meta, "uid",
                 arena_printf(&t->arena, "uid-%s-%u", role_name(role), i));
    assert_int_equal(
        pod_decode(KUBE_JOB, o, arena_alloc(&t->arena, POD_CONDITIONS_SIZE), p, NULL),
        0);
    return p;
}

static void story_load_pod(struct story *t,
                           const struct node *o,
                           enum role role,
                           uint32_t i,
                           const struct hvd_job *job,
                           struct worker *ret)
{
    struct pod *p = story_new_pod(t, role, i);
    bool has_world = role == (job->elastic.is_set ? ROLE_LAUNCHER : ROLE_WORKER);
    bool has_exit = node_get(o, "exit") != NULL;
    bool runs = node_get(o, "run") || node_bool(o, "runs", false);
    bool is_refused = node_str(o, "unscheduled") != NULL;

    if (node_get(o, "bound"))
        p->node = arena_printf(&t->arena, "n%u", i);
    p->waiting = story_text(o, is_refused ? "unscheduled" : "waiting");
    p->usual = is_refused ? 2 : 0; /* PodScheduled=False */
    p->role = (int)role;
    p->generation = (uint32_t)node_int(o, "generation", job->world_generation);
    p->world_generation = has_world ? p->generation : 0;
    p->world_workers = has_world ? job->role[ROLE_WORKER].n : 0;
    p->phase = runs ? POD_RUNNING : POD_PENDING;
    if (has_exit)
        p->phase = node_int(o, "exit", 0) ? POD_FAILED : POD_SUCCEEDED;
    p->is_deleting = node_get(o, "deleted") != NULL;
    p->has_exit = p->is_main_exit = has_exit;
    p->exit_code = (int)node_int(o, "exit", 0);
    p->made_wall_us = story_us(o, "made", 1);
    p->bound_wall_us = story_us(o, "bound", -1);
    p->begin_wall_us = story_us(o, "run", -1);
    p->exit_wall_us = story_us(o, "end", -1);
    p->delete_wall_us = story_us(o, "deleted", -1);
    *ret = (struct worker){
        .state = node_bool(o, "gone", false) ? WORKER_GONE : WORKER_SEEN, .pod = p};
}

static void story_load_live(const struct node *o, uint64_t now_s, struct live_report *r)
{
    const struct node *ms = node_get(o, "times");
    uint64_t *const to[] = {&r->times.meeting_ms, &r->times.starting_ms,
                            &r->times.training_ms, &r->times.stalled_ms};

    *r = (struct live_report){
        .at_wall_us = story_us(o, "at", (int64_t)(now_s - START_S)),
        .run_wall_us = story_us(o, "run", 0),
        .state = (enum live_state)node_int(o, "state", LIVE_TRAINING),
        .progress = {.step = node_int(o, "step", -1),
                     .commit_wall_us = story_us(o, "commit", -1)},
        .stall = {.since_wall_us = node_get(o, "stalls") ? 1 : 0,
                  .rank = (int32_t)node_int(o, "stalls", -1),
                  .cause = LIVE_CAUSE_DEADLOCK,
                  .host = "n1"}};
    for (size_t i = 0; i < ARRAY_LEN(to); i++)
        *to[i] = 1000u * (uint64_t)node_item(ms, i)->u.i;
}

static void story_load_crew(struct story *t,
                            const struct node *list,
                            enum role role,
                            const struct hvd_job *job,
                            struct crew *ret)
{
    uint32_t n = job->role[role].n, i = 0;
    struct worker *w;

    if (list && list->n > n)
        n = (uint32_t)list->n;
    w = arena_calloc(&t->arena, n + 1, sizeof(*w));
    for (const struct node *c = list ? list->first : NULL; c; c = c->next)
        story_load_pod(t, c, role, i, job, &w[i]), i++;
    *ret = (struct crew){.w = w, .n = n};
}

static void story_observe(struct story *t,
                          const struct node *sync,
                          const struct hvd_job *job,
                          uint64_t now_s,
                          struct observed *ret)
{
    struct live_report *live = arena_calloc(&t->arena, 1, sizeof(*live));

    *ret = (struct observed){.live = NULL};
    if (node_get(sync, "workers"))
        t->workers = node_get(sync, "workers");
    if (node_get(sync, "launcher"))
        t->launcher = node_get(sync, "launcher");
    story_load_crew(t, t->workers, ROLE_WORKER, job, &ret->crew[ROLE_WORKER]);
    story_load_crew(t, t->launcher, ROLE_LAUNCHER, job, &ret->crew[ROLE_LAUNCHER]);
    ret->fact[KUBE_SECRET].state = ret->fact[KUBE_SERVICE].state = FACT_THERE;
    if (node_get(sync, "live")) {
        story_load_live(node_get(sync, "live"), now_s, live);
        ret->live = live;
    }
}

static void story_print(struct story *t,
                        const struct decision *d,
                        uint64_t now_s,
                        struct strbuf *out)
{
    const struct node *was = node_get(t->job, "status");
    const struct node *goodput = node_get(d->status, "goodput");
    struct ledger l;

    strbuf_printf(out, "%llu %s\n", (unsigned long long)(now_s - START_S),
                  state_name(d->state));
    if (goodput)
        assert_true(goodput_read(goodput, &l));
    if (was && node_equal(was, d->status))
        strbuf_puts(out, "no write\n");
    else if (was && node_equal(node_get(was, "goodput"), goodput))
        strbuf_puts(out, "as stored\n");
    else
        golden_changes("goodput", NULL, goodput, NULL, out);
    for (size_t i = 0; i < d->n_notes; i++) {
        if (strcmp(d->note[i].reason, "Goodput") == 0)
            strbuf_printf(out, "event %s\n", d->note[i].message);
    }
}

static void story_sync(struct story *t, const struct node *sync, struct strbuf *out)
{
    static const struct object_config cfg = {.runtime_image = "r",
                                             .cluster_domain = ""};
    struct sync_outcome outcome = {.reason = "", .message = ""};
    uint64_t now_s = START_S + (uint64_t)node_int(sync, "now", 0);
    struct question q = {
        .outcome = &outcome, .cfg = &cfg, .now_wall_s = now_s, .arena = &t->arena};
    CLEANUP(strbuf_release) struct strbuf problems;
    struct observed seen;
    struct job_meta meta;
    struct decision d;

    for (const struct node *c = sync->first; c; c = c->next) {
        if (strchr(c->key, '.'))
            golden_set(&t->b, t->job, c->key, c);
    }
    strbuf_init(&problems, 4096);
    assert_int_equal(meta_decode(KUBE_JOB, t->job, &meta, NULL), 0);
    q.job = front_horovodjob.open(t->job, &meta, &t->arena, &problems);
    assert_int_equal(problems.n, 0);
    story_observe(t, sync, (const struct hvd_job *)(const void *)q.job, now_s, &seen);
    q.seen = &seen;
    if (node_bool(sync, "quota", false))
        outcome = (struct sync_outcome){.trouble = TROUBLE_RETRY,
                                        .reason = "CreateFailed",
                                        .message = "pods \"p\" is forbidden: exceeded "
                                                   "quota: q"};
    assert_int_equal(front_horovodjob.decide(&q, &d), 0);
    story_print(t, &d, now_s, out);
    node_set(&t->b, t->job, "status", d.status);
}

static void
story_run(void *arg, const char *name, const char *input, struct strbuf *out)
{
    struct story t = {.b = {.arena = &t.arena}};
    const struct node *o;

    (void)arg;
    (void)name;
    arena_init(&t.arena, ARENA_BYTES);
    o = golden_yaml(&t.arena, input);
    t.job = golden_yaml(&t.arena, job_yaml);
    for (const struct node *c = o->first; c; c = c->next) {
        if (strchr(c->key, '.'))
            golden_set(&t.b, t.job, c->key, c);
    }
    o = node_get(o, "syncs");
    for (const struct node *c = o->first; c; c = c->next)
        story_sync(&t, c, out);
    arena_release(&t.arena);
}

UNIT_TEST(goodput_is_as_in_the_golden_files)
{
    golden_folder("tests/golden/goodput", story_run, NULL);
}

UNIT_MAIN(NULL, NULL)

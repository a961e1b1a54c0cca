/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a HorovodJob, simulated: the real store and the real front row against a
 * model of API server, kubelet, agents and a user, event by event in an order that a
 * seed decides. Answers get lost, requests are refused, the operator dies between any
 * two writes and lists anew, watches lag.
 *
 * Checked at every event
 *   a pod is made only when no pod of before the last break (restart, resumption) is
 *   left, not even one that is being deleted
 *   restarts never exceed backoffLimit; generation, restarts, replacements never shrink
 *   a finished job never changes its state, and nothing is made for it, nor after all
 *   workers of a world have succeeded, whatever disappears while no operator runs;
 *   no task of TensorFlow runs twice in one generation after it has succeeded, and the
 *   job succeeds only if each has in its last generation
 *   no status is written that is the stored one
 *   the parts of its goodput add up to the time since the job was made, also when the
 *   clock jumps, and no longer change when it has finished
 * and at the end, when nothing bad happens any more: the job finishes; it succeeds if
 * nothing failed that counts, whatever was evicted, deleted, scaled, suspended and
 * badly edited; no running pod is left, and no pod that the operator keeps.
 *
 * RM_SEEDS=N runs N seeds, RM_SEED=N that one alone, told step by step. */
#include "tests/unit/unit.h"

#include "operator/core/front.h"
#include "operator/core/goodput.h"
#include "operator/core/labels.h"
#include "operator/core/store/store.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "runtime/contract/job_world.h"
#include "runtime/live/live_report.h"
#include "tests/unit/op_life_world.h"

/* --- the operator ---------------------------------------------------------------- */

struct turn {
    struct arena arena;
    struct job_meta meta, *job;
    const struct node *object;
    struct sync_outcome outcome;
    struct decision d;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What worker 0's agent reports, in every second life: it meets, starts, and then trains
 * three seconds of four. */
static const struct live_report *sim_report(const struct sim *s, struct arena *a)
{
    const struct sim_pod *p = &s->pod[0];
    struct live_report *r = arena_calloc(a, 1, sizeof(*r));
    uint64_t left_ms;

    assert_non_null(r);
    if (s->seed % 2 || !p->is_there || p->phase != POD_RUNNING)
        return NULL;
    r->run_wall_us = p->run_us;
    r->at_wall_us = s->now_us;
    left_ms = (s->now_us - p->run_us) / 1000u;
    r->times.meeting_ms = least(left_ms, 2000);
    left_ms -= r->times.meeting_ms;
    r->times.starting_ms = least(left_ms, 1000);
    left_ms -= r->times.starting_ms;
    r->times.training_ms = left_ms / 4000u * 3000u + least(left_ms % 4000u, 3000);
    r->times.stalled_ms = left_ms - r->times.training_ms;
    r->state = left_ms % 4000u > 3000 ? LIVE_STALLED : LIVE_TRAINING;
    r->progress.step = (int64_t)(r->times.training_ms / 500u) - 1;
    return r;
}

static bool sim_decide(struct sim *s, struct turn *t)
{
    struct question q = {.job = t->job,
                         .outcome = &t->outcome,
                         .now_wall_s = s->now_us / 1000000u + s->ahead_s,
                         .arena = &t->arena};
    static const struct object_config cfg = {.runtime_image = "r",
                                             .cluster_domain = ""};
    struct observed seen;
    struct job_shape shape;

    q.cfg = &cfg;
    front_horovodjob.shape(t->job, &shape);
    if (store_observe(s->store, KEY, t->job, &shape, s->now_us * 1000u, &t->arena,
                      &seen)
        < 0)
        return false;
    seen.live = sim_report(s, &t->arena);
    q.seen = &seen;
    assert_int_equal(front_horovodjob.decide(&q, &t->d), 0);
    return true;
}

static void check_creation(const struct sim *s, uint32_t index)
{
    must(s, !*s->final);
    must(s, !s->is_done
                || index > 0); /* a scaled world may have got workers, but no first */
    for (uint32_t i = 0; i < PODS; i++)
        must(s, !s->pod[i].is_there || s->pod[i].generation >= s->last_break);
}

static void create_pod(struct sim *s, struct turn *t, const struct action *x)
{
    struct sim_pod *p = &s->pod[x->index];
    struct build b = {.arena = &t->arena};
    const struct node *o, *meta, *notes;
    struct job_world w = {0};
    struct job_shape shape;
    uint32_t generation;

    if (p->is_there)
        return;
    check_creation(s, x->index);
    o = front_horovodjob.build(
        &b, t->job, &(struct object_config){.runtime_image = "r", .cluster_domain = ""},
        x, NULL, NULL);
    assert_non_null(o);
    meta = node_get(o, "metadata");
    generation =
        (uint32_t)atoi(node_get(node_get(meta, "labels"), LABEL_GENERATION)->u.s);
    notes = node_get(meta, "annotations");
    if (s->is_tensorflow) {
        front_horovodjob.shape(t->job, &shape);
        w.workers = shape.n[ROLE_WORKER];
        must(s, s->completed[x->index] < generation);
    } else {
        assert_int_equal(
            job_world_parse(node_get(notes, ANNOTATION_WORLD)->u.s, &w, NULL), 0);
    }
    *p = (struct sim_pod){.is_there = true,
                          .serial = ++s->serial,
                          .made_us = s->now_us,
                          .generation = generation,
                          .world_generation = w.generation,
                          .world_workers = w.workers,
                          .is_tracked = node_get(meta, "finalizers") != NULL};
    sim_print(s, "worker %u is made for %u %u", x->index, w.generation, w.workers);
    pod_changed(s, x->index);
}

static void carry_out_pod(struct sim *s, struct turn *t, const struct action *x)
{
    struct sim_pod *p = &s->pod[x->index];
    char uid[32];
    struct job_world w;

    must(s, x->index < PODS);
    uid_of(p, uid);
    switch (x->verb) {
    case VERB_CREATE:
        create_pod(s, t, x);
        break;
    case VERB_UPDATE:
        if (!p->is_there || strcmp(uid, x->uid) != 0)
            return;
        if (node_at(x->body, "metadata.$deleteFromPrimitiveList/finalizers")) {
            sim_print(s, "worker %u is let go", x->index);
            p->is_tracked = false;
            pod_changed(s, x->index);
            return;
        }
        assert_int_equal(
            job_world_parse(
                node_get(node_at(x->body, "metadata.annotations"), ANNOTATION_WORLD)
                    ->u.s,
                &w, NULL),
            0);
        p->world_generation = w.generation;
        p->world_workers = w.workers;
        sim_print(s, "worker %u receives %u %u", x->index, w.generation, w.workers);
        pod_changed(s, x->index);
        break;
    case VERB_DELETE:
        must(s, x->uid != NULL);
        if (!p->is_there || p->is_deleting || strcmp(uid, x->uid) != 0)
            return;
        p->is_deleting = true;
        p->delete_us = s->now_us;
        sim_print(s, "worker %u is asked to go", x->index);
        pod_changed(s, x->index);
        break;
    case VERB_EXPLAIN:
    case VERB_LOOK:
        break;
    }
}

/* Reports the answer to the store. */
static void answer_pod(struct sim *s, const struct action *x)
{
    const struct sim_pod *p = &s->pod[x->index];
    char uid[32];

    uid_of(p, uid);
    if ((x->verb == VERB_CREATE || x->verb == VERB_LOOK) && p->is_there)
        store_expect_pod(s->store, KEY, "job-uid", ROLE_WORKER, x->index, uid,
                         s->now_us * 1000u);
    else if (x->verb == VERB_LOOK)
        store_miss_pod(s->store, KEY, "job-uid", ROLE_WORKER, x->index);
}

/* False: the operator died. */
static bool sim_apply_plan(struct sim *s, struct turn *t)
{
    const struct job_plan p = t->d.plan;

    for (size_t i = 0; i < p.n; i++) {
        const struct action *x = &p.v[i];
        struct fact there = {.state = FACT_THERE};

        if (is_bad_luck(s, 40))
            return false;
        if (!is_bad_luck(s, 20)) {
            if (x->kind == KUBE_POD)
                carry_out_pod(s, t, x);
            if (!is_bad_luck(s, 20)) {
                if (x->kind == KUBE_POD)
                    answer_pod(s, x);
                else
                    store_know(s->store, KEY, "job-uid", x->kind, &there);
                continue;
            }
        }
        t->outcome = (struct sync_outcome){
            .trouble = TROUBLE_RETRY, .reason = "CreateFailed", .message = "lost"};
        break;
    }
    return true;
}

static void
check_goodput(struct sim *s, const struct node *old, const struct node *status)
{
    const struct node *goodput = node_get(status, "goodput");
    uint64_t now_s = s->now_us / 1000000u + s->ahead_s;
    struct ledger l;

    must(s, goodput_read(goodput, &l));
    must(s, l.start_s == START_S);
    must(s, l.is_closed == state_is_final(state_of_status(status)));
    must(s, l.until_s >= START_S && (l.until_s == now_s || l.until_s == l.since_s));
    if (state_is_final(state_of_status(old)))
        must(s, node_equal(node_get(old, "goodput"), goodput));
}

static void check_status(struct sim *s, const struct node *status)
{
    uint32_t generation = (uint32_t)node_int(status, "generation", 0);
    uint32_t restarts = (uint32_t)node_int(status, "restarts", 0);
    uint32_t replacements = (uint32_t)node_int(status, "replacements", 0);
    const char *state = node_str(status, "state");

    must(s, restarts >= s->restarts && restarts <= BACKOFF_LIMIT);
    must(s, generation >= s->generation && generation <= s->generation + 2);
    must(s, replacements >= s->replacements);
    must(s, !*s->final || strcmp(s->final, state) == 0);
    must(s, strcmp(state, state_name(state_of_status(status))) == 0);
    for (int64_t i = 0; strcmp(state, "Succeeded") == 0 && s->is_tensorflow
                        && i < node_int(status, "workerReplicas", 0);
         i++)
        must(s, s->completed[i] == generation);
    if (strcmp(state, "Succeeded") == 0 || strcmp(state, "Failed") == 0)
        (void)snprintf(s->final, sizeof(s->final), "%s", state);
    s->restarts = restarts;
    s->replacements = replacements;
    s->generation = generation;
}

/* False: it was not stored, and the sync is repeated. */
static bool write_status(struct sim *s, struct turn *t)
{
    struct strbuf text;
    struct arena a;
    struct node *old = NULL;
    char key[STORE_KEY_SIZE];
    char *all;
    struct node *o;
    enum job_state was;
    uint32_t generation = s->generation;

    if (node_equal(t->d.status, t->meta.status))
        return true;
    if (strtoul(t->meta.resource_version, NULL, 10) != s->version || is_bad_luck(s, 20))
        return false; /* 409, or it never came */
    arena_init(&a, 4u << 20);
    if (s->status)
        assert_int_equal(json_read(&a, s->status, strlen(s->status), &old, NULL), 0);
    must(s, !old || !node_equal(old, t->d.status));
    was = state_of_status(old);
    check_status(s, t->d.status);
    check_goodput(s, old, t->d.status);
    if (s->generation > generation
        && (was == STATE_RESTARTING || was == STATE_SUSPENDED)) {
        s->last_break = s->generation;
        s->n_breaks++;
    }
    strbuf_init(&text, 1u << 20);
    json_write(t->d.status, &text);
    mem_free(s->status);
    s->status = mem_strdup(strbuf_str(&text));
    strbuf_release(&text);
    sim_print(s, "%s generation %u restarts %u replacements %u: %s",
              state_name(t->d.state), s->generation, s->restarts, s->replacements,
              t->d.message);
    job_changed(s);
    if (!is_bad_luck(s, 10)) { /* the answer comes before the watch */
        struct build b = {.arena = &a};

        all = job_text(s);
        assert_int_equal(json_read(&a, all, strlen(all), &o, NULL), 0);
        if (store_take_answer(s->store, KUBE_JOB, o, key, NULL) > 0
            && status_needs_sync(&b, old, t->d.status))
            sim_wake(s, s->now_us);
        mem_free(all);
    }
    arena_release(&a);
    return true;
}

static void sync_job(struct sim *s)
{
    static const struct sync_outcome refused = {.trouble = TROUBLE_REJECTED,
                                                .is_of_spec = true,
                                                .reason = "InvalidSpec",
                                                .message = "spec.newer: not known"};
    struct turn t = {.outcome = {.reason = "", .message = ""}};
    struct strbuf problems;
    struct job_text text;
    struct node *o;
    bool is_alive = true, is_written = false;

    s->due_us = 0;
    if (store_job_text(s->store, KEY, &text) < 0)
        return;
    arena_init(&t.arena, 16u << 20);
    strbuf_init(&problems, 4096);
    assert_int_equal(json_read(&t.arena, text.p, text.n, &o, NULL), 0);
    assert_int_equal(meta_decode(KUBE_JOB, o, &t.meta, NULL), 0);
    t.meta.is_at_rest = text.is_at_rest;
    t.job = front_horovodjob.open(o, &t.meta, &t.arena, &problems);
    assert_non_null(t.job);
    if (problems.n > 0)
        t.outcome = refused;
    if (sim_decide(s, &t))
        is_alive = sim_apply_plan(s, &t);
    if (problems.n > 0)
        t.outcome = refused;
    if (is_alive && sim_decide(s, &t) && !is_bad_luck(s, 40))
        is_written = write_status(s, &t);
    if (!is_written || t.outcome.trouble == TROUBLE_RETRY)
        sim_wake(s, s->now_us + 1000000u);
    else if (t.d.requeue_ms)
        sim_wake(s, s->now_us + t.d.requeue_ms * 1000u);
    strbuf_release(&problems);
    arena_release(&t.arena);
    if (!is_alive || is_bad_luck(s, 40))
        start_operator(s);
}

/* --- a life ---------------------------------------------------------------------- */

static void sim_step(struct sim *s)
{
    uint32_t dice = sim_below(s, 100);

    s->now_us += 50000u + sim_below(s, 300000);
    if (dice < 30)
        play_pod(s, sim_below(s, PODS));
    else if (dice < 60 && s->next_news < s->n_news)
        sim_receive_news(s);
    else if (dice < 92 && (!s->is_calm || (s->due_us && s->now_us >= s->due_us)))
        sync_job(s); /* of calm times only what is due: no wake may be missing */
    else if (dice < 94 && is_bad_luck(s, s->edit_in))
        play_user(s);
    else if (dice < 95 && is_bad_luck(s, 8))
        play_gap(s);
    else if (dice < 96 && !s->is_calm)
        play_drain(s);
    else if (dice < 97 && is_bad_luck(s, 20))
        play_clock(s);
    else if (dice < 97)
        s->now_us += (uint64_t)sim_below(s, 12) * 1000000u;
}

static bool is_at_rest(const struct sim *s)
{
    if (!*s->final || s->next_news < s->n_news)
        return false;
    for (uint32_t i = 0; i < PODS; i++) {
        if (s->pod[i].is_there
            && (s->pod[i].phase == POD_RUNNING || s->pod[i].phase == POD_PENDING
                || s->pod[i].is_tracked))
            return false;
    }
    return true;
}

struct total {
    uint64_t lives, failed, restarts, replacements, breaks, worlds;
};

static void sim_live(uint64_t seed, bool is_told, struct total *t)
{
    static struct sim sim;
    struct sim *s = &sim;
    uint32_t n = 0;

    memset(s, 0, sizeof(*s));
    s->seed = s->random.state = seed;
    s->is_told = is_told;
    s->now_us = START_S * 1000000u;
    s->fail_in = 2u << sim_below(s, 7);
    s->evict_in = 3u << sim_below(s, 7);
    s->delete_in = 4u << sim_below(s, 7);
    s->edit_in = 1u << sim_below(s, 6);
    s->replicas = 1 + sim_below(s, PODS - 1);
    s->is_suspended = sim_below(s, 4) == 0;
    s->is_tensorflow = sim_below(s, 4) == 0;
    s->version = 1;
    start_operator(s);
    for (uint32_t i = 0; i < STEPS; i++)
        sim_step(s);
    s->is_calm = true;
    s->is_suspended = s->is_bad = false;
    s->ahead_s = 0;
    sim_print(s, "all is calm");
    job_changed(s);
    for (n = 0; n < SETTLE && !is_at_rest(s); n++)
        sim_step(s);
    must(s, is_at_rest(s));
    must(s, s->n_failures > 0 || strcmp(s->final, "Succeeded") == 0);
    while (s->next_news < s->n_news)
        sim_receive_news(s);
    t->lives++;
    t->failed += strcmp(s->final, "Failed") == 0;
    t->restarts += s->restarts;
    t->replacements += s->replacements;
    t->breaks += s->n_breaks;
    t->worlds += s->generation;
    mem_free(s->status);
    store_free(s->store);
}

UNIT_TEST(many_random_lives_keep_the_rules)
{
    const char *one = getenv("RM_SEED"), *many = getenv("RM_SEEDS");
    uint64_t n = many ? strtoull(many, NULL, 10) : 250;

    struct total t = {0};

    if (one) {
        sim_live(strtoull(one, NULL, 10), true, &t);
        return;
    }
    for (uint64_t seed = 1; seed <= n; seed++)
        sim_live(seed, false, &t);
    (void)printf(
        "# %llu lives, %llu failed; %llu generations, %llu begun after a break, "
        "%llu restarts, %llu replacements\n",
        (unsigned long long)t.lives, (unsigned long long)t.failed,
        (unsigned long long)t.worlds, (unsigned long long)t.breaks,
        (unsigned long long)t.restarts, (unsigned long long)t.replacements);
    /* the lives are eventful enough to prove something */
    assert_true(n < 100
                || (t.failed * 50 > n && t.restarts * 5 > n && t.replacements * 2 > n
                    && t.worlds > t.breaks + n + n / 20));
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* The world around one HorovodJob, for op_life_test.c: an API server with watches that
 * lag, a kubelet, agents that meet and miss each other, and a user; what happens, and
 * when, a seed decides. Include after cmocka.h. */
#ifndef TESTS_UNIT_OP_LIFE_WORLD_H
#define TESTS_UNIT_OP_LIFE_WORLD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/store/store.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"
#include "tests/unit/seeded.h"

enum { PODS = 5, NEWS = 800, STEPS = 700, SETTLE = 6000, BACKOFF_LIMIT = 2 };
#define KEY     "ns/demo"
#define START_S 1767225600ull

struct sim_pod {
    bool is_there, is_deleting, is_evicted, is_hurt; /* hurt: its ranks will fail */
    bool is_tracked; /* it stays, though deleted, until the operator lets it go */
    uint32_t serial, generation, world_generation, world_workers;
    enum pod_phase phase;
    int exit_code;
    uint64_t made_us, run_us, end_us, delete_us;
    char report[300], hurt[300]; /* hurt: what the agent will report then */
};

struct news { /* of a watch: a job or a pod as it was then */
    bool is_job, is_gone;
    char *text; /* of the job */
    uint32_t index;
    struct sim_pod pod;
};

struct sim {
    uint64_t seed, now_us;
    uint64_t ahead_s; /* by how much the operator's clock is ahead */
    struct seeded random;
    bool is_told, is_calm; /* calm: nothing bad happens any more */
    bool is_tensorflow;    /* each pod ends for itself */
    uint32_t fail_in, evict_in, delete_in, edit_in; /* one in so many; of each life its
                                                       own */
    /* the API server */
    struct sim_pod pod[PODS];
    char *status; /* JSON, NULL if none */
    uint32_t replicas, serial, version;
    bool is_suspended, is_job_gone, is_bad; /* bad: the spec, by an edit */
    /* the operator */
    struct store *store;
    struct news news[NEWS];
    size_t n_news, next_news;
    uint64_t due_us; /* of the next sync; 0: the job is not queued */
    /* what is checked */
    uint32_t last_break, n_breaks, generation, restarts, replacements, n_failures;
    char final[16];
    bool is_done; /* a world has succeeded, before it was suspended: no other may run */
    uint32_t completed[PODS]; /* the last generation in which the worker succeeded */
};

static void sim_print(const struct sim *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void sim_print(const struct sim *s, const char *fmt, ...)
{
    va_list ap;

    if (!s->is_told)
        return;
    va_start(ap, fmt);
    (void)printf("# %6.1f ", (double)(s->now_us - START_S * 1000000u) / 1e6);
    (void)vprintf(fmt, ap);
    (void)printf("\n");
    va_end(ap);
}

#define must(s, claim)                                                                 \
    do {                                                                               \
        if (!(claim))                                                                  \
            fail_msg("seed %llu: %s", (unsigned long long)(s)->seed, #claim);          \
    } while (0)

static uint32_t sim_below(struct sim *s, uint32_t n)
{
    return seeded_below(&s->random, n);
}

static bool is_bad_luck(struct sim *s, uint32_t one_in)
{
    return !s->is_calm && sim_below(s, one_in) == 0;
}

/* --- the API server -------------------------------------------------------------- */

static char *job_text(const struct sim *s)
{
    struct strbuf t;
    char *out;

    strbuf_init(&t, 1u << 20);
    strbuf_printf(
        &t,
        "{\"metadata\":{\"name\":\"demo\",\"namespace\":\"ns\",\"uid\":\"job-uid\","
        "\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"generation\":1,"
        "\"resourceVersion\":\"%u\"},\"spec\":{%s%s\"runPolicy\":{"
        "\"backoffLimit\":%d,\"suspend\":%s},\"replicaSpecs\":{\"Worker\":{\"replicas\""
        ":%u,\"template\":{\"spec\":{\"containers\":[{\"name\":\"t\",\"image\":\"i\","
        "\"command\":[\"c\"]}]}}}}}%s%s}",
        s->version, s->is_bad ? "\"newer\":1," : "",
        s->is_tensorflow ? "\"framework\":\"tensorflow\"," : "", BACKOFF_LIMIT,
        s->is_suspended ? "true" : "false", s->replicas,
        s->status ? ",\"status\":" : "", s->status ? s->status : "");
    out = mem_strdup(strbuf_str(&t));
    strbuf_release(&t);
    assert_non_null(out);
    return out;
}

static struct news *add_news(struct sim *s)
{
    must(s, s->n_news < NEWS);
    s->news[s->n_news] = (struct news){0};
    return &s->news[s->n_news++];
}

static void job_changed(struct sim *s)
{
    struct news *n = add_news(s);

    s->version++;
    n->is_job = true;
    n->is_gone = s->is_job_gone;
    n->text = job_text(s);
}

static void pod_changed(struct sim *s, uint32_t i)
{
    struct news *n = add_news(s);

    n->index = i;
    n->pod = s->pod[i];
    n->is_gone = !s->pod[i].is_there;
}

static void uid_of(const struct sim_pod *p, char ret[32])
{
    (void)snprintf(ret, 32, "uid-%u", p->serial);
}

static char *text_borrow(const char *s)
{
    return (char *)(uintptr_t)s;
}

static void put_pod(struct store *store, uint32_t i, const struct sim_pod *p)
{
    char name[32], uid[32], key[STORE_KEY_SIZE];
    bool is_over = p->phase == POD_FAILED || p->phase == POD_SUCCEEDED;
    struct pod pod = {.ns = text_borrow("ns"),
                      .name = name,
                      .uid = uid,
                      .owner_uid = text_borrow("job-uid"),
                      .job_name = text_borrow("demo"),
                      .node = text_borrow("n"),
                      .reason = text_borrow(p->is_evicted ? "Evicted" : ""),
                      .message = text_borrow(""),
                      .waiting = text_borrow(""),
                      .wait_reason = text_borrow(""),
                      .wait_container = text_borrow(""),
                      .hint = text_borrow(""),
                      .exit_container = text_borrow(is_over ? "t" : ""),
                      .exit_reason = text_borrow(is_over ? "Error" : ""),
                      .exit_text = text_borrow(p->report),
                      .conditions = text_borrow(""),
                      .finalizer = text_borrow(""),
                      .ip = text_borrow(""),
                      .job_kind = KUBE_JOB,
                      .role = ROLE_WORKER,
                      .generation = p->generation,
                      .world_generation = p->world_generation,
                      .world_workers = p->world_workers,
                      .phase = p->phase,
                      .is_ready = p->phase == POD_RUNNING,
                      .is_deleting = p->is_deleting,
                      .is_tracked = p->is_tracked,
                      .is_disrupted = p->is_evicted,
                      .has_exit = is_over && !p->is_evicted,
                      .is_main_exit = is_over && !p->is_evicted,
                      .exit_code = p->exit_code,
                      .made_wall_us = p->made_us / 1000000u * 1000000u,
                      .bound_wall_us = p->made_us / 1000000u * 1000000u,
                      .begin_wall_us = p->run_us / 1000000u * 1000000u,
                      .exit_wall_us = p->end_us / 1000000u * 1000000u,
                      .delete_wall_us = p->delete_us / 1000000u * 1000000u};

    (void)snprintf(name, sizeof(name), "demo-worker-%u", i);
    uid_of(p, uid);
    assert_int_equal(store_put_pod(store, &pod, key), 0);
}

/* True: it is to be synced. */
static bool put_job(struct store *store, const char *text)
{
    char key[STORE_KEY_SIZE];
    struct arena a;
    struct node *o;
    int rc;

    arena_init(&a, 4u << 20);
    assert_int_equal(json_read(&a, text, strlen(text), &o, NULL), 0);
    rc = store_put_job(store, KUBE_JOB, o, key, NULL);
    assert_in_range(rc, 0, 1);
    arena_release(&a);
    return rc > 0;
}

static void sim_wake(struct sim *s, uint64_t at_us)
{
    if (!s->due_us || at_us < s->due_us)
        s->due_us = at_us;
}

static void sim_receive_news(struct sim *s)
{
    struct news *n = &s->news[s->next_news++];
    char name[32], key[STORE_KEY_SIZE];

    (void)snprintf(name, sizeof(name), "demo-worker-%u", n->index);
    if (!n->is_job || n->is_gone || put_job(s->store, n->text))
        sim_wake(s, s->now_us);
    if (n->is_job && n->is_gone)
        store_drop_job(s->store, KEY);
    else if (!n->is_job && n->is_gone)
        must(s, store_drop_pod(s->store, "ns", name, key) == 0);
    else if (!n->is_job)
        put_pod(s->store, n->index, &n->pod);
    mem_free(n->text);
    n->text = NULL;
    if (s->next_news == s->n_news)
        s->n_news = s->next_news = 0;
}

/* The operator dies, and another lists anew. */
static void start_operator(struct sim *s)
{
    sim_print(s, "the operator starts");
    while (s->next_news < s->n_news)
        mem_free(s->news[s->next_news++].text);
    s->n_news = s->next_news = 0;
    store_free(s->store);
    s->store = store_new();
    assert_non_null(s->store);
    if (!s->is_job_gone) {
        char *text = job_text(s);

        (void)put_job(s->store, text);
        mem_free(text);
    }
    sim_wake(s, s->now_us);
    for (uint32_t i = 0; i < PODS; i++) {
        if (s->pod[i].is_there)
            put_pod(s->store, i, &s->pod[i]);
    }
}

/* --- kubelet, agents, user ------------------------------------------------------- */

/* All tasks of its generation have succeeded, whose pods may be gone. */
static bool are_tasks_done(const struct sim *s, const struct sim_pod *p)
{
    for (uint32_t k = 0; k < p->world_workers; k++) {
        if (s->completed[k] != p->generation)
            return false;
    }
    return s->replicas == p->world_workers; /* an edit may have come first */
}

/* All workers of its world have succeeded: the job's work is done. */
static bool is_world_done(const struct sim *s, uint32_t i)
{
    const struct sim_pod *p = &s->pod[i];

    if (s->is_tensorflow)
        return are_tasks_done(s, p);
    for (uint32_t k = 0; k < p->world_workers; k++) {
        const struct sim_pod *o = &s->pod[k];

        if (!o->is_there || o->world_generation != p->world_generation
            || o->phase != POD_SUCCEEDED)
            return false;
    }
    return i < p->world_workers;
}

static void end_pod(struct sim *s, uint32_t i, enum pod_phase phase, const char *report)
{
    struct sim_pod *p = &s->pod[i];

    p->phase = phase;
    p->end_us = s->now_us;
    if (phase == POD_FAILED) /* an agent reports what a signal did; a task dies of it */
        p->exit_code = s->is_tensorflow && p->is_deleting ? 128 + 15 : 1;
    if (phase == POD_SUCCEEDED)
        s->completed[i] = p->generation;
    s->is_done |= phase == POD_SUCCEEDED && is_world_done(s, i) && !s->is_suspended;
    (void)snprintf(p->report, sizeof(p->report), "%s", report);
    sim_print(s, "worker %u %s %s", i, phase == POD_FAILED ? "fails" : "succeeds",
              report);
    pod_changed(s, i);
}

static void
make_report(const struct sim *s, uint32_t i, int rank, int code, int sig, char ret[300])
{
    (void)snprintf(ret, 300,
                   "ringmaster-failure/1 rank=%d host=demo-worker-%u exit=%d signal=%d "
                   "at=%llu why=\"\"\n",
                   rank, i, code, sig, (unsigned long long)s->now_us);
}

static void fail_pod(struct sim *s, uint32_t i, int rank, int code, int sig)
{
    char report[300];

    make_report(s, i, rank, code, sig, report);
    end_pod(s, i, POD_FAILED, report);
}

/* Workers of one world, all running. */
static bool has_world(const struct sim *s, uint32_t i)
{
    const struct sim_pod *p = &s->pod[i];

    for (uint32_t k = 0; k < p->world_workers; k++) {
        const struct sim_pod *o = &s->pod[k];

        if (!o->is_there || o->world_generation != p->world_generation
            || (o->phase != POD_RUNNING && o->phase != POD_SUCCEEDED))
            return false;
    }
    return i < p->world_workers;
}

/* The other workers of its world will report the same failure: of a rank, or that the
 * agent received SIGTERM. */
static void hurt_others(struct sim *s, uint32_t i, int rank, int code, int sig)
{
    for (uint32_t k = 0; k < PODS; k++) {
        struct sim_pod *o = &s->pod[k];

        if (k == i || !o->is_there || o->phase != POD_RUNNING || o->is_hurt
            || o->world_generation != s->pod[i].world_generation)
            continue;
        o->is_hurt = true;
        make_report(s, i, rank, code, sig, o->hurt);
    }
}

static void play_task(struct sim *s, uint32_t i)
{
    if (is_bad_luck(s, s->fail_in)) {
        s->n_failures++;
        end_pod(s, i, POD_FAILED, "");
    } else if (is_bad_luck(s, s->evict_in)) {
        sim_print(s, "worker %u is evicted", i);
        s->pod[i].is_evicted = true;
        end_pod(s, i, POD_FAILED, "");
    } else if (sim_below(s, s->is_calm ? 4 : 15) == 0) {
        end_pod(s, i, POD_SUCCEEDED, "");
    }
}

static void play_running(struct sim *s, uint32_t i)
{
    struct sim_pod *p = &s->pod[i];
    bool is_formed = has_world(s, i);

    if (s->is_tensorflow) {
        play_task(s, i);
    } else if (p->is_hurt) {
        end_pod(s, i, POD_FAILED, p->hurt);
    } else if (i >= p->world_workers) {
        end_pod(s, i, POD_SUCCEEDED, ""); /* without a place in a smaller world */
    } else if (is_formed && is_bad_luck(s, s->fail_in)) {
        s->n_failures++;
        hurt_others(s, i, (int)i, 3, 0);
        fail_pod(s, i, (int)i, 3, 0);
    } else if (is_bad_luck(s, s->evict_in)) {
        sim_print(s, "worker %u is evicted", i);
        if (is_formed)
            hurt_others(s, i, -1, 0, 15);
        p->is_evicted = true;
        end_pod(s, i, POD_FAILED, "");
    } else if (!is_formed && is_bad_luck(s, 15)) {
        fail_pod(s, i, -1, 124, 0); /* the other workers did not come */
    } else if (is_formed && sim_below(s, s->is_calm ? 4 : 15) == 0) {
        end_pod(s, i, POD_SUCCEEDED, "");
    }
}

static void play_pod(struct sim *s, uint32_t i)
{
    struct sim_pod *p = &s->pod[i];

    if (!p->is_there)
        return;
    if (p->is_deleting) {
        if (p->phase == POD_RUNNING && sim_below(s, 2) == 0) {
            if (s->is_tensorflow)
                end_pod(s, i, POD_FAILED, "");
            else
                fail_pod(s, i, -1, 0, 15);
            return;
        }
        if (p->is_tracked)
            return;
        sim_print(s, "worker %u is gone", i);
        p->is_there = false;
        pod_changed(s, i);
    } else if (p->phase == POD_PENDING && sim_below(s, 2) == 0) {
        p->phase = POD_RUNNING;
        p->run_us = s->now_us;
        sim_print(s, "worker %u runs", i);
        pod_changed(s, i);
    } else if (p->phase == POD_RUNNING) {
        play_running(s, i);
    }
    if (p->is_there && !p->is_deleting && p->phase != POD_SUCCEEDED
        && is_bad_luck(s, s->delete_in)) {
        sim_print(s, "worker %u is deleted by somebody", i);
        if (p->phase == POD_RUNNING && has_world(s, i) && !s->is_tensorflow)
            hurt_others(s, i, -1, 0, 15);
        p->is_deleting = true;
        p->delete_us = s->now_us;
        pod_changed(s, i);
    }
}

/* What has ended is deleted: by a person, or with its node. */
static void collect_pod(struct sim *s, uint32_t i)
{
    struct sim_pod *p = &s->pod[i];

    if (!p->is_there || p->is_deleting
        || (p->phase != POD_SUCCEEDED && p->phase != POD_FAILED))
        return;
    sim_print(s, "worker %u is collected", i);
    p->is_deleting = true;
    p->delete_us = s->now_us;
    pod_changed(s, i);
}

/* While an operator runs, finished pods of Horovod are not deleted: that is a loss if
 * others of the world still run. */
static void play_drain(struct sim *s)
{
    if (s->is_tensorflow)
        collect_pod(s, sim_below(s, PODS));
}

/* For a while no operator runs; then one lists anew. */
static void play_gap(struct sim *s)
{
    uint32_t n = 1 + sim_below(s, 300);

    sim_print(s, "no operator runs");
    while (s->next_news < s->n_news)
        mem_free(s->news[s->next_news++].text);
    for (s->n_news = s->next_news = 0; n > 0; n--) {
        s->now_us += 50000u + sim_below(s, 300000);
        play_pod(s, sim_below(s, PODS));
        if (sim_below(s, 3) == 0)
            collect_pod(s, sim_below(s, PODS));
        s->n_news = 0; /* pods have no text */
    }
    start_operator(s);
}

/* The clock of the operator's node is an hour ahead, and is set back. */
static void play_clock(struct sim *s)
{
    s->ahead_s = s->ahead_s > 0 ? 0 : 3600;
    sim_print(s, "the operator's clock is set %s",
              s->ahead_s > 0 ? "an hour ahead" : "back");
}

static void play_user(struct sim *s)
{
    s->is_bad = s->status && !s->is_calm && sim_below(s, 10) == 0;
    if (sim_below(s, 4) != 0)
        s->replicas = 1 + sim_below(s, PODS - 1);
    else
        s->is_suspended = !s->is_suspended && !s->is_calm;
    sim_print(s, "the user wants %u workers%s%s", s->replicas,
              s->is_suspended ? ", suspended" : "", s->is_bad ? ", in a bad spec" : "");
    job_changed(s);
}

#endif

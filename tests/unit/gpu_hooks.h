/* SPDX-License-Identifier: Apache-2.0 */
/* A device of the fake driver with hooks that a test controls, without NCCL. A job
 * puts a gate of its own on the stream. */
#ifndef TESTS_UNIT_GPU_HOOKS_H
#define TESTS_UNIT_GPU_HOOKS_H

#include <sys/prctl.h>

#include "runtime/backend/nccl/gpu.h"
#include "runtime/base/mem.h"
#include "tests/unit/gpu_fake.h"

struct step {            /* a job's extra */
    struct gate *gate;   /* put on the stream; NULL: none */
    int fails;           /* what run returns */
    _Atomic int *blocks; /* run does not return before it is 0; NULL: at once */
    bool is_polite;      /* run leaves when the device stops */
    bool dies;           /* a sticky error on the device */
    bool may_hang;       /* what blocks is in a call that may hang */
    bool sleeps;         /* outside, until it is taken over */
};

static struct {
    _Atomic unsigned n_run, n_dropped, n_looked, n_aborted, n_woken;
    _Atomic int was_quiet, was_let, order[64];
    _Atomic int launcher_slack_ns, watcher_slack_ns;
    struct device *g;
} seen;

static inline int die_entry(void *arg)
{
    return CU_ILLEGAL_ADDRESS;
}

static inline int hook_run(struct device *g, struct gpu_job *job, struct err *err)
{
    struct step *s = job->extra;

    seen.launcher_slack_ns = prctl(PR_GET_TIMERSLACK);
    if (s->may_hang || s->sleeps)
        (void)launcher_move_to(&g->launcher,
                               s->sleeps ? LAUNCHER_OUTSIDE : LAUNCHER_WAITING);
    seen.order[seen.n_run % 64] = (int)job->ticket; /* it is there */
    while (s->sleeps && g->life != GPU_ENDED)
        usleep(50);
    while (s->blocks && *s->blocks && !(s->is_polite && !gpu_runs(g)))
        usleep(50);
    seen.was_let = launcher_move_to(&g->launcher, LAUNCHER_INSIDE);
    seen.n_run++;
    if (s->fails)
        return gpu_name_rank(g, err_set(err, s->fails, "it failed"), err);
    if (s->gate)
        (void)fake.enqueue(job->stream, gate_entry, &s->gate, sizeof(s->gate));
    if (s->dies)
        (void)fake.enqueue(job->stream, die_entry, NULL, 0);
    return 0;
}

static inline void hook_drop(struct device *g, struct gpu_job *job)
{
    seen.n_dropped++;
}

static inline int hook_look(struct device *g, struct err *err)
{
    seen.n_looked++;
    return 0;
}

static inline void hook_abort(struct device *g, bool is_quiet)
{
    seen.watcher_slack_ns = prctl(PR_GET_TIMERSLACK);
    seen.was_quiet = is_quiet;
    seen.n_aborted++;
}

static inline void hook_woken(void *arg)
{
    seen.n_woken++;
}

static const struct gpu_hooks hooks = {
    .run = hook_run, .drop = hook_drop, .look = hook_look, .abort = hook_abort};
static const char *const host_names[] = {"a", "a", "b"};
static const struct device_config some_config = {
    .rank = 2, .size = 3, .hosts = host_names, .wake = hook_woken};

static inline struct device *open_as(const struct device_config *c)
{
    struct err err = ERR_INIT;
    struct device *g = NULL;

    memset(&seen, 0, sizeof(seen));
    if (gpu_open(c, 0, &hooks, NULL, &g, &err) < 0)
        fail_msg("%s", err.text);
    return g;
}

static inline struct device *open_one(void)
{
    fake_begin_as("12050", "1", NULL);
    return open_as(&some_config);
}

/* Behind `ready`, which may be NULL. */
static inline struct device_event *
step_push_behind(struct device *g, struct device_event *ready, struct step s)
{
    static uint64_t ticket;
    struct batch_item item = {.ready = ready};
    const struct batch batch = {.items = &item, .n_items = 1};
    struct gpu_job *job = job_new(JOB_BATCH, &batch, NULL, NULL, sizeof(s));
    struct device_event *done;
    struct err err = ERR_INIT;

    assert_non_null(job);
    memcpy(job->extra, &s, sizeof(s));
    job->ticket = ++ticket;
    job->stream = g->streams[0];
    assert_int_equal(event_new(g->events, &done, &err), 0);
    job->done = event_ref(done);
    if (launcher_push(&g->launcher, job, &err) < 0)
        fail_msg("%s", err.text);
    return done;
}

static inline struct device_event *step_push(struct device *g, struct step s)
{
    return step_push_behind(g, NULL, s);
}

/* With our context current. */
#define INSIDE(g, ...)                                                                 \
    do {                                                                               \
        struct gpu_scope scope_;                                                       \
        assert_int_equal(gpu_enter((g), &scope_, NULL), 0);                            \
        __VA_ARGS__;                                                                   \
        gpu_leave(&scope_);                                                            \
    } while (0)

static inline int is_done(struct device *g, struct device_event *e)
{
    int r;

    INSIDE(g, r = event_is_done(e, NULL));
    return r;
}

static inline cu_stream user_stream(struct device *g, unsigned flags)
{
    cu_stream s;

    INSIDE(g, assert_int_equal(fake.cu.stream_new(&s, flags, 0), 0));
    return s;
}

/* A test of the device g, which is open_one(), and is closed after the body. */
#define DEVICE_TEST(f)                                                                 \
    static void f##_on(struct device *g);                                              \
    UNIT_TEST(f)                                                                       \
    {                                                                                  \
        struct device *opened = open_one();                                            \
        f##_on(opened);                                                                \
        assert_int_equal(gpu_close(opened), 0);                                        \
    }                                                                                  \
    static void f##_on(struct device *g)

#endif

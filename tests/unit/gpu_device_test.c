/* SPDX-License-Identifier: Apache-2.0 */
/* The device of a rank: open and close, brackets, events of users' streams, results. */
#include "runtime/backend/nccl/kernels/args.h"
#include "tests/unit/gpu_hooks.h"
#include "tests/unit/torture.h"

enum { OF_MEMORY = 1 }; /* the process's stream */

/* --- in children, before this process uses CUDA --- */

static const struct failed_open {
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: unset */
    const char *faults;
    uint32_t local_rank;
    int ordinal, rc;
    const char *text; /* the message; of -ENOTSUP a part */
} failed_opens[] = {
    {"", "", 0, 0, -ENODEV, "no CUDA device is visible (CUDA_VISIBLE_DEVICES=\"\")"},
    {"0", "init=803", 0, 0, -ENOTSUP, "does not fit the driver of the host"},
    {NULL, "", 0, 5, -ENODEV, "there is no CUDA device 5: 3 are visible"},
    {"1,0", "", 2, 2, -ENODEV,
     "there is no CUDA device 2: 2 are visible (CUDA_VISIBLE_DEVICES=\"1,0\"); start "
     "fewer ranks on this host, or make more GPUs visible"},
    {"1", "", 1, 1, -ENODEV,
     "there is no CUDA device 1: 1 is visible (CUDA_VISIBLE_DEVICES=\"1\"); if each "
     "rank "
     "sees one GPU only, use device 0; if the ranks of this host share this GPU, make "
     "more GPUs visible"},
};

/* Before CUDA is used in this process. */
static int open_fails(const void *row)
{
    const struct failed_open *want = row;
    struct device_config c = some_config;
    struct device *g;
    struct err err = ERR_INIT;

    c.local_rank = want->local_rank;
    if (want->visible)
        (void)setenv("CUDA_VISIBLE_DEVICES", want->visible, 1);
    fake_begin_as("12050", "3", NULL);
    fake.set_faults(want->faults);
    CHILD_NEEDS(gpu_open(&c, want->ordinal, &hooks, NULL, &g, &err) == want->rc);
    if (want->rc == -ENOTSUP)
        return !strstr(err.text, want->text);
    CHILD_NEEDS(!strcmp(err.text, want->text));
    if (want->visible && !*want->visible)
        return 0;
    CHILD_NEEDS(gpu_open(&c, 0, &hooks, NULL, &g, &err) == 0);
    return gpu_close(g);
}

UNIT_TEST(a_failed_open_has_a_message)
{
    ASSERT_CHILDREN(open_fails, failed_opens);
}

/* In a child, because tables belong to the process. cuda: an old one; NULL:
 * synchronising is requested. */
static int child_syncs(const void *cuda)
{
    struct device_config c = some_config;
    struct device_event *e;
    struct device *g;

    c.syncs_ready = !cuda;
    fake_begin_as(cuda ? cuda : "12050", "1", NULL);
    CHILD_NEEDS(gpu_open(&c, 0, &hooks, NULL, &g, NULL) == 0);
    CHILD_NEEDS(gpu_record(g, DEVICE_STREAM_ALL, &e, NULL) == 0);
    CHILD_NEEDS(fake.n_syncs() == 1);
    event_unref(e);
    return gpu_close(g);
}

UNIT_TEST(record_all_without_ctx_event_synchronises)
{
    assert_int_equal(in_child(child_syncs, NULL), 0);
    assert_int_equal(in_child(child_syncs, "12040"), 0);
}

/* A user's kernel has failed; which call reports it first is chance. */
CHILD_TEST(a_lost_context_breaks_the_device)
{
    struct args_move none = {.n = 0};
    void *params[] = {&none}, *memory = NULL;
    struct err err = ERR_INIT, cause = ERR_INIT;
    struct device *g = open_one();
    struct device_event *e = NULL;
    cu_module m;
    cu_func f;

    CHILD_NEEDS(fake.cu.ctx_push(g->ctx) == 0);
    CHILD_NEEDS(fake.cu.module_load(&m, ".version 7.0\n.target sm_70\n") == 0);
    CHILD_NEEDS(fake.cu.module_func(&f, m, "hvd_copy") == 0);
    CHILD_NEEDS(gpu_alloc(g, 4096, &memory, &e, &err) == 0);
    event_unref(e); /* from here on none is made */
    fake.set_faults("kernel_error=700@1");
    CHILD_NEEDS(fake.cu.launch(f, 1, 1, 1, 256, 1, 1, 0, NULL, params, NULL) == 0);
    for (int i = 0; i < 5000 && fake.cu.stream_query(NULL) != CU_ILLEGAL_ADDRESS; i++)
        usleep(1000);
    CHILD_NEEDS(gpu_alloc(g, 4096, &memory, &e, &err) == -EIO
                || gpu_record(g, NULL, &e, &err) == -EIO);
    CHILD_NEEDS(strncmp(err.text, "rank 2 (host b)", 15) == 0
                && strstr(err.text, "ILLEGAL_ADDRESS"));
    CHILD_NEEDS(gpu_check(g, &cause) == -ECONNABORTED);
    CHILD_NEEDS(!strcmp(cause.text, err.text));
    CHILD_NEEDS(gpu_alloc(g, 1 << 20, &memory, &e, &err) == -EIO
                && !strcmp(cause.text, err.text)); /* what came first */
    CHILD_NEEDS(fake.cu.ctx_pop(NULL) == 0);
    (void)gpu_close(g); /* threads are none too many */
    return 0;
}

/* In a child: what the driver has then is its own. */
CHILD_TEST(closes_after_driver_is_gone)
{
    struct device *g = open_one();
    struct device_event *e;

    CHILD_NEEDS(gpu_record(g, NULL, &e, NULL) == 0);
    fake.set_faults("deinit=1");
    event_unref(e);
    CHILD_NEEDS(gpu_close(g) == 0);
    gpu_free(&e, NULL);
    return 0;
}

static const struct gpu_hooks nccl_hooks = {.needs_nccl = true, .run = hook_run};

static uint32_t streams_of(uint32_t n)
{
    struct device_config c = some_config;
    struct device *g;

    c.n_streams = n;
    if (gpu_open(&c, 0, &nccl_hooks, NULL, &g, NULL) < 0)
        return 0;
    n = g->n_streams;
    return gpu_close(g) == 0 ? n : 0;
}

static const struct nccl_case {
    const char *nccl;
    bool is_loaded;    /* by the framework, before */
    const char *order; /* NCCL_LAUNCH_ORDER_IMPLICIT, before and after; NULL: unset */
    const char *order_after;
    uint32_t n; /* of three that are requested */
} nccl_cases[] = {
    {"22705", false, NULL, "1", 3},  {"22705", false, "0", "0", 1},
    {"22504", false, NULL, NULL, 1}, {"22705", true, NULL, NULL, 1},
    {"22705", true, "1", "1", 3},
};

static int opens_streams(const void *row)
{
    const struct nccl_case *c = row;

    fake_begin_as("12050", "1", NULL);
    (void)setenv("HVD_FAKE_NCCL", c->nccl, 1);
    if (c->order)
        (void)setenv("NCCL_LAUNCH_ORDER_IMPLICIT", c->order, 1);
    CHILD_NEEDS(!c->is_loaded || dlopen("libnccl.so.2", RTLD_NOW));
    CHILD_NEEDS(streams_of(3) == c->n);
    const char *got = getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), *after = c->order_after;
    CHILD_NEEDS(after ? got && !strcmp(got, after) : !got);
    return 0;
}

UNIT_TEST(several_streams_need_launches_in_order)
{
    ASSERT_CHILDREN(opens_streams, nccl_cases);
}

/* --- in this process --- */

UNIT_TEST(opens_and_closes)
{
    struct device *g = open_one();
    assert_int_equal(g->sm, 90);
    assert_int_equal(g->n_streams, 1);
    assert_int_equal(gpu_ordinal(g), 0);
    assert_string_equal(g->name, "NVIDIA Fake");
    assert_int_equal(gpu_close(g), 0);
    assert_int_equal(seen.n_aborted, 1);
    assert_int_equal(fake.n_streams(), OF_MEMORY);
    assert_int_equal(fake.n_events(), 0);
    struct device_config c = some_config;
    c.n_streams = 99;
    g = open_as(&c);
    assert_int_equal(g->n_streams, GPU_MAX_STREAMS);
    assert_int_equal(gpu_close(g), 0);
    assert_int_equal(gpu_close(NULL), 0);
}

static int device_open_close(__attribute__((unused)) void *arg)
{
    struct err err = ERR_INIT;
    struct device *g;
    int rc = gpu_open(&some_config, 0, &hooks, NULL, &g, &err);

    return rc ? rc : gpu_close(g);
}

UNIT_TEST(a_failing_open_leaves_nothing)
{
    assert_int_equal(gpu_close(open_one()), 0);
    torture(device_open_close, NULL);
    assert_int_equal(fake.n_streams(), OF_MEMORY);
    assert_int_equal(fake.n_events(), 0);
}

DEVICE_TEST(enter_restores_context_and_capture_mode)
{
    struct gpu_scope scope;
    cu_ctx before = NULL;
    int mode = CU_CAPTURE_THREAD_LOCAL;

    assert_int_equal(fake.cu.capture_mode(&mode), 0);
    assert_int_equal(gpu_enter(g, &scope, NULL), 0);
    int inside = CU_CAPTURE_GLOBAL;
    assert_int_equal(fake.cu.capture_mode(&inside), 0);
    assert_int_equal(inside, CU_CAPTURE_RELAXED);
    assert_int_equal(fake.cu.capture_mode(&inside), 0);
    gpu_leave(&scope);
    assert_int_equal(fake.cu.capture_mode(&mode), 0);
    assert_int_equal(mode, CU_CAPTURE_THREAD_LOCAL);
    assert_int_equal(fake.cu.ctx_pop(&before), CU_INVALID_CONTEXT); /* none is left */
}

/* What was captured is whole, and goes with its stream. */
static void capture_end_well(struct device *g, cu_stream s)
{
    cu_graph graph;

    INSIDE(g, assert_int_equal(fake.cu.capture_end(s, &graph), 0);
           assert_int_equal(fake.cu.graph_free(graph), 0);
           assert_int_equal(fake.cu.stream_free(s), 0));
}

/* A framework captures in global mode in one thread. Our calls of the driver, in that
 * thread and in the launcher's, do not end the capture. */
DEVICE_TEST(a_frameworks_capture_is_not_disturbed)
{
    struct device_event *e;
    void *p;

    cu_stream user = user_stream(g, 0), other = user_stream(g, 0);
    INSIDE(g, assert_int_equal(fake.cu.capture_begin(user, CU_CAPTURE_GLOBAL), 0));
    assert_int_equal(gpu_record(g, other, &e, NULL), 0);
    WAIT_UNTIL(is_done(g, e) == 1);
    event_unref(e);
    struct device_event *done = step_push(g, (struct step){0});
    WAIT_UNTIL(is_done(g, done) == 1);
    event_unref(done);
    assert_int_equal(gpu_alloc(g, 100, &p, &e, NULL), 0);
    event_unref(e);
    gpu_free(p, other);
    assert_int_equal(gpu_alloc(g, 100, &p, &e, NULL), 0);
    event_unref(e);
    gpu_free(p, user); /* by a collection of garbage, in the thread that captures */
    WAIT_UNTIL(gpu_ordinal_of(p) < 0);
    capture_end_well(g, user);
    INSIDE(g, assert_int_equal(fake.cu.stream_free(other), 0));
}

DEVICE_TEST(record_refuses_a_capturing_stream)
{
    struct err err = ERR_INIT;
    struct device_event *e;
    cu_graph graph;

    cu_stream user = user_stream(g, 0);
    INSIDE(g, assert_int_equal(fake.cu.capture_begin(user, CU_CAPTURE_RELAXED), 0));
    assert_int_equal(gpu_record(g, user, &e, &err), -EBUSY);
    assert_non_null(strstr(err.text, "is being captured into a CUDA graph"));
    INSIDE(g, assert_int_equal(fake.cu.capture_end(user, &graph), 0);
           assert_int_equal(fake.cu.graph_free(graph), 0);
           assert_int_equal(fake.cu.capture_begin(user, CU_CAPTURE_RELAXED), 0));
    assert_int_equal(gpu_record(g, DEVICE_STREAM_ALL, &e, &err), -EBUSY);
    /* the driver cannot be queried before for what this breaks */
    INSIDE(g,
           assert_int_equal(fake.cu.capture_end(user, &graph), CU_CAPTURE_INVALIDATED);
           assert_int_equal(fake.cu.stream_free(user), 0));
}

/* A capture of ours, by the launcher, would break: users wait for its end, the seat
 * leaves it to the launcher. */
DEVICE_TEST(the_seat_does_not_wait_for_a_capture_of_ours)
{
    struct device_event *e;

    assert_int_equal(pthread_mutex_lock(&g->whole), 0);
    assert_int_equal(gpu_record(g, DEVICE_STREAM_ALL_LATER, &e, NULL), 0);
    assert_int_equal(e->state, EVENT_LATER);
    assert_int_equal(pthread_mutex_unlock(&g->whole), 0);
    event_unref(e);
    assert_int_equal(gpu_record(g, DEVICE_STREAM_ALL_LATER, &e, NULL), 0);
    assert_int_equal(e->state, EVENT_RECORDED);
    event_unref(e);
}

static void *record_all_main(void *arg)
{
    struct device_event *e;

    return (void *)(intptr_t)gpu_record(arg, DEVICE_STREAM_ALL, &e, NULL);
}

/* The launcher may never come back from a capture. */
DEVICE_TEST(waiters_for_our_capture_leave_at_a_stop)
{
    pthread_t thread;
    void *result;

    assert_int_equal(pthread_mutex_lock(&g->whole), 0);
    assert_int_equal(pthread_create(&thread, NULL, record_all_main, g), 0);
    usleep(2000);
    gpu_abort(g);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal((intptr_t)result, -ECONNABORTED);
    assert_int_equal(pthread_mutex_unlock(&g->whole), 0);
}

DEVICE_TEST(record_all_is_all_streams)
{
    struct device_event *e;
    struct gate gate;

    cu_stream user = user_stream(g, CU_STREAM_NON_BLOCKING);
    INSIDE(g, gate_put(&gate, user));
    assert_int_equal(gpu_record(g, DEVICE_STREAM_ALL, &e, NULL), 0);
    INSIDE(g, WAIT_UNTIL(fake.cu.stream_query(NULL) == CU_OK)); /* the legacy one */
    assert_int_equal(is_done(g, e), 0);
    gate.is_open = 1;
    WAIT_UNTIL(is_done(g, e) == 1);
    assert_int_equal(fake.n_syncs(), 0);
    event_unref(e);
    INSIDE(g, assert_int_equal(fake.cu.stream_free(user), 0));
}

UNIT_TEST(results_outlive_the_device)
{
    struct device_event *e;
    void *p;

    struct device *g = open_one();
    unsigned n = fake.n_blocks();
    assert_int_equal(gpu_alloc(g, 100, &p, &e, NULL), 0);
    event_unref(e);
    assert_int_equal(gpu_ordinal_of(p), 0);
    assert_int_equal(gpu_ordinal_of(&e), -EINVAL);
    assert_int_equal(gpu_record(g, NULL, &e, NULL), 0);
    assert_int_equal(gpu_close(g), 0);
    event_unref(e);
    assert_int_equal(fake.n_events(), 0);
    assert_int_equal(fake.n_blocks(), n + 1);
    gpu_free(p, NULL);
    gpu_free(NULL, NULL);
    WAIT_UNTIL(fake.n_blocks() == n);
}

static struct device *parents;
static struct device_event *parents_event;
static void *parents_memory;

static int child_calls_nothing(const void *no_row)
{
    struct err err = ERR_INIT;
    struct device_event *e;
    void *p;

    gpu_forked(parents);
    unsigned long n = fake.calls();
    event_unref(parents_event);
    gpu_free(parents_memory, NULL);
    CHILD_NEEDS(gpu_record(parents, NULL, &e, &err) < 0);
    CHILD_NEEDS(gpu_alloc(parents, 1, &p, &e, &err) < 0);
    CHILD_NEEDS(gpu_close(parents) == 0);
    CHILD_NEEDS(gpu_open(&some_config, 0, &hooks, NULL, &parents, &err) == -ENODEV);
    CHILD_NEEDS(!strcmp(err.text,
                        "CUDA does not work in a forked child: start processes by "
                        "spawn"));
    CHILD_NEEDS(fake.calls() == n);
    return 0;
}

UNIT_TEST(forked_child_calls_nothing)
{
    struct device_event *e;

    parents = open_one();
    assert_int_equal(gpu_record(parents, NULL, &parents_event, NULL), 0);
    assert_int_equal(gpu_alloc(parents, 1, &parents_memory, &e, NULL), 0);
    event_unref(e);
    assert_int_equal(in_child(child_calls_nothing, NULL), 0);
    event_unref(parents_event);
    gpu_free(parents_memory, NULL);
    assert_int_equal(gpu_close(parents), 0);
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a device whose streams wait for work of the program: that is waited for,
 * within a limit. What hangs by itself is not. */
#include "tests/unit/gpu_hooks.h"

enum { LONG_S = 3600 };

static struct device *open_with_limit(uint64_t limit_ns)
{
    struct device_config c = some_config;

    c.queue_limit_ns = limit_ns;
    fake_begin_as("12050", "1", NULL);
    return open_as(&c);
}

/* A batch that is on our stream, behind the gate in a stream of the program. */
struct behind {
    struct device *g;
    struct gate gate;
    cu_stream user;
    struct device_event *done;
    pthread_t thread;
    _Atomic bool is_closed;
    int rc;
};

static void behind_begin(struct behind *b, struct step s)
{
    struct device_event *ready;

    b->user = user_stream(b->g, CU_STREAM_NON_BLOCKING);
    INSIDE(b->g, gate_put(&b->gate, b->user));
    assert_int_equal(gpu_record(b->g, b->user, &ready, NULL), 0);
    b->done = step_push_behind(b->g, ready, s);
    event_unref(ready);
    WAIT_UNTIL(event_wait_recorded(b->done, UINT64_MAX) == 0 || s.fails);
}

static void *close_main(void *arg)
{
    struct behind *b = arg;

    b->rc = gpu_close(b->g);
    b->is_closed = true;
    return NULL;
}

/* It is closed meanwhile, and not before the gate opens. */
static void behind_end(struct behind *b)
{
    assert_int_equal(pthread_create(&b->thread, NULL, close_main, b), 0);
    WAIT_UNTIL(b->is_closed || b->g->awaits_user_ns != 0);
    assert_false(b->is_closed);
    b->gate.is_open = 1;
    assert_int_equal(pthread_join(b->thread, NULL), 0);
    assert_int_equal(b->rc, 0);
    event_unref(b->done);
    struct device *next = open_with_limit(0);
    INSIDE(next, assert_int_equal(fake.cu.stream_free(b->user), 0));
    assert_int_equal(gpu_close(next), 0);
}

/* --- in children, before this process uses CUDA --- */

/* The program waits for it too, and a later batch of ours for that. */
CHILD_TEST(a_kernel_of_ours_that_hangs_is_not_waited_for)
{
    static struct gate gate;
    struct device *g = open_with_limit(LONG_S * NS_PER_S);
    struct device_event *done = step_push(g, (struct step){.gate = &gate}), *ready;

    cu_stream user = user_stream(g, CU_STREAM_NON_BLOCKING);
    CHILD_NEEDS(gpu_wait(g, done, user, UINT64_MAX, NULL) == 0);
    CHILD_NEEDS(gpu_record(g, user, &ready, NULL) == 0);
    struct device_event *later = step_push_behind(g, ready, (struct step){0});
    CHILD_NEEDS(event_wait_recorded(later, UINT64_MAX) == 0);
    CHILD_NEEDS(gpu_close(g) == -EBUSY);
    CHILD_NEEDS(g->awaits_user_ns == 0);
    gate.is_open = 1;
    return 0;
}

CHILD_TEST(the_wait_has_a_limit)
{
    static struct behind b;
    struct err err = ERR_INIT;
    struct device *next;

    b.g = open_with_limit(100 * NS_PER_MS);
    behind_begin(&b, (struct step){0});
    CHILD_NEEDS(gpu_close(b.g) == -EBUSY);
    CHILD_NEEDS(b.g->awaits_user_ns != 0);
    CHILD_NEEDS(gpu_open(&some_config, 0, &hooks, NULL, &next, &err) == -EBUSY);
    b.gate.is_open = 1;
    return 0;
}

/* --- in this process --- */

UNIT_TEST(work_of_the_program_is_waited_for)
{
    struct behind b = {.g = open_with_limit(LONG_S * NS_PER_S)};

    behind_begin(&b, (struct step){0});
    gpu_abort(b.g);
    behind_end(&b);
}

/* Its stream waits for the ready event all the same. */
UNIT_TEST(a_batch_that_failed_on_the_way_counts)
{
    struct behind b = {.g = open_with_limit(LONG_S * NS_PER_S)};

    behind_begin(&b, (struct step){.fails = -EIO});
    behind_end(&b);
}

/* With an old driver: the launcher itself waits, for all streams. */
UNIT_TEST(a_launcher_that_synchronises_is_waited_for)
{
    struct behind b = {.g = open_with_limit(LONG_S * NS_PER_S)};
    struct device_event *all;

    b.g->config.syncs_ready = true;
    b.user = user_stream(b.g, CU_STREAM_NON_BLOCKING);
    INSIDE(b.g, gate_put(&b.gate, b.user));
    assert_int_equal(gpu_record(b.g, DEVICE_STREAM_ALL_LATER, &all, NULL), 0);
    b.done = step_push_behind(b.g, all, (struct step){0});
    event_unref(all);
    WAIT_UNTIL(fake.n_syncs() > 0);
    gpu_abort(b.g);
    behind_end(&b);
}

UNIT_MAIN(NULL, NULL)

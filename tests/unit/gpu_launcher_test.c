/* SPDX-License-Identifier: Apache-2.0 */
/* Launcher and watcher: jobs in their order, and every way in which a device breaks. */
#include "runtime/core/compress/codec.h"
#include "tests/unit/gpu_hooks.h"
#include "tests/unit/timed.h"

enum { TOO_SLOW = 3 }; /* status of a child that missed a time bound */

/* --- in children, before this process uses CUDA --- */

/* In a child: what is left behind stays in the process. */
static int a_call_that_never_ends(const void *no_row)
{
    static _Atomic int blocks = 1;
    struct err err = ERR_INIT;

    struct device *g = open_one(), *next;
    struct device_event *done = step_push(g, (struct step){.blocks = &blocks});
    while (seen.order[0] == 0)
        usleep(100);
    uint64_t began_ns = clock_now_ns();
    gpu_abort(g);
    while (seen.n_aborted == 0)
        usleep(100);
    if (clock_now_ns() - began_ns >= NS_PER_S)
        return TOO_SLOW;
    CHILD_NEEDS(seen.was_quiet == 0);
    /* a thread that waits for its event is not left behind */
    CHILD_NEEDS(gpu_wait(g, done, NULL, UINT64_MAX, &err) == -ECONNABORTED);
    CHILD_NEEDS(gpu_close(g) == -EBUSY);
    CHILD_NEEDS(gpu_open(&some_config, 0, &hooks, NULL, &next, &err) == -EBUSY);
    CHILD_NEEDS(strstr(err.text, "restart the process"));
    blocks = 0; /* it comes back and finds all taken: nothing bad happens */
    CHILD_NEEDS(event_wait_recorded(done, UINT64_MAX) != -ETIMEDOUT);
    return 0;
}

UNIT_TEST(stuck_call_is_left_behind)
{
    int status = 0;

    ASSERT_IN_TIME((status = in_child(a_call_that_never_ends, NULL)) != TOO_SLOW);
    assert_int_equal(status, 0);
}

CHILD_TEST(a_kernel_that_never_ends_is_left_behind)
{
    static struct gate gate;
    struct device *g = open_one();
    struct device_event *done = step_push(g, (struct step){.gate = &gate});

    CHILD_NEEDS(event_wait_recorded(done, UINT64_MAX) == 0);
    CHILD_NEEDS(gpu_close(g) == -EBUSY);
    gate.is_open = 1;
    return 0;
}

CHILD_TEST(a_sticky_error_names_its_rank)
{
    struct err err = ERR_INIT;
    struct device *g = open_one();
    struct device_event *late;
    CHILD_NEEDS(event_new(g->events, &late, &err) == 0);
    struct device_event *done = step_push(g, (struct step){.dies = true});

    while (gpu_check(g, &err) == 0)
        usleep(100);
    CHILD_NEEDS(!strncmp(err.text, "rank 2 (host b): cu", 19));
    CHILD_NEEDS(strstr(err.text,
                       "an illegal memory access was encountered "
                       "(CUDA_ERROR_ILLEGAL_ADDRESS); the CUDA context of this "
                       "process is lost: restart it"));
    CHILD_NEEDS(gpu_quiesce(g, clock_now_ns() + 20 * NS_PER_S));
    /* A batch's end must not be seen to fail before the device has its cause. */
    CHILD_NEEDS(event_record(late, g->streams[0], &err) < 0);
    CHILD_NEEDS(event_is_done(late, &err) == 0);
    event_fail(late);
    CHILD_NEEDS(event_is_done(late, &err) == -ECONNABORTED);
    event_unref(late);
    event_unref(done);
    return gpu_close(g);
}

/* --- in this process --- */

/* It waits for the events of inputs and of results' memory, each once. */
DEVICE_TEST(job_is_one_copy_of_all)
{
    struct device_event *e[6];
    const char *names[5] = {"one", "", "three", "four", "five"};
    struct codec_plan plans[5];
    for (int i = 0; i < 6; i++)
        assert_int_equal(gpu_record(g, NULL, &e[i], NULL), 0);
    memset(plans, 3, sizeof(plans));
    struct batch_item items[5] = {{.count = 7, .ready = e[0], .given = e[1]},
                                  {.count = 8, .ready = e[2], .given = e[3]},
                                  {.count = 9, .ready = e[0], .given = e[4]},
                                  {.count = 10, .given = e[5]},
                                  {.count = 11, .ready = e[2], .given = e[2]}};
    struct batch batch = {.items = items, .n_items = 5, .root = 3};
    struct gpu_job *job = job_new(JOB_CODEC, &batch, names, plans, 100);
    assert_non_null(job);
    assert_int_equal(job->n_ready, 6);
    for (int i = 0; i < 6; i++) {
        assert_ptr_equal(job->ready[i], e[i]);
        assert_int_equal(e[i]->refs, 2);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(job->batch.items[i].count, i + 7);
        assert_null(job->batch.items[i].ready);
        assert_null(job->batch.items[i].given);
        assert_string_equal(job->names[i], names[i]);
        assert_ptr_not_equal(job->names[i], names[i]);
    }
    assert_int_equal(job->batch.root, 3);
    assert_memory_equal(job->plans, plans, sizeof(plans));
    for (int i = 0; i < 100; i++)
        assert_int_equal(((char *)job->extra)[i], 0);
    memset(job->extra, 0xff, 100);
    assert_true((char *)job->extra + 100 <= (char *)job + job->size_bytes);
    job_free(job);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(e[i]->refs, 1);
        event_unref(e[i]);
    }
    mem_fail_after(0);
    assert_null(job_new(JOB_BATCH, &batch, NULL, NULL, 0));
    mem_fail_after(-1);
    job = job_new(JOB_CLOSE, NULL, NULL, NULL, 0);
    assert_non_null(job);
    job_free(job);
    job_free(NULL);
}

DEVICE_TEST(the_coordinator_is_woken_once_work_ended)
{
    struct gate gate = {0};

    struct device_event *done = step_push(g, (struct step){.gate = &gate});
    assert_int_equal(event_wait_recorded(done, UINT64_MAX), 0);
    watch_await(&g->watch, true);
    usleep(2000);
    assert_int_equal(seen.n_woken, 0);
    gate.is_open = 1;
    WAIT_UNTIL(seen.n_woken == 1);
    WAIT_UNTIL(is_done(g, done) == 1);
    event_unref(done);
}

/* A nap of 50 us would take 100. Threads of users keep their setting. */
UNIT_TEST(naps_of_our_threads_end_on_time)
{
    const int slack_ns = prctl(PR_GET_TIMERSLACK);

    struct device *g = open_one();
    event_unref(step_push(g, (struct step){0}));
    assert_int_equal(gpu_close(g), 0);
    assert_int_equal(seen.n_run, 1);
    assert_int_equal(seen.launcher_slack_ns, 1);
    assert_int_equal(seen.watcher_slack_ns, 1);
    assert_int_equal(prctl(PR_GET_TIMERSLACK), slack_ns);
}

/* A peer may be late by minutes: 2000 looks a second would be a part of a processor. */
DEVICE_TEST(a_late_batch_is_looked_at_ever_less)
{
    struct gate gate = {0};

    struct device_event *done = step_push(g, (struct step){.gate = &gate});
    assert_int_equal(event_wait_recorded(done, UINT64_MAX), 0);
    usleep(120000); /* the longest pause is a sixteenth of 80 ms */
    uint64_t begin_ns = clock_now_ns();
    unsigned long n = fake.calls();
    usleep(150000);
    n = fake.calls() - n;
    assert_true(n <= (clock_now_ns() - begin_ns) / (4 * NS_PER_MS) + 10);
    gate.is_open = 1;
    WAIT_UNTIL(is_done(g, done) == 1 && seen.n_woken > 0);
    event_unref(done);
}

DEVICE_TEST(a_failing_job_breaks_the_device)
{
    struct err err = ERR_INIT;
    _Atomic int blocks = 1;

    struct device_event *good = step_push(g, (struct step){0});
    struct device_event *bad =
        step_push(g, (struct step){.fails = -EIO, .blocks = &blocks});
    struct device_event *later = step_push(g, (struct step){0});
    blocks = 0;
    WAIT_UNTIL(g->life == GPU_ENDED);
    assert_int_equal(gpu_check(g, &err), -ECONNABORTED);
    assert_string_equal(err.text, "rank 2 (host b): it failed");
    WAIT_UNTIL(is_done(g, good) == 1);
    assert_int_equal(gpu_wait(g, bad, NULL, UINT64_MAX, &err), -ECONNABORTED);
    assert_string_equal(err.text, "rank 2 (host b): it failed");
    assert_int_equal(gpu_wait(g, later, NULL, UINT64_MAX, &err), -ECONNABORTED);
    assert_int_equal(seen.n_run, 2);
    assert_int_equal(seen.n_dropped, 1);
    assert_int_equal(seen.n_aborted, 1);
    /* or it had no processor for half a second */
    assert_true(seen.was_quiet || g->launcher.at == LAUNCHER_BARRED);
    assert_true(seen.n_woken > 0);
    struct gpu_job *job = job_new(JOB_BATCH, NULL, NULL, NULL, sizeof(struct step));
    assert_int_equal(launcher_push(&g->launcher, job, &err), -ECONNABORTED);
    job_free(job);
    assert_int_equal(gpu_record(g, NULL, &good->next, &err), -ECONNABORTED);
    event_unref(good);
    event_unref(bad);
    event_unref(later);
}

DEVICE_TEST(close_of_a_set_that_fails_breaks_nothing)
{
    struct gpu_job *job = job_new(JOB_CLOSE, NULL, NULL, NULL, sizeof(struct step));
    ((struct step *)job->extra)->fails = -EIO;
    assert_int_equal(launcher_push(&g->launcher, job, NULL), 0);
    assert_int_equal(launcher_drain(&g->launcher, UINT64_MAX), 0);
    assert_int_equal(gpu_check(g, NULL), 0);
}

static bool is_aborted_soon(void)
{
    struct err err = ERR_INIT;
    _Atomic int blocks = 1;
    struct device *g = open_one();

    struct device_event *in =
        step_push(g, (struct step){.blocks = &blocks, .is_polite = true});
    struct device_event *behind = step_push(g, (struct step){0});
    WAIT_UNTIL(seen.order[0] != 0);
    assert_int_equal(gpu_wait(g, behind, NULL, clock_now_ns() + NS_PER_MS, &err),
                     -ETIMEDOUT);
    uint64_t began_ns = clock_now_ns();
    gpu_abort(g);
    gpu_abort(g);
    assert_int_equal(gpu_wait(g, behind, NULL, UINT64_MAX, &err), -ECONNABORTED);
    assert_string_equal(err.text, "work on the GPU was aborted");
    bool is_soon = gpu_quiesce(g, began_ns + NS_PER_S) && seen.was_quiet;
    event_unref(in);
    event_unref(behind);
    assert_int_equal(gpu_close(g), 0);
    assert_int_equal(seen.n_run, 1);
    assert_int_equal(seen.n_dropped, 1);
    return is_soon;
}

UNIT_TEST(abort_fails_what_waits_within_a_second)
{
    ASSERT_IN_TIME(is_aborted_soon());
}

/* From the stop to the abort, while a job does not return. */
static uint64_t time_to_abort(struct step s)
{
    _Atomic int blocks = 1;
    struct device *g = open_one();

    s.blocks = &blocks;
    struct device_event *done = step_push(g, s);
    WAIT_UNTIL(seen.order[0] != 0);
    uint64_t began_ns = clock_now_ns();
    gpu_abort(g);
    WAIT_UNTIL(seen.n_aborted == 1);
    uint64_t ns = clock_now_ns() - began_ns;
    assert_int_equal(seen.was_quiet, 0);
    assert_int_equal(g->launcher.barred_at,
                     s.may_hang ? LAUNCHER_WAITING : LAUNCHER_INSIDE);
    blocks = 0;
    assert_int_not_equal(event_wait_recorded(done, UINT64_MAX), -ETIMEDOUT);
    event_unref(done);
    assert_int_equal(gpu_close(g), 0);
    assert_int_equal(seen.was_let, 0);
    return ns;
}

/* A launcher outside a call that may hang only needs a processor. */
UNIT_TEST(a_launcher_that_is_asleep_has_more_time)
{
    uint64_t least_ns = UINT64_MAX;

    assert_true(time_to_abort((struct step){0}) >= 450 * NS_PER_MS);
    for (int i = 0; i < 20 && least_ns >= 450 * NS_PER_MS; i++) {
        uint64_t ns = time_to_abort((struct step){.may_hang = true});
        assert_true(ns >= 190 * NS_PER_MS);
        least_ns = ns < least_ns ? ns : least_ns;
    }
    assert_true(least_ns < 450 * NS_PER_MS);
}

/* Nobody can abort under it: it was outside, and goes in no more. */
DEVICE_TEST(a_launcher_asleep_outside_is_barred)
{
    struct device_event *done = step_push(g, (struct step){.sleeps = true});
    WAIT_UNTIL(g->launcher.at == LAUNCHER_OUTSIDE && seen.order[0] != 0);
    gpu_abort(g);
    WAIT_UNTIL(seen.n_run == 1);
    assert_int_equal(seen.was_let, 0);
    assert_int_equal(seen.was_quiet, 0);
    assert_int_equal(g->launcher.barred_at, LAUNCHER_OUTSIDE);
    event_unref(done);
}

DEVICE_TEST(nothing_is_looked_at_while_idle)
{
    usleep(250000);
    assert_int_equal(seen.n_looked, 0);
}

/* How many of five jobs have run; the other jobs were dropped. */
static unsigned close_behind_jobs(void)
{
    _Atomic int blocks = 1;
    struct device *g = open_one();
    struct device_event *e[5];

    for (int i = 0; i < 5; i++)
        e[i] = step_push(g, (struct step){.blocks = i == 0 ? &blocks : NULL});
    blocks = 0;
    assert_int_equal(gpu_close(g), 0);
    assert_int_equal(seen.n_run + seen.n_dropped, 5);
    for (int i = 0; i < 5; i++)
        event_unref(e[i]);
    assert_int_equal(fake.n_events(), 0);
    return seen.n_run;
}

UNIT_TEST(order_of_close_lets_jobs_end)
{
    ASSERT_IN_TIME(close_behind_jobs() == 5); /* they have half a second */
}

/* Pushes and aborts at the same time: each job runs or is dropped, none is lost. */
static void *abort_soon(void *arg)
{
    usleep((unsigned)(clock_now_ns() % 300));
    gpu_abort(arg);
    return NULL;
}

UNIT_TEST(no_job_is_lost_in_an_abort)
{
    for (int round = 0; round < 30; round++) {
        struct device *g = open_one();
        struct device_event *e[64];
        unsigned n = 0;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, abort_soon, g), 0);
        while (n < 64) {
            struct gpu_job *job =
                job_new(JOB_BATCH, NULL, NULL, NULL, sizeof(struct step));
            job->stream = g->streams[0];
            INSIDE(g, assert_int_equal(event_new(g->events, &e[n], NULL), 0));
            job->done = event_ref(e[n]);
            if (launcher_push(&g->launcher, job, NULL) < 0) {
                job_free(job);
                event_unref(e[n]);
                break;
            }
            n++;
        }
        for (unsigned i = 0; i < n; i++) {
            assert_int_not_equal(
                event_wait_recorded(e[i], clock_now_ns() + 20 * NS_PER_S), -ETIMEDOUT);
            event_unref(e[i]);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(gpu_close(g), 0);
        assert_int_equal(seen.n_run + seen.n_dropped, n);
    }
}

UNIT_MAIN(NULL, NULL)

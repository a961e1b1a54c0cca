/* SPDX-License-Identifier: Apache-2.0 */
/* The end of communicators after a failure: within a second, whatever NCCL does, and
 * with the cause. */
#include <sys/syscall.h>
#include <time.h>

#include "tests/unit/gpu_members.h"

enum { COUNT = 100 };

static bool is_soon(uint64_t began_ns)
{
    return clock_now_ns() - began_ns < NS_PER_S;
}

/* Opens, posts n sums, the last of which never ends. ret_last: its event; may be NULL. */
static int open_and_hang(struct device *g,
                         struct backend *meeting,
                         int n,
                         struct backend **ret,
                         struct device_event **ret_last,
                         char *said)
{
    struct err err = ERR_INIT;
    uint64_t ticket = 0;
    float *v;

    HOLDS(case_open(g, meeting, ret, &err) == 0);
    HOLDS((v = floats_new(g, COUNT, 1, &err)));
    for (int i = 0; i < n; i++)
        HOLDS(post_sum(*ret, v, COUNT, &ticket, &err) == 0);
    if (ret_last)
        *ret_last = comm_ticket_event(*ret, ticket);
    return 0;
}

MEMBER_BODY(member_hangs)
{
    struct err err = ERR_INIT;
    struct device_event *last;
    struct backend *b;
    uint64_t done;

    if (open_and_hang(g, meeting, 3, &b, &last, said))
        return 1;
    HOLDS(wait_ticket(b, 2, 30, &err) == 0); /* the third stays on the device forever */
    HOLDS(event_wait_recorded(last, clock_now_ns() + 10 * NS_PER_S) == 0);
    meet_all(p, 1);
    const uint64_t began_ns = clock_now_ns();
    b->ops->abort(b);
    b->ops->abort(b);
    SOON(is_soon(began_ns)); /* returns at once */
    SOON(gpu_quiesce(g, began_ns + NS_PER_S));
    SOON(is_soon(began_ns));
    HOLDS(b->ops->poll(b, &done, &err) == -ECONNABORTED);
    HOLDS(atomic_load(&((struct comm *)b)->state) == COMM_DEAD);
    b->ops->close(b);
    event_unref(last);
    return 0;
}

UNIT_TEST(an_abort_ends_a_kernel_that_waits_for_others)
{
    RUN_CASE(.n = 3, .body = member_hangs, .faults = "nccl_hang=1@2");
    RUN_CASE(.n = 2, .body = member_hangs, .faults = "nccl_hang=1@2",
             .version = "21003");
}

MEMBER_BODY(aborts_start)
{
    struct err err = ERR_INIT;
    struct device_event *last;
    struct backend *b;

    if (open_and_hang(g, meeting, 1, &b, &last, said))
        return 1;
    meet_all(p, 1);
    (void)usleep(20000);
    const uint64_t began_ns = clock_now_ns();
    gpu_broken(g, "rank 1 was killed by signal 9");
    SOON(gpu_quiesce(g, began_ns + NS_PER_S));
    /* waiters for work that was never launched wake up; rank 1's may have been
     * launched */
    int rc = event_wait_recorded(last, began_ns + NS_PER_S);
    SOON(rc != -ETIMEDOUT);
    HOLDS(rc == -ECONNABORTED || (rc == 0 && g->config.rank == 1));
    HOLDS(gpu_check(g, &err) == -ECONNABORTED);
    HOLDS(strcmp(err.text, "rank 1 was killed by signal 9") == 0);
    event_unref(last);
    return 0;
}

UNIT_TEST(a_start_can_be_aborted)
{
    run_versions(
        (struct gpu_case){.n = 3, .body = aborts_start, .faults = "init_hang=1"}, 1);
}

/* The call itself stays in progress, as while a connection is made. */
UNIT_TEST(a_call_in_progress_can_be_aborted)
{
    run_versions(
        (struct gpu_case){.n = 2, .body = aborts_start, .faults = "enqueue_hang=0@0"},
        1);
    /* an old NCCL blocks inside of it */
    RUN_CASE(.n = 2, .body = aborts_start, .version = "21003",
             .faults = "enqueue_hang=0@0");
}

/* Its set was removed before: it waits for what is on its way. */
MEMBER_TEST(an_asynchronous_error_is_seen_while_closed,
            .n = 2,
            .faults = "async_error=1:6@1")
{
    struct err err = ERR_INIT;
    struct backend *b;
    float *v;
    uint64_t ticket;

    if (open_and_hang(g, meeting, 1, &b, NULL, said))
        return 1;
    HOLDS(wait_ticket(b, 1, 20, &err) == 0);
    HOLDS((v = floats_new(g, COUNT, 1, &err)));
    HOLDS(gate_close(g, &err) == 0);
    HOLDS(post_sum(b, v, COUNT, &ticket, &err) == 0);
    b->ops->close(b);
    (void)usleep(50000); /* the launcher has come to the close, or it proves less */
    meet_all(p, 1);
    atomic_store(&gate_is_open, true);
    COMES(g->config.rank == 0 || gpu_check(g, &err) != 0);
    HOLDS(g->config.rank == 0 || strstr(err.text, "NCCL asynchronous error on rank 1"));
    meet_all(p, 2);
    gpu_abort(g);
    HOLDS(gpu_quiesce(g, clock_now_ns() + 5 * NS_PER_S));
    return 0;
}

/* The launcher's next call may see the error before the watcher checks. */
MEMBER_TEST(an_asynchronous_error_is_seen_at_the_next_call,
            .n = 2,
            .faults = "async_error=1:6@1")
{
    struct err err = ERR_INIT;
    struct backend *b;
    uint64_t ticket;
    float *v;
    int rc = 0;

    HOLDS(case_open(g, meeting, &b, &err) == 0);
    HOLDS((v = floats_new(g, COUNT, 1, &err)));
    HOLDS(post_sum(b, v, COUNT, &ticket, &err) == 0);
    HOLDS(wait_ticket(b, ticket, 20, &err) == 0); /* it is connected */
    for (int i = 0; i < (g->config.rank == 0 ? 1 : 50) && rc == 0; i++) {
        rc = post_sum(b, v, COUNT, &ticket, &err);
        (void)usleep(1000);
    }
    /* a busy machine */
    COMES(g->config.rank == 0 || (rc = gpu_check(g, &err)) != 0);
    if (g->config.rank == 1) {
        HOLDS(rc == -ECONNABORTED);
        HOLDS(strstr(err.text, "NCCL asynchronous error on rank 1 (host a), GPU 1 ("));
        HOLDS(strstr(err.text, "remote process exited"));
    }
    meet_all(p, 1);
    gpu_abort(g);
    SOON(gpu_quiesce(g, clock_now_ns() + NS_PER_S));
    return 0;
}

/* --- a launcher that wakes up late --- */

static _Atomic bool is_late;

/* In place of libc's, for the launcher's naps. */
int nanosleep(const struct timespec *requested_time, struct timespec *remaining)
{
    const int rc = (int)syscall(SYS_nanosleep, requested_time, remaining);
    char name[16] = "";

    (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    if (atomic_load(&is_late) && strcmp(name, "hvd-gpu") == 0)
        (void)usleep(900000);
    return rc;
}

/* As on a machine that others keep busy: the watcher has waited for it as long as it
 * may, and has aborted what the launcher was to ask for its state. */
MEMBER_BODY(wakes_late)
{
    struct err err = ERR_INIT;
    struct backend *b;

    if (open_and_hang(g, meeting, 1, &b, NULL, said))
        return 1;
    meet_all(p, 1);
    (void)usleep(20000);
    atomic_store(&is_late, true);
    (void)usleep(100000); /* it naps */
    gpu_broken(g, "rank 1 was killed by signal 9");
    HOLDS(gpu_quiesce(g, clock_now_ns() + 10 * NS_PER_S));
    HOLDS(launcher_join(&g->launcher, clock_now_ns() + 10 * NS_PER_S) == 0);
    atomic_store(&is_late, false);
    return 0;
}

UNIT_TEST(a_launcher_that_wakes_up_late_makes_no_query)
{
    run_versions((struct gpu_case){.n = 3, .body = wakes_late, .faults = "init_hang=1"},
                 2); /* more than a second each */
}

/* --- nothing after the stop --- */

MEMBER_BODY(stops_amid)
{
    struct err err = ERR_INIT;
    struct backend *b, *child = NULL;
    static const uint32_t members[] = {0, 1};
    uint64_t ticket;
    float *v;

    HOLDS(case_open(g, meeting, &b, &err) == 0);
    HOLDS((v = floats_new(g, COUNT, 1, &err)));
    for (int i = 0; i < 100; i++) {
        if (i == 20 + 7 * (int)g->config.rank)
            gpu_abort(g); /* each in another place */
        int rc = post_sum(b, v, COUNT, &ticket, &err);
        HOLDS(rc == 0 || rc == -ECONNABORTED);
        if (i == 10)
            HOLDS(comm_split(b, members, 2, &child, &err) == 0);
    }
    SOON(gpu_quiesce(g, clock_now_ns() + NS_PER_S));
    for (struct comm *c = g->comms; c; c = c->next) {
        /* Still on its way: on a slow machine. One of rank 2's that the stop found
         * idle is revoked where NCCL can, for the next world. */
        const int state = atomic_load(&c->state);
        HOLDS(state == COMM_DEAD || state == COMM_ABORTING
              || (g->config.rank == 2
                  && (state == COMM_PARKED || state == COMM_REVOKING)));
    }
    if (child)
        child->ops->close(child);
    b->ops->close(b);
    HOLDS(comm_split(b, members, 2, &child, &err) == -ECONNABORTED);
    HOLDS(case_open(g, meeting, &child, &err) == -ECONNABORTED);
    meet_all(p, 1);
    return 0;
}

UNIT_TEST(nothing_is_called_after_the_stop)
{
    for (size_t i = 0; i < ARRAY_LEN(versions); i++)
        RUN_CASE(.n = 3, .body = stops_amid, .version = versions[i],
                 .env = "HVD_FAKE_NCCL_DELAY_US", .value = i % 2 ? "50" : "2000");
}

/* --- what blocks --- */

/* NCCL waits in there for ranks of the same host: what is being destroyed is not
 * aborted as well. */
MEMBER_BODY(member_destroys)
{
    struct err err = ERR_INIT;
    struct backend *b;

    if (open_and_hang(g, meeting, 1, &b, NULL, said))
        return 1;
    HOLDS(wait_ticket(b, 1, 30, &err) == 0);
    b->ops->close(b);
    (void)usleep(100000); /* both are closing, or it proves less */
    meet_all(p, 1);
    gpu_abort(g);
    HOLDS(gpu_quiesce(g, clock_now_ns() + 5 * NS_PER_S));
    return 0;
}

UNIT_TEST(a_slow_destroy_is_not_aborted)
{
    RUN_CASE(.n = 2, .body = member_destroys, .faults = "destroy_slow=0:600");
}

/* One that blocks: it was aborted in the middle, and returns as if all were well. */
UNIT_TEST(what_was_aborted_is_not_destroyed)
{
    RUN_CASE(.n = 2, .body = member_destroys, .version = "22105",
             .faults = "finalize_slow=0:900", .env = "NCCL_COMM_BLOCKING",
             .value = "1");
}

/* What is behind a close that has failed is given up, with the cause. */
static int is_given_up(struct device *g, struct backend *b, char *said)
{
    const char *call =
        strstr(the_case->faults, "destroy") ? "ncclCommDestroy" : "ncclCommFinalize";
    struct err err = ERR_INIT;

    HOLDS(wait_ticket(b, 2, 20, &err) == -ECONNABORTED);
    HOLDS(strstr(err.text, "rank 1 (host a)") && strstr(err.text, call));
    return 0;
}

/* After a close that fails on rank 1 no operation is started there: NCCL would take it
 * for part of the one in progress, or never launch it. */
MEMBER_BODY(closes_badly)
{
    struct err err = ERR_INIT;
    struct backend *v[2];
    uint64_t ticket;
    float *x;

    for (int i = 0; i < 2; i++) {
        if (open_and_hang(g, meeting, 1, &v[i], NULL, said))
            return 1;
        HOLDS(wait_ticket(v[i], 1, 20, &err) == 0);
    }
    HOLDS((x = floats_new(g, COUNT, 1, &err)));
    meet_all(p, 1);
    v[1]->ops->close(v[1]);
    (void)post_sum(v[0], x, COUNT, &ticket, &err); /* may fail already */
    int rc = g->config.rank == 1 ? is_given_up(g, v[0], said) : 0;
    meet_all(p, 2); /* the control plane reports it to the other */
    gpu_abort(g);
    SOON(gpu_quiesce(g, clock_now_ns() + NS_PER_S));
    return rc;
}

UNIT_TEST(a_close_that_fails_ends_the_device)
{
    run_versions(
        (struct gpu_case){.n = 2, .body = closes_badly, .faults = "destroy_error=1:3"},
        1);
    run_versions(
        (struct gpu_case){.n = 2, .body = closes_badly, .faults = "finalize_hang=1"},
        2); /* 2 s each */
}

/* An init that blocks has no handle to abort: the launcher is left behind, within its
 * time, and the process may open no other device. */
static int
left_behind(struct backend *meeting, uint32_t me, struct party *p, char *said)
{
    const struct device_config config = case_config(me, p->size);
    struct device *g, *other;
    struct err err = ERR_INIT;
    struct backend *b;

    if (row_open(meeting, me, &g, &b, &err))
        return SAYS("open: %s", err.text);
    COMES(atomic_load(&((struct comm *)b)->state) == COMM_STARTING);
    (void)usleep(50000);
    meet_all(p, 1);
    const uint64_t began_ns = clock_now_ns();
    row->abort(g);
    SOON(row->quiesce(g, began_ns + NS_PER_S)); /* nothing is on the device */
    if (row->close(g, NULL) != -EBUSY)
        return SAYS("rank %u: it was closed", me);
    SOON(clock_now_ns() - began_ns <= 5 * NS_PER_S);
    if (row->open(&config, (int)me, &other, &err) != -EBUSY
        || !strstr(err.text, "restart the process"))
        return SAYS("opened again: %s", err.text);
    meet_all(p, 2);
    return 0;
}

UNIT_TEST(a_stuck_start_is_left_behind)
{
    RUN_CASE(.n = 2, .member = left_behind, .version = "21003",
             .faults = "init_hang=1");
}

/* An abort that takes longer than the time limits still uses its communicators: they
 * are left to it, also when the device is closed. */
MEMBER_TEST(what_is_still_being_aborted_is_not_freed,
            .n = 2,
            .n_streams = 2,
            .version = "22809",
            .faults = "enqueue_hang=0@0 abort_slow=0:1500")
{
    struct err err = ERR_INIT;
    struct backend *b;

    if (open_and_hang(g, meeting, 1, &b, NULL, said))
        return 1;
    struct comm *c = (struct comm *)b;
    COMES(g->config.rank != 0 || atomic_load(&c->state) == COMM_ENQUEUING);
    meet_all(p, 1);
    gpu_abort(g);
    HOLDS(gpu_quiesce(g, clock_now_ns() + 10 * NS_PER_S));
    if (g->config.rank != 0 || atomic_load(&c->state) != COMM_ABORTING)
        return 0; /* the machine was slower than the abort: it proves less */
    HOLDS(__atomic_load_n(&c->nc[1], __ATOMIC_ACQUIRE));
    comms_free(g, clock_now_ns() + 10 * NS_PER_S);
    HOLDS(!g->comms && !g->launcher.has_thread);
    struct comm *others[8]; /* that would be where it was */
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        HOLDS((others[i] = mem_alloc(sizeof(*c))));
        memset(others[i], 0xff, sizeof(*c));
    }
    HOLDS(atomic_load(&c->state) == COMM_ABORTING);
    COMES(!__atomic_load_n(&c->nc[1], __ATOMIC_ACQUIRE)); /* it takes the second one */
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        mem_free(others[i]);
    return 0;
}

UNIT_MAIN(NULL, NULL)

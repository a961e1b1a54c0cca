/* SPDX-License-Identifier: Apache-2.0 */
/* Who drives the coordinator when, and that no thread waits without need: submissions
 * beside a waiting thread, callbacks that hang in the way of shutdown, a token that can
 * be read once. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>

#include "runtime/base/sha256.h"
#include "tests/unit/hvd_world.h"

/* --- a submission beside a thread that leaves the seat --- */

enum { ROUNDS = 1500, ENOUGH_S = 15 }; /* a busy machine has fewer rounds */
static const uint64_t TOO_LATE_NS = 10 * NS_PER_S;

struct pair {
    pthread_barrier_t both;
    bool is_late; /* a submission that only its poller cared for was not carried out */
    bool is_over;
};

static void *polling_thread(void *arg)
{
    struct pair *p = arg;
    unsigned seed = 1;
    float v = 1;

    for (;;) {
        uint64_t until;
        hvd_handle h;

        (void)pthread_barrier_wait(&p->both);
        if (p->is_over)
            break;
        for (int k = rand_r(&seed) % 1600; k > 0; k--)
            __asm__ volatile(
                ""); /* meets the other thread at another place each time */
        CHECK_OK(sum_async("b", &v, 1, &h));
        until = clock_now_ns() + TOO_LATE_NS;
        while (hvd_poll(h) == HVD_IN_PROGRESS && !p->is_late) {
            (void)sched_yield();
            p->is_late = clock_now_ns() > until;
        }
        CHECK_OK(wait_release(h));
        (void)pthread_barrier_wait(&p->both);
    }
    return NULL;
}

INIT_TEST(a_submission_needs_no_waiting_thread, 1)
{
    const uint64_t end = clock_now_ns() + ENOUGH_S * NS_PER_S;
    struct pair p = {.is_late = false};
    pthread_t t;
    float v = 1;

    CHECK(pthread_barrier_init(&p.both, NULL, 2) == 0, "barrier");
    CHECK(pthread_create(&t, NULL, polling_thread, &p) == 0, "thread");
    for (int i = 0; i < ROUNDS && clock_now_ns() < end; i++) {
        /* Longer than the background thread's nap: it blocks for frames then. */
        uint64_t until = clock_now_ns() + (p.is_late ? 0 : 1200000);

        while (clock_now_ns() < until)
            (void)sched_yield();
        (void)pthread_barrier_wait(&p.both);
        CHECK_OK(sum_now("a", &v, 1));
        (void)pthread_barrier_wait(&p.both);
    }
    p.is_over = true;
    (void)pthread_barrier_wait(&p.both);
    (void)pthread_join(t, NULL);
    CHECK(!p.is_late, "a submission waited for somebody to wait");
}

/* --- a callback that hangs --- */

static void hanging_callback(void *arg, int status, const char *error)
{
    (void)arg;
    (void)status;
    (void)error;
    stage_set(0, 1);
    go_wait(1);
}

static void *waiting_thread(void *arg)
{
    hvd_handle *h = arg;

    shared->r[0].status = hvd_wait(*h, -1);
    return NULL;
}

WORLD_TEST(a_hanging_callback_holds_up_no_waiter_for_ever, 2)
{
    const int64_t n = 1;
    float v = 1, u = 1;
    struct hvd_tensor t = tensor_1d("hangs", HVD_FLOAT32, &v, &v, &n);
    hvd_handle h, never;
    struct timespec before, after;
    uint64_t cpu_ns;
    pthread_t thread;

    CHECK_OK(hvd_init(NULL));
    if (rank == 1) {
        CHECK_OK(sum_now("hangs", &v, 1));
        stage_set(1, 1);
        futex_wait_until(&shared->r[0].stage, 3, clock_now_ns() + 20 * NS_PER_S);
        CHECK_OK(hvd_shutdown());
        return;
    }
    CHECK_OK(sum_async("never", &u, 1, &never)); /* rank 1 does not submit it */
    t.done = hanging_callback;
    CHECK_OK(hvd_allreduce_async(&t, HVD_SUM, 1, 1, 0, &h));
    futex_wait_until(&shared->r[0].stage, 1, clock_now_ns() + 20 * NS_PER_S);
    CHECK(pthread_create(&thread, NULL, waiting_thread, &never) == 0, "thread");
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    (void)hvd_shutdown(); /* gives up on the callback after some seconds */
    go_set(1);
    (void)pthread_join(thread, NULL);
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    cpu_ns = (uint64_t)(after.tv_sec - before.tv_sec) * NS_PER_S
             + (uint64_t)after.tv_nsec - (uint64_t)before.tv_nsec;
    CHECK(shared->r[0].status == HVD_PRECONDITION, "status %d", shared->r[0].status);
    CHECK(cpu_ns < NS_PER_S, "waiting took %.1f s of a processor",
          (double)cpu_ns / 1e9);
    stage_set(0, 3);
}

/* --- a token that can be read once --- */

enum { USERS_FD = 500 }; /* no descriptor of ours gets this number */

WORLD_TEST(a_token_descriptor_is_read_once, 2)
{
    struct token token;
    char number[16], hex[2 * sizeof(token.key) + 1];
    struct err err = ERR_INIT;
    float v = 1;
    int p[2];

    CHECK(token_read_file(getenv("HVD_TOKEN_FILE"), &token, &err) == 0, "%s", err.text);
    CHECK(pipe(p) == 0 && dup2(p[0], USERS_FD) == USERS_FD, "pipe");
    (void)close(p[0]);
    hex_encode(token.key, sizeof(token.key), hex);
    CHECK(write(p[1], hex, sizeof(hex) - 1) == sizeof(hex) - 1, "write");
    (void)close(p[1]);
    (void)snprintf(number, sizeof(number), "%d", USERS_FD);
    (void)unsetenv("HVD_TOKEN_FILE");
    (void)setenv("HVD_TOKEN_FD", number, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(hvd_init(NULL));
        if (i == 0) /* the number is the user's now */
            CHECK(dup2(STDIN_FILENO, USERS_FD) == USERS_FD, "dup2");
        CHECK(fcntl(USERS_FD, F_GETFD) >= 0, "the user's descriptor was closed");
        CHECK_OK(sum_now("x", &v, 1));
        CHECK_OK(barrier_now("end"));
        CHECK_OK(hvd_shutdown());
    }
}

/* --- an agreement that a wait leaves behind --- */

/* Both have "a" of the plan, rank 0 "b" too, for which it has begun an agreement when
 * its wait for "a" ends. From there on it only asks, and rank 1 comes later. */
INIT_TEST(an_agreement_that_a_wait_leaves_is_finished, 2)
{
    float a = 1, b = 1;
    hvd_handle h[2];

    for (int i = 0; i < 60; i++) { /* until there is a plan */
        const struct set_sum s[] = {{0, "a", &a}, {0, "b", &b}};

        CHECK_OK(sum_two(&s[0], &s[1], false));
    }
    for (int i = 0; i < 8; i++) {
        uint64_t until;

        CHECK_OK(sum_async("a", &a, 1, &h[0]));
        if (rank == 0)
            CHECK_OK(sum_async("b", &b, 1, &h[1]));
        CHECK_OK(wait_release(h[0]));
        if (rank == 1) {
            (void)usleep(5000); /* rank 0 polls alone for a while: the case */
            CHECK_OK(sum_async("b", &b, 1, &h[1]));
        }
        until = clock_now_ns() + TOO_LATE_NS;
        while (rank == 0 && hvd_poll(h[1]) == HVD_IN_PROGRESS)
            CHECK(clock_now_ns() < until, "round %d: b is late", i);
        CHECK_OK(wait_release(h[1]));
    }
    CHECK_OK(barrier_now("end"));
}

/* --- a submission after join, beside the thread that waits for it --- */

static void *joining_thread(void *arg)
{
    struct hvd_tensor t = {.size_bytes = sizeof(t), .name = "join"};
    atomic_bool *has_joined = arg;
    hvd_handle h;

    CHECK_OK(hvd_join_async(&t, &h));
    atomic_store(has_joined, true);
    CHECK_OK(wait_release(h));
    return NULL;
}

INIT_TEST(a_submission_after_join_is_refused_at_once, 2)
{
    atomic_bool has_joined = false;
    pthread_t t;
    float v = 1;

    if (rank == 0) {
        CHECK(pthread_create(&t, NULL, joining_thread, &has_joined) == 0, "thread");
        for (uint64_t end = clock_now_ns() + TOO_LATE_NS;
             !atomic_load(&has_joined) && clock_now_ns() < end;)
            (void)usleep(1000); /* polls an atomic */
        (void)usleep(100000);   /* it is probably in the seat: nothing reports it */
        CHECK_KEPT(sum_now("x", &v, 1), HVD_INVALID_ARGUMENT, "has joined");
        stage_set(0, 1);
        (void)pthread_join(t, NULL);
    } else {
        futex_wait_until(&shared->r[0].stage, 1, clock_now_ns() + TOO_LATE_NS);
        CHECK(atomic_load(&shared->r[0].stage) == 1, "the refusal is late");
        (void)joining_thread(&has_joined);
    }
}

/* --- waiters beside shutdown --- */

/* LEAVE_ROUNDS=n: another number of rounds, whatever it takes. */
enum { LEAVERS = 8, LEAVE_ROUNDS = 1000 };

struct leaving {
    pthread_barrier_t both;
    atomic_bool is_over;
};
struct waiter {
    struct leaving *l;
    char name[16];
};

static void *leaver_thread(void *arg)
{
    struct waiter *w = arg;
    float v = 1;

    for (;;) {
        hvd_handle h;

        (void)pthread_barrier_wait(&w->l->both);
        if (atomic_load(&w->l->is_over))
            break;
        while (sum_async(w->name, &v, 1, &h) == HVD_OK) {
            (void)hvd_wait(h, -1); /* it ends with the world or before it */
            (void)hvd_release(h);
        }
        (void)pthread_barrier_wait(&w->l->both);
    }
    return NULL;
}

static int leave_rounds(void)
{
    const char *v = getenv("LEAVE_ROUNDS");

    return v ? atoi(v) : LEAVE_ROUNDS;
}

/* A thread in hvd_wait uses the connections of its world, which shutdown closes. The
 * sanitizers find a use after that. */
WORLD_TEST(waiters_do_not_outlive_their_world, 1)
{
    const uint64_t end = clock_now_ns() + ENOUGH_S * NS_PER_S;
    struct leaving l = {.is_over = false};
    struct waiter w[LEAVERS];
    pthread_t t[LEAVERS];
    unsigned seed = 1;
    cpu_set_t one;

    if (getenv("LEAVE_ROUNDS"))
        (void)alarm(0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    (void)sched_setaffinity(0, sizeof(one), &one); /* threads are often preempted */
    CHECK(pthread_barrier_init(&l.both, NULL, LEAVERS + 1) == 0, "barrier");
    for (int i = 0; i < LEAVERS; i++) {
        w[i].l = &l;
        (void)snprintf(w[i].name, sizeof(w[i].name), "t%d", i);
        CHECK(pthread_create(&t[i], NULL, leaver_thread, &w[i]) == 0, "thread");
    }
    for (int i = leave_rounds(); i > 0; i--) {
        CHECK_OK(hvd_init(NULL));
        (void)pthread_barrier_wait(&l.both);
        for (int k = rand_r(&seed) % 4; k > 0; k--)
            (void)sched_yield();
        CHECK_OK(hvd_shutdown());
        (void)pthread_barrier_wait(&l.both);
        if (clock_now_ns() > end && !getenv("LEAVE_ROUNDS"))
            break; /* a busy machine, or a sanitizer */
    }
    atomic_store(&l.is_over, true);
    (void)pthread_barrier_wait(&l.both);
    for (int i = 0; i < LEAVERS; i++)
        (void)pthread_join(t[i], NULL);
}

UNIT_MAIN(NULL, NULL)

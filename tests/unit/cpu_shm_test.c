/* SPDX-License-Identifier: Apache-2.0 */
/* The shared memory collectives with threads as ranks on plain memory, so that
 * ThreadSanitizer sees every access; and the segment itself: geometry, wrap-around,
 * lost and left ranks. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "tests/unit/unit.h"

#include "runtime/backend/cpu/shm.h"
#include "runtime/base/clock.h"

enum { MAX_RANKS = 4, MANY_RANKS = 20 };

struct actor {
    uint32_t me, n;
    void *mem;
    size_t n_bytes;
    uint32_t start; /* position of everyone's counters at the start */
    uint64_t max_n; /* elements of the largest message */
    atomic_uint *stop;
    char said[200];
};

static int check_stop(void *arg, uint32_t rank, struct err *err)
{
    struct actor *a = arg;
    (void)rank;
    if (atomic_load(a->stop))
        return err_set(err, -ECANCELED, "stopped");
    return 0;
}

static uint16_t element_value(uint32_t from, uint32_t to, uint64_t i)
{
    return (uint16_t)(from * 977 + to * 31 + i * 7);
}

static int actor_fail(struct actor *a, const char *what, uint64_t n, uint64_t i)
{
    snprintf(a->said, sizeof(a->said), "%s: rank %u of %u, n %llu: [%llu] is wrong",
             what, a->me, a->n, (unsigned long long)n, (unsigned long long)i);
    return -1;
}

static struct vec vec_of_one(struct piece *p, const void *in, void *out, uint64_t n)
{
    *p = (struct piece){.in = in, .out = out, .n = n * 2};
    return vec_of(p, 1);
}

/* The sum of all members' elements from first on. */
static int actor_check_sum(
    struct actor *a, const uint16_t *x, uint64_t n, uint64_t first, const char *what)
{
    uint64_t base = 0;
    for (uint32_t j = 0; j < a->n; j++)
        base += element_value(j, 0, 0);
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != (uint16_t)(base + a->n * (first + i) * 7))
            return actor_fail(a, what, n, i);
    return 0;
}

/* Elements of the part of member j: uneven, and every third has none. */
static uint64_t actor_share(const struct actor *a, uint64_t n, uint32_t j)
{
    return j % 3 == 2 ? 0 : n / a->n + j;
}

/* Summed for one, for all in two pieces in place, in parts; and the sum is sent on. */
static int
reduce_round(struct actor *a, struct shm *s, uint64_t n, uint16_t *x, uint16_t *y)
{
    struct reduction sum = {kernel_for(OP_SUM, DT_U16, false), 1.0, FINISH_NONE};
    struct piece p[MANY_RANKS];
    struct vec v[MANY_RANKS];
    struct err err = ERR_INIT;
    uint32_t only = (uint32_t)n % a->n;
    uint64_t own = 0, at = 0, total = 0;
    for (uint32_t j = 0; j < a->n; j++)
        total += actor_share(a, n, j);
    for (uint64_t i = 0; i < n || i < total; i++)
        x[i] = element_value(a->me, 0, i);
    v[0] = vec_of_one(p, x, only == a->me ? y : NULL, n);
    if (shm_allreduce(s, v, &sum, only, &err) < 0
        || (only == a->me && actor_check_sum(a, y, n, 0, "reduce") < 0))
        return -1;
    for (uint32_t j = 0; j < a->n; at += actor_share(a, n, j++)) {
        v[j] = vec_of_one(&p[j], x + at, j == a->me ? y : NULL, actor_share(a, n, j));
        own = j == a->me ? at : own;
    }
    if (shm_reduce_scatter(s, v, &sum, &err) < 0
        || actor_check_sum(a, y, actor_share(a, n, a->me), own, "reduce-scatter") < 0)
        return -1;
    (void)vec_of_one(&p[0], x, x, n / 3);
    (void)vec_of_one(&p[1], x + n / 3, x + n / 3, n - n / 3);
    v[0] = vec_of(p, 2);
    if (shm_allreduce(s, v, &sum, SHM_ALL, &err) < 0
        || actor_check_sum(a, x, n, 0, "allreduce") < 0)
        return -1;
    if (a->me != only)
        memset(x, 0, n * sizeof(*x));
    if (shm_broadcast(s, v, only, &err) < 0
        || actor_check_sum(a, x, n, 0, "broadcast") < 0)
        return -1;
    return shm_barrier(s, &err);
}

/* Elements that `from` sends `to`; some pairs exchange none. */
static uint64_t
actor_block(const struct actor *a, uint64_t n, uint32_t from, uint32_t to)
{
    return (from + to) % 3 == 1 ? 0 : n / a->n + from;
}

static int
move_round(struct actor *a, struct shm *s, uint64_t n, uint16_t *x, uint16_t *y)
{
    struct piece p[MANY_RANKS], q[MANY_RANKS];
    struct vec send[MANY_RANKS], recv[MANY_RANKS];
    struct err err = ERR_INIT;
    uint64_t to = 0, from = 0;
    uint32_t only = (uint32_t)n % a->n;
    for (uint32_t j = 0; j < a->n; j++) {
        uint64_t m = actor_block(a, n, a->me, j), k = actor_block(a, n, j, a->me);
        for (uint64_t i = 0; i < m; i++)
            x[to + i] = element_value(a->me, j, i);
        send[j] = vec_of_one(&p[j], x + to, NULL, m);
        recv[j] = vec_of_one(&q[j], NULL, y + from, k);
        to += m;
        from += k;
    }
    if (shm_alltoall(s, send, recv, &err) < 0)
        return -1;
    from = 0;
    for (uint32_t j = 0; j < a->n; from += actor_block(a, n, j++, a->me))
        for (uint64_t i = 0; i < actor_block(a, n, j, a->me); i++)
            if (y[from + i] != element_value(j, a->me, i))
                return actor_fail(a, "alltoall", n, from + i);
    for (int k = 0; k < 2; k++) {
        uint32_t root = k == 0 ? only : SHM_ALL;
        bool gets_it = root == SHM_ALL || root == a->me;
        from = 0;
        for (uint32_t j = 0; j < a->n; from += actor_block(a, n, j++, 0)) {
            uint64_t m = actor_block(a, n, j, 0);
            for (uint64_t i = 0; i < m && j == a->me; i++)
                x[i] = element_value(a->me, 0, i);
            send[j] = vec_of_one(&p[j], x, gets_it ? y + from : NULL, m);
        }
        if (shm_gather(s, send, root, &err) < 0)
            return -1;
        from = 0;
        for (uint32_t j = 0; j < a->n && gets_it; from += actor_block(a, n, j++, 0))
            for (uint64_t i = 0; i < actor_block(a, n, j, 0); i++)
                if (y[from + i] != element_value(j, 0, i))
                    return actor_fail(a, "gather", n, from + i);
    }
    return 0;
}

/* The sizes of a round, in elements; n of up to max_n are used. */
static const uint64_t sizes[] = {1, 5, 300, 1000, 8192, 8193, 70001, 600001, 3, 20};

static void *actor_run(void *arg)
{
    struct actor *a = arg;
    struct shm s;
    uint32_t lines[MANY_RANKS], ranks[MANY_RANKS];
    struct waiter w = {.n_spins = 10, .check = check_stop, .arg = a};
    for (uint32_t i = 0; i < a->n; i++)
        lines[i] = ranks[i] = i;
    if (shm_attach(&s, a->mem, a->n_bytes, a->n, a->me, lines, ranks, &w) < 0) {
        snprintf(a->said, sizeof(a->said), "attach");
        return NULL;
    }
    s.base = a->start;
    shm_publish(&s, a->start);
    uint64_t room = 4 * (a->max_n + (uint64_t)a->n * a->n + 1);
    void *x = malloc(room), *y = malloc(room * a->n);
    for (int round = 0; round < 2; round++)
        for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
            if (sizes[k] > a->max_n || a->said[0] != '\0')
                continue;
            if (reduce_round(a, &s, sizes[k], x, y) == 0
                && move_round(a, &s, sizes[k], x, y) == 0)
                continue;
            if (a->said[0] == '\0')
                snprintf(a->said, sizeof(a->said), "failed");
            atomic_store(a->stop, 1);
        }
    free(x);
    free(y);
    shm_detach(&s);
    return NULL;
}

static void run_actors(uint32_t n, uint32_t start, uint32_t max_bytes, uint64_t max_n)
{
    uint32_t small, slot;
    size_t n_bytes = shm_size(n, max_bytes, &small, &slot);
    void *mem = aligned_alloc(4096, (n_bytes + 4095) & ~(size_t)4095);
    struct actor a[MANY_RANKS];
    pthread_t t[MANY_RANKS];
    atomic_uint stop = 0;
    memset(mem, 0, n_bytes);
    shm_format(mem, n, max_bytes);
    memset(a, 0, sizeof(a));
    for (uint32_t i = 0; i < n; i++) /* as if so many operations had been */
        atomic_store(&((struct shm_header *)mem)->lines[i].seq, start);
    for (uint32_t i = 0; i < n; i++) {
        a[i].me = i;
        a[i].n = n;
        a[i].mem = mem;
        a[i].n_bytes = n_bytes;
        a[i].start = start;
        a[i].stop = &stop;
        a[i].max_n = max_n;
        assert_int_equal(pthread_create(&t[i], NULL, actor_run, &a[i]), 0);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(t[i], NULL);
    for (uint32_t i = 0; i < n; i++)
        assert_string_equal(a[i].said, "");
    free(mem);
}

static void run_both(uint32_t n, uint32_t start)
{
    run_actors(n, start, SHM_WORLD_BYTES, 600001);
    run_actors(n, start, SHM_SET_BYTES, 70001);
}

UNIT_TEST(collectives_of_threads)
{
    for (uint32_t n = 2; n <= MAX_RANKS; n++)
        run_both(n, 0);
}

/* More members than a slot has cells: they take turns, and no message is small. */
UNIT_TEST(many_members_take_turns)
{
    run_actors(MANY_RANKS, 0, 4096, 9000);
}

UNIT_TEST(counters_may_wrap)
{
    run_both(3, UINT32_MAX - 40);
    run_both(2, INT32_MAX - 40);
    run_both(2, 1u << 31);
}

UNIT_TEST(segment_stays_in_its_bounds)
{
    for (uint32_t n = 1; n <= SHM_MAX_RANKS; n = n < 16 ? n + 1 : n * 2) {
        uint32_t small, slot;
        size_t b = shm_size(n, SHM_WORLD_BYTES, &small, &slot);
        /* slots, small buffers, the beginning of both tables, 2.2 KiB a rank */
        assert_true(b <= (9u << 20) + 2 * 4096 + n * 2252u);
        assert_true(slot >= SHM_SLOT_MIN && slot % 64 == 0 && small % 64 == 0);
    }
}

UNIT_TEST(garbled_segment_is_refused)
{
    uint32_t small, slot, lines[2] = {0, 1};
    size_t n_bytes = shm_size(2, SHM_WORLD_BYTES, &small, &slot);
    void *mem = calloc(1, n_bytes);
    struct shm s;
    struct waiter w = {0};
    assert_int_equal(shm_attach(&s, mem, n_bytes, 2, 0, lines, lines, &w), -EPROTO);
    shm_format(mem, 2, SHM_WORLD_BYTES);
    ((struct shm_header *)mem)->slot_bytes += 64;
    assert_int_equal(shm_attach(&s, mem, n_bytes, 2, 0, lines, lines, &w), -EPROTO);
    shm_format(mem, 2, SHM_WORLD_BYTES);
    assert_int_equal(shm_attach(&s, mem, n_bytes - 1, 2, 0, lines, lines, &w), -EPROTO);
    assert_int_equal(shm_attach(&s, mem, n_bytes, 2, 0, lines, lines, &w), 0);
    shm_detach(&s);
    shm_detach(&s); /* accepts a zeroed struct */
    free(mem);
}

/* Two members of a segment, ranks 4 and 9, driven by hand. */
struct pair {
    void *mem;
    struct shm s[2];
    struct waiter w;
    uint64_t woken_ns;
};

static int keep_waiting(void *arg, uint32_t rank, struct err *err)
{
    (void)arg;
    (void)rank;
    (void)err;
    return 0;
}

static void pair_open(struct pair *p)
{
    uint32_t small, slot, lines[2] = {0, 1}, ranks[2] = {4, 9};
    size_t n_bytes = shm_size(2, SHM_SET_BYTES, &small, &slot);
    p->mem = calloc(1, n_bytes);
    p->w.check = keep_waiting;
    shm_format(p->mem, 2, SHM_SET_BYTES);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(
            shm_attach(&p->s[i], p->mem, n_bytes, 2, i, lines, ranks, &p->w), 0);
}

static void pair_close(struct pair *p)
{
    shm_detach(&p->s[0]);
    shm_detach(&p->s[1]);
    free(p->mem);
}

UNIT_TEST(first_report_of_a_loss_stays)
{
    struct pair p = {.w = {.n_spins = 0}};
    pair_open(&p);
    assert_int_equal(shm_lost(&p.s[0]), -1);
    shm_report_lost(&p.s[0], 9);
    shm_report_lost(&p.s[1], 4);
    assert_int_equal(shm_lost(&p.s[1]), 9);
    assert_false(shm_has_left(&p.s[0], 9));
    shm_detach(&p.s[1]);
    assert_true(shm_has_left(&p.s[0], 9));
    assert_false(shm_has_left(&p.s[0], 4));
    pair_close(&p);
}

static int stop_at_once(void *arg, uint32_t rank, struct err *err)
{
    (void)arg;
    return err_set(err, -ECANCELED, "stopped waiting for %u", rank);
}

UNIT_TEST(wait_returns_error_of_check)
{
    struct pair p = {.w = {.n_spins = 0}};
    struct err err = ERR_INIT;
    pair_open(&p);
    p.w.check = stop_at_once;
    assert_int_equal(shm_barrier(&p.s[0], &err), -ECANCELED);
    assert_string_equal(err.text, "stopped waiting for 9");
    atomic_store(&p.s[0].h->lines[1].seq, 1); /* present already: check is not called */
    assert_int_equal(shm_wait(&p.s[0], 1, 1, &err), 0);
    pair_close(&p);
}

/* --- sleeping --- */

static void *sleep_then_answer(void *arg)
{
    struct pair *p = arg;
    struct err err = ERR_INIT;
    int rc = shm_wait(&p->s[1], 0, 1, &err);
    p->woken_ns = clock_now_ns();
    shm_publish(&p->s[1], 1);
    return rc == 0 ? p : NULL;
}

/* shm_store_seq() wakes nobody; its caller does so once it waits itself. */
UNIT_TEST(rank_that_waits_long_wakes_sleepers)
{
    struct pair p = {.w = {.n_spins = 0, .slice_ns = 40 * NS_PER_S}};
    struct err err = ERR_INIT;
    pthread_t t;
    void *ret = NULL;
    pair_open(&p);
    uint64_t stored_ns, until = clock_now_ns() + 10 * NS_PER_S;
    assert_int_equal(pthread_create(&t, NULL, sleep_then_answer, &p), 0);
    while (atomic_load(&p.s[0].h->lines[0].waiters) == 0 && clock_now_ns() < until)
        sched_yield();
    stored_ns = clock_now_ns();
    shm_store_seq(&p.s[0], 1);
    int rc = shm_wait(&p.s[0], 1, 1, &err);
    pthread_join(t, &ret);
    assert_int_equal(rc, 0);
    assert_ptr_equal(ret, &p);
    assert_true(p.woken_ns - stored_ns < 20 * NS_PER_S);
    pair_close(&p);
}

UNIT_TEST(operation_does_not_end_before_sleepers_are_woken)
{
    struct pair p = {.w = {.n_spins = 0}};
    pair_open(&p);
    atomic_store(&p.s[0].h->lines[0].waiters, 1);
    shm_store_seq(&p.s[0], 1);
    assert_int_equal(atomic_load(&p.s[0].h->lines[0].wakeups), 0);
    shm_end(&p.s[0], 1);
    assert_int_equal(atomic_load(&p.s[0].h->lines[0].wakeups), 1);
    shm_end(&p.s[0], 1); /* nothing is owed any more */
    assert_int_equal(atomic_load(&p.s[0].h->lines[0].wakeups), 1);
    pair_close(&p);
}

/* One wait of member 1 on a CPU where member 0 waited as well, or did not. Returns how
 * long it leaves the CPU as it is after that; the thread stays on one CPU meanwhile. */
static uint64_t wait_beside(bool is_beside, uint32_t n_cpus)
{
    struct pair p = {.w = {.n_spins = 1, .n_cpus = n_cpus}};
    struct err err = ERR_INIT;
    cpu_set_t all, one;
    int cpu = sched_getcpu();
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    pair_open(&p);
    atomic_store(&p.s[0].h->lines[0].cpu,
                 (uint32_t)sched_getcpu() + (is_beside ? 1 : 2));
    p.w.check = stop_at_once;
    assert_int_equal(shm_wait(&p.s[1], 0, 1, &err), -ECANCELED);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    assert_int_equal(atomic_load(&p.s[0].h->lines[0].waiters), 0);
    uint64_t part_ns = p.s[1].cpu_check_ns;
    pair_close(&p);
    return part_ns;
}

UNIT_TEST(needs_two_cpus_ranks_on_one_cpu_part)
{
    uint64_t beside = wait_beside(true, 2), apart = wait_beside(false, 2);
    assert_true(apart > 0);
    assert_true(beside > apart);                   /* it slept, and next time later */
    assert_int_equal(wait_beside(true, 1), apart); /* there is one CPU only */
    assert_int_equal(wait_beside(true, 0), apart); /* nobody knows */
}

/* A peer that seems to sit on our CPU whatever we do: sleeping has not helped, so we
 * go, and may run where we might before. */
UNIT_TEST(needs_two_cpus_a_rank_that_cannot_part_keeps_its_mask)
{
    struct pair p = {.w = {.n_spins = 1, .n_cpus = 2}};
    struct err err = ERR_INIT;
    cpu_set_t before, after;
    int left = -1;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    pair_open(&p);
    p.w.check = stop_at_once;
    uint64_t until = clock_now_ns() + NS_PER_S;
    while (left < 0 && clock_now_ns() < until) {
        int cpu = sched_getcpu();
        atomic_store(&p.s[0].h->lines[0].cpu, (uint32_t)cpu + 1);
        assert_int_equal(shm_wait(&p.s[1], 0, 1, &err), -ECANCELED);
        uint32_t now_at = atomic_load(&p.s[1].h->lines[1].cpu);
        if (now_at != (uint32_t)cpu + 1)
            left = cpu;
    }
    assert_true(left >= 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    pair_close(&p);
}

int main(void)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < 2)
        cmocka_set_skip_filter("needs_two_cpus_*"); /* skip() says "not ok" in TAP */
    return unit_run(NULL, NULL);
}

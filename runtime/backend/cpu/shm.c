/* SPDX-License-Identifier: Apache-2.0 */
/* The shared segment: geometry, publishing progress, waiting for it.
 *
 * Invariants
 *   - seq of a line is stored by its own rank only and never decreases (modulo 2^32;
 *     positions that are compared are less than 2^31 apart).
 *   - A rank that has seen p sees what the publisher wrote into its data area before
 *     shm_store_seq(p): the store is release, the load acquire.
 *   - No wake-up is lost: the publisher stores seq and then adds 0 to waiters, the
 *     sleeper adds 1 to waiters and then loads seq. If the publisher's addition is
 *     first, the sleeper has acquired seq; if the sleeper's is first, the publisher
 *     sees it and adds 1 to the futex word (wakeups), which the sleeper has read
 *     before. A sleep lasts at most WAIT_SLICE_NS in any case.
 *   - A rank that has stored its seq wakes sleepers before a long wait and at the end
 *     of the operation (owes_wakeup), not after each store, because the addition to
 *     waiters would make the CPU wait until the store is visible.
 *   - data of one rank is written by that rank only.
 *
 * Called by shm_coll.c and shm_move.c (collectives), transfer.c, shm_join.c (creates and
 * maps it), group.c, cpu_check.c, cpu.c. */
#include "runtime/backend/cpu/shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/backend/cpu/agree_area.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define SHM_MAGIC        0x48564453484d3031ull /* "HVDSHM01" */
#define CPU_CHECK_MIN_NS 250000ull
#define CPU_CHECK_MAX_NS 256000000ull

static size_t shm_round_pages(size_t n_bytes)
{
    return (n_bytes + 4095) & ~(size_t)4095;
}

static size_t line_bytes(uint32_t n)
{
    return shm_round_pages(sizeof(struct shm_header)
                           + (size_t)n * sizeof(struct shm_line));
}

static size_t control_bytes(uint32_t n)
{
    return line_bytes(n) + shm_round_pages(agree_area_bytes(n));
}

size_t shm_size(uint32_t n, uint32_t max_bytes, uint32_t *ret_small, uint32_t *ret_slot)
{
    uint32_t slot = SHM_SLOT_MAX;
    uint32_t small = SHM_SMALL_MAX;
    while (slot > SHM_SLOT_MIN && (uint64_t)n * 2 * slot > max_bytes)
        slot /= 2;
    while (small > 256 && (uint64_t)n * 2 * small > max_bytes / 8)
        small /= 2;
    *ret_small = small;
    *ret_slot = slot;
    return control_bytes(n) + (size_t)n * 2 * (slot + small);
}

void shm_format(void *mem, uint32_t n, uint32_t max_bytes)
{
    struct shm_header *h = mem;
    h->n = n;
    h->max_bytes = max_bytes;
    shm_size(n, max_bytes, &h->small_bytes, &h->slot_bytes);
    h->magic = SHM_MAGIC;
}

int shm_attach(struct shm *s,
               void *mem,
               size_t n_bytes,
               uint32_t n,
               uint32_t me,
               const uint32_t *lines,
               const uint32_t *ranks,
               const struct waiter *w)
{
    struct shm_header *h = mem;
    uint32_t small, slot;
    if (n_bytes < sizeof(*h) || h->magic != SHM_MAGIC || h->n > SHM_MAX_RANKS
        || n_bytes < shm_size(h->n, h->max_bytes, &small, &slot)
        || small != h->small_bytes || slot != h->slot_bytes)
        return -EPROTO;
    memset(s, 0, sizeof(*s));
    s->line_of = mem_calloc(n, sizeof(*s->line_of));
    s->rank_of = mem_calloc(n, sizeof(*s->rank_of));
    s->src = mem_calloc(n, sizeof(*s->src));
    s->at = mem_calloc(n, 2 * sizeof(*s->at));
    if (!s->line_of || !s->rank_of || !s->src || !s->at) {
        shm_detach(s);
        return -ENOMEM;
    }
    memcpy(s->line_of, lines, n * sizeof(*lines));
    memcpy(s->rank_of, ranks, n * sizeof(*ranks));
    s->h = h;
    s->n_bytes = n_bytes;
    s->n = n;
    s->me = me;
    s->w = w;
    s->cpu_check_ns = CPU_CHECK_MIN_NS;
    atomic_store_explicit(&h->lines[lines[me]].state, SHM_HERE, memory_order_release);
    return 0;
}

void shm_detach(struct shm *s)
{
    if (s->h && s->line_of) {
        struct shm_line *l = &s->h->lines[s->line_of[s->me]];
        /* pairs with the acquire load in shm_has_left: seq is final once LEFT is
         * seen */
        atomic_store_explicit(&l->state, SHM_LEFT, memory_order_release);
    }
    mem_free(s->line_of);
    mem_free(s->rank_of);
    mem_free(s->src);
    mem_free(s->at);
    memset(s, 0, sizeof(*s));
}

int64_t shm_lost(const struct shm *s)
{
    return (int64_t)atomic_load_explicit(&s->h->lost, memory_order_relaxed) - 1;
}

void shm_report_lost(struct shm *s, uint32_t rank)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong_explicit(&s->h->lost, &none, rank + 1,
                                            memory_order_relaxed, memory_order_relaxed);
}

bool shm_has_left(const struct shm *s, uint32_t rank)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->rank_of[i] == rank)
            return atomic_load_explicit(&s->h->lines[s->line_of[i]].state,
                                        memory_order_acquire)
                   == SHM_LEFT;
    return false;
}

static uint8_t *shm_member_area(const struct shm *s, uint32_t member)
{
    size_t each = 2 * ((size_t)s->h->slot_bytes + s->h->small_bytes);
    return (uint8_t *)s->h + control_bytes(s->h->n) + s->line_of[member] * each;
}

uint8_t *shm_slot(const struct shm *s, uint32_t member, unsigned turn)
{
    return shm_member_area(s, member) + (size_t)(turn & 1) * s->h->slot_bytes;
}

uint8_t *shm_small(const struct shm *s, uint32_t member, unsigned turn)
{
    return shm_member_area(s, member) + 2 * (size_t)s->h->slot_bytes
           + (size_t)(turn & 1) * s->h->small_bytes;
}

struct agree_area *shm_agree_area(const struct shm *s)
{
    return (struct agree_area *)(void *)((uint8_t *)s->h + line_bytes(s->h->n));
}

static long
shm_futex(_Atomic uint32_t *word, int op, uint32_t v, const struct timespec *t)
{
    return syscall(SYS_futex, word, op, v, t, NULL, 0);
}

void shm_store_seq(struct shm *s, uint32_t seq)
{
    put_flush(&s->put);
    /* pairs with the acquire load in line_has_reached() */
    atomic_store_explicit(&s->h->lines[s->line_of[s->me]].seq, seq,
                          memory_order_release);
    s->owes_wakeup = true;
}

void shm_wake_waiters(struct shm *s)
{
    struct shm_line *l = &s->h->lines[s->line_of[s->me]];
    if (!s->owes_wakeup)
        return;
    s->owes_wakeup = false;
    /* pairs with the addition in line_sleep() */
    if (atomic_fetch_add_explicit(&l->waiters, 0, memory_order_acq_rel) == 0)
        return;
    atomic_fetch_add_explicit(&l->wakeups, 1, memory_order_release);
    (void)shm_futex(&l->wakeups, FUTEX_WAKE, INT32_MAX, NULL); /* cannot fail */
}

void shm_publish(struct shm *s, uint32_t seq)
{
    shm_store_seq(s, seq);
    shm_wake_waiters(s);
}

/* True when counter value `have` has reached `want`; both wrap. */
static bool line_has_reached(struct shm_line *l, uint32_t want)
{
    uint32_t have = atomic_load_explicit(&l->seq, memory_order_acquire);
    return (int32_t)(have - want) >= 0;
}

static void line_sleep(struct shm_line *l, uint32_t want, uint64_t ns)
{
    const struct timespec slice = clock_timespec(ns);
    uint32_t wakeups = atomic_load_explicit(&l->wakeups, memory_order_relaxed);
    /* pairs with the addition in shm_wake_waiters() */
    atomic_fetch_add_explicit(&l->waiters, 1, memory_order_acq_rel);
    if (!line_has_reached(l, want))
        (void)shm_futex(&l->wakeups, FUTEX_WAIT, wakeups,
                        &slice); /* whatever the result, check again */
    atomic_fetch_sub_explicit(&l->waiters, 1, memory_order_relaxed);
}

bool shm_has_reached(const struct shm *s, uint32_t member, uint32_t seq)
{
    return line_has_reached(&s->h->lines[s->line_of[member]], seq);
}

void shm_sleep(const struct shm *s, uint32_t member, uint32_t seq, uint64_t ns)
{
    line_sleep(&s->h->lines[s->line_of[member]], seq, ns);
}

/* Publishes our CPU for the other ranks: a hint that may be stale, so all is
 * relaxed. */
static uint32_t note_cpu(struct shm *s)
{
    struct shm_line *own = &s->h->lines[s->line_of[s->me]];
    uint32_t cpu = (uint32_t)sched_getcpu() + 1;
    if (atomic_load_explicit(&own->cpu, memory_order_relaxed) != cpu)
        atomic_store_explicit(&own->cpu, cpu, memory_order_relaxed);
    return cpu;
}

bool shm_is_near(const struct shm *s, uint32_t member)
{
    const struct shm_line *l = s->h->lines;
    uint32_t cpu =
        atomic_load_explicit(&l[s->line_of[s->me]].cpu, memory_order_relaxed);
    return s->w->n_spins == 0 && cpu != 0
           && atomic_load_explicit(&l[s->line_of[member]].cpu, memory_order_relaxed)
                  == cpu;
}

/* Moves to any other CPU; the affinity mask stays unchanged. */
static void leave_cpu(uint32_t cpu)
{
    cpu_set_t all, others;
    if (sched_getaffinity(0, sizeof(all), &all) != 0 || cpu >= CPU_SETSIZE)
        return;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
        (void)sched_setaffinity(0, sizeof(all), &all); /* it was allowed before */
}

/* Handles ranks that wait on one CPU while others are idle. The scheduler does not
 * separate threads that always run in turns, but it places a woken thread on an idle
 * CPU, so one sleep separates them (true: sleep). If two sleeps have not helped,
 * because the other CPUs are busy, the last of the ranks moves itself to another CPU.
 * The interval of the check doubles each time. */
static bool should_sleep_to_move(struct shm *s, uint64_t now_ns)
{
    uint32_t cpu = note_cpu(s), n_here = 0, last = 0;
    if (s->w->n_cpus == 0 || now_ns - s->cpu_checked_ns < s->cpu_check_ns)
        return false;
    s->cpu_checked_ns = now_ns;
    for (uint32_t j = 0; j < s->n; j++)
        if (atomic_load_explicit(&s->h->lines[s->line_of[j]].cpu, memory_order_relaxed)
            == cpu) {
            n_here++;
            last = j;
        }
    if (n_here <= (s->n + s->w->n_cpus - 1) / s->w->n_cpus) {
        s->cpu_check_ns = CPU_CHECK_MIN_NS;
        return false;
    }
    bool has_slept = s->cpu_check_ns >= 4 * CPU_CHECK_MIN_NS;
    s->cpu_check_ns =
        s->cpu_check_ns < CPU_CHECK_MAX_NS ? 2 * s->cpu_check_ns : CPU_CHECK_MAX_NS;
    if (has_slept && last == s->me) {
        leave_cpu(cpu - 1);
        (void)note_cpu(s);
    }
    return !has_slept;
}

void shm_wait_long(struct shm *s, uint32_t member, uint32_t seq)
{
    shm_wake_waiters(s);
    if (should_sleep_to_move(s, clock_now_ns()))
        shm_sleep(s, member, seq, wait_slice_ns(s->w));
}

static int wait_slow(struct shm *s, uint32_t member, uint32_t seq, struct err *err)
{
    struct shm_line *l = &s->h->lines[s->line_of[member]];
    uint64_t until = clock_now_ns() + WAIT_YIELD_NS;
    struct patience patience = {0};
    shm_wait_long(s, member, seq);
    do {
        sched_yield();
        if (line_has_reached(l, seq))
            return 0;
    } while (clock_now_ns() < until);
    for (;;) {
        int rc = wait_check(s->w, &patience, s->rank_of[member], err);
        if (line_has_reached(l, seq)) /* a peer may have published and then left */
            return 0;
        if (rc < 0)
            return rc;
        line_sleep(l, seq, wait_slice_ns(s->w));
        if (line_has_reached(l, seq))
            return 0;
    }
}

int shm_wait(struct shm *s, uint32_t member, uint32_t seq, struct err *err)
{
    struct shm_line *l = &s->h->lines[s->line_of[member]];
    for (uint32_t i = 0; i <= s->w->n_spins; i++) {
        if (line_has_reached(l, seq))
            return 0;
        cpu_relax();
    }
    return wait_slow(s, member, seq, err);
}

int shm_wait_all(struct shm *s, uint32_t seq, struct err *err)
{
    for (uint32_t j = 0; j < s->n; j++) {
        int rc = j == s->me ? 0 : shm_wait(s, j, seq, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

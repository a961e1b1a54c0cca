/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement: the bitwise AND of all members' words, without blocking.
 *
 *   one host        each member writes its words into its line and reads all lines
 *   several hosts   followers write, their leader reads; the leaders exchange by
 *                   dissemination (to me + 1, me + 2, me + 4 ...: AND may count a host
 *                   twice); the leader writes the result, its followers read it
 *
 * Invariants
 *   - Two slots per writer suffice. Slot k % 2 is written for agreement k + 2 by a
 *     member that is done with k + 1, so every reader of its slot had started k + 1,
 *     was done with k and has read its slot k for the last time. (Result slots: the
 *     leader has gathered k + 2, so every follower had started k + 2.) For the
 *     same reason a reader that waits for k finds k - 2 or k in the slot, never k + 2,
 *     and compares for equality; numbers may wrap. Slots start as 0, agreements count
 *     from 1: slot 0 is read for 2 first.
 *   - A reader that sees the number of a slot sees its words: the store and the load
 *     are seq_cst, so also release and acquire.
 *   - No wake-up is lost. A sleeper reads its futex word (`wakeups`), stores in `awaits`
 *     what it awaits, then checks for it once more and sleeps only while the futex word
 *     has that value. A member that causes the awaited event publishes it, then loads
 *     `awaits`, then adds 1 to the futex word and wakes. The stores and loads of both
 *     are seq_cst, so one of them sees the other; and a futex word that changes after
 *     `awaits` was stored differs from the value read before.
 *   - Streams between leaders carry agreements and batches in the order of calls. No
 *     batch is posted before the agreement is done, that is before the kernel has our
 *     last byte of it; and exactly the bytes of a message are read, because what
 *     follows may be the next batch of a faster leader.
 *
 * A live member is waited for without limit: an agreement may start before all members
 * have something to do. Whether a missing member is alive is checked every CHECK_NS. The
 * rest of a message that has begun to arrive is waited for as long as data is.
 *
 * Called through the ops table by cpu.c. */
#include "runtime/backend/cpu/agree.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/backend/cpu/cpu.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"

#define CHECK_NS   1000000ull /* interval of checks that a missing member is alive */
#define CHECK_IDLE 64u        /* idle polls between two reads of the clock */

/* What a member sleeps for; the words of member i are AWAITS_MEMBER + i. */
enum agree_awaits { AWAITS_NOTHING, AWAITS_NUDGE, AWAITS_HOSTS, AWAITS_RESULT };
#define AWAITS_MEMBER 16u

static struct cpu *agree_self(struct backend *b)
{
    return (struct cpu *)b; /* b is the first member */
}

void agree_init(struct agree *a)
{
    a->event_fd = -1;
    a->line = &a->alone;
    /* release: pairs with the acquire load in agree_nudge() */
    atomic_store_explicit(&a->nudged_line, a->line, memory_order_release);
}

int agree_open(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    if (c->n_local > 1) {
        a->area = shm_agree_area(&c->shm);
        a->line = &a->area->lines[c->shm.line_of[c->local]];
    }
    if (c->n_hosts > 1 && c->local == 0) {
        a->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (a->event_fd < 0)
            return err_errno(err, errno, "event descriptor");
    }
    /* release: pairs with the acquire load in agree_nudge() */
    atomic_store_explicit(&a->nudged_line, a->line, memory_order_release);
    return 0;
}

void agree_close(struct agree *a)
{
    atomic_store_explicit(&a->nudged_line, &a->alone, memory_order_release);
    fd_close(&a->event_fd);
    a->area = NULL;
    a->line = &a->alone;
}

/* --- futex words --- */

static long
agree_futex(_Atomic uint32_t *word, int op, uint32_t v, const struct timespec *t)
{
    return syscall(SYS_futex, word, op, v, t, NULL, 0);
}

static void line_signal(struct agree_line *l)
{
    atomic_fetch_add_explicit(&l->wakeups, 1, memory_order_seq_cst);
    (void)agree_futex(&l->wakeups, FUTEX_WAKE, INT32_MAX, NULL); /* cannot fail */
}

/* Called after a store that a sleeper may await. */
static void line_wake(struct agree_line *l, uint32_t what)
{
    if (atomic_load_explicit(&l->awaits, memory_order_seq_cst) == what)
        line_signal(l);
}

void agree_nudge(struct backend *b)
{
    struct agree *a = &agree_self(b)->agree;
    struct agree_line *l = atomic_load_explicit(&a->nudged_line, memory_order_acquire);
    const uint64_t one = 1;
    atomic_store_explicit(&a->is_nudged, true, memory_order_seq_cst);
    uint32_t what = atomic_load_explicit(&l->awaits, memory_order_seq_cst);
    if (what == AWAITS_HOSTS) {
        if (write(a->event_fd, &one, sizeof(one)) < 0)
            return; /* full, which wakes as well */
    } else if (what != AWAITS_NOTHING) {
        line_signal(l);
    }
}

/* --- one host --- */

static struct agree_line *agree_line_of(const struct cpu *c, uint32_t member)
{
    return &c->agree.area->lines[c->shm.line_of[member]];
}

static bool slot_is_published(const struct agree *a, struct agree_slot *slots)
{
    return atomic_load_explicit(&slots[a->seq & 1].seq, memory_order_seq_cst) == a->seq;
}

static void agree_publish_slot(struct agree *a, struct agree_slot *slots)
{
    struct agree_slot *s = &slots[a->seq & 1];
    s->n = a->n;
    memcpy(s->words, a->words, a->n * sizeof(*a->words));
    atomic_store_explicit(&s->seq, a->seq, memory_order_seq_cst);
}

static int out_of_step(
    const struct cpu *c, uint32_t rank, uint32_t seq, uint32_t n, struct err *err)
{
    return err_set(err, -EPROTO,
                   "rank %u is in agreement %u of %u words, rank %u in %u of %u", rank,
                   seq, n, cpu_global(c, c->env.rank), c->agree.seq, c->agree.n);
}

static int agree_collect_words(struct cpu *c,
                               uint32_t rank,
                               uint32_t seq,
                               uint32_t n,
                               const uint64_t *words,
                               struct err *err)
{
    struct agree *a = &c->agree;
    if (seq != a->seq || n != a->n)
        return out_of_step(c, rank, seq, n, err);
    for (uint32_t i = 0; i < n; i++)
        a->words[i] &= words[i];
    return 0;
}

/* 1: done, 0: not yet, or an error; like all steps below. */
static int step_local(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    for (; a->at < c->n_local; a->at++) {
        if (a->at == c->local)
            continue;
        struct agree_slot *slots = agree_line_of(c, a->at)->slots;
        if (!slot_is_published(a, slots))
            return 0;
        const struct agree_slot *s = &slots[a->seq & 1];
        int rc =
            agree_collect_words(c, c->shm.rank_of[a->at], a->seq, s->n, s->words, err);
        if (rc < 0)
            return rc;
    }
    return 1;
}

static int step_result(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    if (!slot_is_published(a, a->area->result))
        return 0;
    const struct agree_slot *s = &a->area->result[a->seq & 1];
    int rc = agree_collect_words(c, c->shm.rank_of[0], a->seq, s->n, s->words, err);
    return rc < 0 ? rc : 1;
}

static void wake_local(struct cpu *c, uint32_t what)
{
    for (uint32_t j = 0; j < c->n_local; j++)
        if (j != c->local)
            line_wake(agree_line_of(c, j), what);
}

/* --- several hosts --- */

static uint32_t to_host(const struct cpu *c)
{
    return (uint32_t)(((uint64_t)c->host + c->agree.distance) % c->n_hosts);
}

static uint32_t from_host(const struct cpu *c)
{
    return (uint32_t)(((uint64_t)c->host + c->n_hosts - c->agree.distance)
                      % c->n_hosts);
}

static size_t message_bytes(const struct agree *a)
{
    size_t n = offsetof(struct agree_message, words) + a->n * sizeof(*a->words);
    return (n + NET_ALIGN - 1) / NET_ALIGN * NET_ALIGN;
}

/* A message is one block, its padding included. */
static uint32_t message_data_bytes(const struct agree *a)
{
    return (uint32_t)(message_bytes(a) - BLOCK_HEADER_BYTES);
}

static void begin_round(struct cpu *c)
{
    struct agree *a = &c->agree;
    struct block_stream *s = &c->net.peers[to_host(c)].out;
    struct piece data = {.in = (const uint8_t *)&a->out.seq,
                         .n = message_data_bytes(a)};
    struct vec v = vec_of(&data, 1);
    struct cursor at = cursor_at(&v);
    a->n_sent = a->n_got = 0;
    memset(&a->out, 0, message_bytes(a));
    a->out.seq = a->seq;
    a->out.n = a->n;
    memcpy(a->out.words, a->words, a->n * sizeof(*a->words));
    block_write_header(s, (struct block_subject){a->seq, BLOCK_AGREEMENT}, &at, false,
                       message_data_bytes(a));
    memcpy(a->out.header, s->header, sizeof(a->out.header));
}

/* m more bytes of `in` have arrived; the header is checked as soon as it is complete. */
static int message_receive(struct cpu *c, uint32_t from, size_t m, struct err *err)
{
    struct agree *a = &c->agree;
    struct block_stream *s = &c->net.peers[from].in;
    bool had_header = a->n_got >= BLOCK_HEADER_BYTES;
    struct err why = ERR_INIT;
    int rc = 0;
    a->n_got += m;
    a->partial = (struct patience){0};
    if (!had_header && a->n_got >= BLOCK_HEADER_BYTES) {
        block_announce(s, (struct block_subject){a->seq, BLOCK_AGREEMENT},
                       message_data_bytes(a));
        memcpy(s->header, a->in.header, sizeof(s->header));
        rc = block_check_header(s, &why);
    }
    if (rc == 0 && a->n_got == message_bytes(a)) {
        block_add(s, &a->in.seq, message_data_bytes(a));
        rc = block_check_data(s, &why);
    }
    return rc < 0 ? net_data_wrong(&c->net, from, &why, err) : 0;
}

/* 0, or the error of the connections. */
static int move_messages(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    const size_t n = message_bytes(a);
    uint32_t from = from_host(c);
    int64_t m = 0;
    if (a->n_sent < n)
        m = net_send_now(&c->net, to_host(c), (const uint8_t *)&a->out + a->n_sent,
                         n - a->n_sent, err);
    if (m < 0)
        return (int)m;
    a->n_sent += (size_t)m;
    if (a->n_got == n)
        return 0;
    m = net_recv_now(&c->net, from, (uint8_t *)&a->in + a->n_got, n - a->n_got, err);
    return m <= 0 ? (int)m : message_receive(c, from, (size_t)m, err);
}

static int step_hosts(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    const size_t n = message_bytes(a);
    while (a->distance < c->n_hosts) {
        int rc = move_messages(c, err);
        if (rc < 0)
            return rc;
        if (a->n_sent < n || a->n_got < n)
            return 0;
        rc = agree_collect_words(c, c->net.peers[from_host(c)].rank, a->in.seq, a->in.n,
                                 a->in.words, err);
        if (rc < 0)
            return rc;
        a->distance *= 2;
        if (a->distance < c->n_hosts)
            begin_round(c);
    }
    return 1;
}

/* --- the agreement --- */

static int agree_step(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    int rc = 0;
    if (a->phase == AGREE_RESULT)
        return step_result(c, err);
    if (a->phase == AGREE_LOCAL) {
        rc = step_local(c, err);
        if (rc <= 0 || c->n_hosts == 1)
            return rc;
        a->phase = AGREE_HOSTS;
        begin_round(c);
    }
    rc = step_hosts(c, err);
    if (rc == 1 && c->n_local > 1) {
        agree_publish_slot(a, a->area->result);
        wake_local(c, AWAITS_RESULT);
    }
    return rc;
}

int agree_begin(struct backend *b, const uint64_t *words, uint32_t n, struct err *err)
{
    struct cpu *c = agree_self(b);
    struct agree *a = &c->agree;
    if (c->broken.code != 0)
        return err_set(err, -EPIPE, "%s", c->broken.text);
    if (n == 0 || n > AGREE_MAX_WORDS)
        return err_set(err, -EINVAL, "agreement of %u words, 1 to %d are allowed", n,
                       AGREE_MAX_WORDS);
    if (a->phase != AGREE_NONE)
        return err_set(err, -EBUSY, "agreement %u is not done", a->seq);
    memcpy(a->words, words, n * sizeof(*words));
    a->seq++;
    a->n = n;
    a->at = 0;
    a->distance = 1;
    a->n_idle = 0;
    a->has_dozed = false;
    a->checked_ns = 0;
    a->phase = c->n_hosts > 1 && c->local > 0 ? AGREE_RESULT : AGREE_LOCAL;
    if (a->phase == AGREE_RESULT) {
        agree_publish_slot(a, a->line->slots);
        line_wake(agree_line_of(c, 0), AWAITS_MEMBER + c->local);
    } else if (c->n_local > 1 && c->n_hosts == 1) {
        agree_publish_slot(a, a->line->slots);
        wake_local(c, AWAITS_MEMBER + c->local);
    }
    return 0;
}

/* Whether the member's words of this agreement are missing. */
static bool agree_is_missing(struct cpu *c, uint32_t member)
{
    return member != c->local
           && !slot_is_published(&c->agree, agree_line_of(c, member)->slots);
}

/* Checks that missing members are alive. Of those on this host it checks the first and
 * one other, a different one each time, because a check is a system call. */
static int agree_check(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    uint64_t now = clock_now_ns();
    if (a->checked_ns == 0)
        a->checked_ns = now;
    if (now - a->checked_ns < CHECK_NS)
        return 0;
    a->checked_ns = now;
    if (a->phase == AGREE_HOSTS && a->n_got > 0 && a->n_got < message_bytes(a)) {
        int late =
            patience_spend(&c->w, &a->partial, c->net.peers[from_host(c)].rank, err);
        if (late < 0)
            return late;
    }
    if (c->n_local == 1)
        return cpu_check_member(c, cpu_global(c, c->env.rank), err);
    uint32_t first = a->phase == AGREE_RESULT ? 0 : c->local;
    if (a->phase == AGREE_LOCAL && a->at < c->n_local)
        first = a->at;
    int rc = cpu_check_member(c, c->shm.rank_of[first], err);
    uint32_t other = a->n_checks++ % c->n_local;
    if (rc == 0 && agree_is_missing(c, other))
        rc = cpu_check_member(c, c->shm.rank_of[other], err);
    return rc;
}

static int poll_slow(struct cpu *c, struct err *err)
{
    struct agree *a = &c->agree;
    bool has_dozed = a->has_dozed;
    a->has_dozed = false;
    if (atomic_load_explicit(&c->is_aborted, memory_order_relaxed))
        return err_set(err, -ECANCELED, "aborted");
    if (++a->n_idle % CHECK_IDLE != 0 && !has_dozed)
        return 0;
    struct err why = ERR_INIT;
    int rc = agree_check(c, &why);
    if (rc == 0)
        return 0;
    int now = agree_step(c, err); /* a peer may have published and then left */
    return now != 0 ? now : err_set(err, rc, "%s", why.text);
}

int agree_poll(struct backend *b, uint64_t *ret_words, bool *ret_done, struct err *err)
{
    struct cpu *c = agree_self(b);
    struct agree *a = &c->agree;
    if (c->broken.code != 0)
        return err_set(err, -EPIPE, "%s", c->broken.text);
    if (a->phase == AGREE_NONE)
        return err_set(err, -EINVAL, "no agreement is in progress");
    struct err why;
    int rc;
    err_init(&why);
    rc = agree_step(c, &why);
    if (rc == 0)
        rc = poll_slow(c, &why);
    if (rc < 0)
        return cpu_break(c, rc, &why, err);
    if (rc == 1) {
        memcpy(ret_words, a->words, a->n * sizeof(*a->words));
        a->phase = AGREE_NONE;
    }
    *ret_done = rc == 1;
    return 0;
}

/* --- sleeping --- */

static uint32_t agree_awaited_events(const struct cpu *c)
{
    const struct agree *a = &c->agree;
    switch (a->phase) {
    case AGREE_NONE:
        return AWAITS_NUDGE;
    case AGREE_RESULT:
        return AWAITS_RESULT;
    case AGREE_HOSTS:
        return AWAITS_HOSTS;
    case AGREE_LOCAL:
        break;
    }
    return a->at < c->n_local && a->at != c->local ? AWAITS_MEMBER + a->at
                                                   : AWAITS_NOTHING;
}

static bool member_arrived(struct cpu *c, uint32_t what)
{
    struct agree *a = &c->agree;
    if (what == AWAITS_RESULT)
        return slot_is_published(a, a->area->result);
    return what >= AWAITS_MEMBER
           && slot_is_published(a, agree_line_of(c, what - AWAITS_MEMBER)->slots);
}

static void sleep_on_sockets(struct cpu *c, const struct timespec *t)
{
    struct agree *a = &c->agree;
    struct pollfd p[3] = {
        {.fd = a->event_fd, .events = POLLIN},
        {.fd = -1, .events = POLLIN},
        {.fd = -1, .events = POLLOUT},
    };
    uint64_t count;
    if (a->n_got < message_bytes(a))
        p[1].fd = c->net.peers[from_host(c)].fd;
    if (a->n_sent < message_bytes(a))
        p[2].fd = c->net.peers[to_host(c)].fd;
    (void)ppoll(p, 3, t, NULL); /* whatever the result, the caller checks again */
    if (p[0].revents != 0 && read(a->event_fd, &count, sizeof(count)) < 0)
        return; /* it was empty: only this thread empties it */
}

void agree_doze(struct backend *b, uint64_t ns)
{
    struct cpu *c = agree_self(b);
    struct agree *a = &c->agree;
    uint32_t what = agree_awaited_events(c);
    if (c->broken.code != 0)
        what = AWAITS_NUDGE;
    else if (a->phase != AGREE_NONE && ns > wait_slice_ns(&c->w))
        ns = wait_slice_ns(&c->w); /* so that a death is detected soon */
    if (what == AWAITS_NOTHING || ns == 0)
        return;
    const struct timespec t = clock_timespec(ns);
    uint32_t wakeups = atomic_load_explicit(&a->line->wakeups, memory_order_seq_cst);
    atomic_store_explicit(&a->line->awaits, what, memory_order_seq_cst);
    if (!atomic_load_explicit(&a->is_nudged, memory_order_seq_cst)
        && !member_arrived(c, what)) {
        if (what == AWAITS_HOSTS)
            sleep_on_sockets(c, &t);
        else
            (void)agree_futex(&a->line->wakeups, FUTEX_WAIT, wakeups,
                              &t); /* likewise */
    }
    /* relaxed: an unneeded wake-up is harmless */
    atomic_store_explicit(&a->line->awaits, AWAITS_NOTHING, memory_order_relaxed);
    /* acquire: pairs with the store in nudge; what preceded it is visible after this */
    (void)atomic_exchange_explicit(&a->is_nudged, false, memory_order_acq_rel);
    a->has_dozed = true;
}

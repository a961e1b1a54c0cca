/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: how an idle member joins an agreement that other members have started.
 *
 * A member that starts an agreement publishes that in the segment (agree.c). If all
 * members must join, it also stores the number in `called` of its line. An idle member
 * polls this (agree_call_state). A member that stops polling stores in `wake_on` of its
 * line which event must wake it, and sleeps on its wake-up socket: a datagram socket
 * whose name the kernel chooses (autobind) and the line contains. A member that waits
 * in an agreement sends an empty datagram to each missing member that sleeps. It does
 * so only after CALL_WAKE_AFTER polls, so that a member that is about to arrive costs
 * no system call.
 *
 * Invariants
 *   - No call is lost. `wake_on` is stored, then the other lines are read; `started`
 *     and `called` are stored, then `wake_on` is read; all seq_cst: one of the two sees
 *     the other.
 *   - No call is repeated. The sender first changes `wake_on` to WAKE_SENT, so only one
 *     member sends. Datagrams are drained before `wake_on` is stored; one that arrives
 *     after that causes one unneeded wake-up.
 *   - Other hosts. A leader uses the bytes that agreements send anyway: waiting bytes
 *     are a call, because between two agreements nothing else is sent (agree.c,
 *     invariants). Its second descriptor is an epoll of those sockets. A leader that is
 *     called calls its own host and, by joining, the next leaders: all have joined
 *     after log2(hosts) hops.
 *
 * Counting. A sleeping member with nothing to do need not be woken on its own host: it
 * leaves its words in the line (`proxy_words`), and in `proxy` the number of its last
 * agreement and PROXY_READY. A member that has called and misses only such members
 * changes proxy from k - 1 to k for each of them (a compare-and-swap), and their words
 * count in k, on all members, because all read proxy. When the member returns, it
 * clears PROXY_READY by a compare-and-swap too, and reads how far it was counted.
 *
 *   - A member is either counted or publishes, not both: both start with a swap of
 *     proxy.
 *   - Its proxy words stay readable. They are the same for one tag. Proxy means "up
 *     to here", and its member clears it two agreements later, when all members are
 *     done with that one. A member that was counted in k and in k + 1 counts in k for a
 *     slow reader.
 *   - A member that returns finds the result of the last agreement it was counted in,
 *     k: the other members' slots hold k until k + 2, which needs k + 1, which needs
 *     this member. Older results are not needed (member.c).
 *   - Another plan has another tag: no member is counted with old words. Nor do the
 *     words change while a slow member reads them that was counted in the old plan's
 *     last agreement too: a member leaves proxy words for a plan only after it has
 *     started one of the plan's agreements itself. So every member has done that before
 *     any is counted, and is done with the old plan.
 *
 * Leaders of several hosts leave no proxy words, because they have to forward words.
 *
 * A member without a wake-up socket (no descriptor left) must poll now and then.
 *
 * Called through the ops table by cpu.c. */
#include "runtime/backend/cpu/call.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/backend/cpu/cpu.h"
#include "runtime/base/fd.h"

enum { WAKE_SENT = CALL_CALLED + 1 };

static struct cpu *call_self(struct backend *b)
{
    return (struct cpu *)b; /* b is the first member */
}

static struct agree_line *call_line_of(const struct cpu *c, uint32_t member)
{
    return &c->agree.area->lines[c->shm.line_of[member]];
}

static bool host_has_other_members(const struct cpu *c)
{
    return c->agree.area != NULL;
}

static bool leads_hosts(const struct cpu *c)
{
    return c->n_hosts > 1 && c->local == 0;
}

/* Whether this line's member has started agreement seq; a leader of several hosts
 * stores that in `started`. */
static bool has_started(struct agree_line *l, uint32_t seq)
{
    return atomic_load_explicit(&l->slots[seq & 1].seq, memory_order_seq_cst) == seq
           || atomic_load_explicit(&l->started, memory_order_seq_cst) == seq;
}

/* --- counting --- */

enum { PROXY_READY = 1, PROXY_VALID = 2 };

static uint64_t proxy_of(uint32_t seq, uint32_t flags)
{
    return (uint64_t)seq << 2 | flags;
}

bool call_is_counted(struct cpu *c, uint32_t member)
{
    if (c->calls.tag == 0)
        return false;
    uint64_t p =
        atomic_load_explicit(&call_line_of(c, member)->proxy, memory_order_seq_cst);
    return (p & PROXY_VALID) != 0 && (int32_t)((uint32_t)(p >> 2) - c->agree.seq) >= 0;
}

static bool can_count(const struct cpu *c, struct agree_line *l)
{
    uint64_t want = proxy_of(c->agree.seq - 1, PROXY_VALID | PROXY_READY);
    return c->calls.tag != 0
           && atomic_load_explicit(&l->proxy, memory_order_seq_cst) == want
           && l->proxy_tag == c->calls.tag && l->proxy_n == c->agree.n;
}

bool call_count(struct cpu *c, uint32_t member)
{
    struct agree_line *l = call_line_of(c, member);
    uint64_t old = proxy_of(c->agree.seq - 1, PROXY_VALID | PROXY_READY);
    if (!c->calls.calls || !can_count(c, l))
        return false;
    for (uint32_t j = member + 1; j < c->n_local; j++)
        if (j != c->local && !has_started(call_line_of(c, j), c->agree.seq)
            && !call_is_counted(c, j) && !can_count(c, call_line_of(c, j)))
            return false;
    if (atomic_compare_exchange_strong_explicit(
            &l->proxy, &old, proxy_of(c->agree.seq, PROXY_VALID | PROXY_READY),
            memory_order_seq_cst, memory_order_seq_cst))
        agree_count_arrival(c, member);
    return call_is_counted(c, member);
}

static void call_post_words(struct cpu *c, const uint64_t *words, uint32_t n)
{
    struct agree_line *l = c->agree.line;
    if (c->calls.tag == 0 || c->calls.tag != c->calls.started_tag
        || !host_has_other_members(c) || leads_hosts(c))
        return;
    if (l->proxy_tag != c->calls.tag || l->proxy_n != n) {
        memcpy(l->proxy_words, words, n * sizeof(*words));
        l->proxy_tag = c->calls.tag;
        l->proxy_n = n;
    }
    atomic_store_explicit(&l->proxy, proxy_of(c->agree.seq, PROXY_VALID | PROXY_READY),
                          memory_order_seq_cst);
}

bool agree_disarm_wakeup(struct backend *b)
{
    struct cpu *c = call_self(b);
    struct agree *a = &c->agree;
    struct agree_line *l = a->line;
    uint64_t p = atomic_load_explicit(&l->proxy, memory_order_seq_cst);
    atomic_store_explicit(&l->wake_on, CALL_NONE, memory_order_seq_cst);
    if ((p & PROXY_READY) == 0)
        return false;
    while (!atomic_compare_exchange_weak_explicit(
        &l->proxy, &p, p & ~(uint64_t)PROXY_READY, memory_order_seq_cst,
        memory_order_seq_cst))
        ;
    if ((uint32_t)(p >> 2) == a->seq || c->broken.code != 0)
        return false;
    memcpy(a->words, l->proxy_words, l->proxy_n * sizeof(*l->proxy_words));
    agree_enter(c, (uint32_t)(p >> 2), l->proxy_n);
    c->calls.calls = false;
    return true;
}

void agree_tag(struct backend *b, uint32_t tag)
{
    call_self(b)->calls.tag = tag;
}

/* --- wake-up sockets --- */

void call_init(struct calls *k)
{
    k->wakeup_fd = k->hosts = -1;
}

void call_close(struct calls *k)
{
    fd_close(&k->wakeup_fd);
    fd_close(&k->hosts);
}

static int wakeup_open(struct cpu *c, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    socklen_t n = sizeof(a);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "socket for calls");
    if (bind(fd, (struct sockaddr *)&a, sizeof(a.sun_family)) < 0
        || getsockname(fd, (struct sockaddr *)&a, &n) < 0 || n <= sizeof(a.sun_family)
        || n - sizeof(a.sun_family) > sizeof(c->agree.line->wakeup_name)) {
        int rc = err_errno(err, errno, "name of a socket for calls");
        (void)close(fd);
        return rc;
    }
    memcpy(c->agree.line->wakeup_name, a.sun_path, n - sizeof(a.sun_family));
    c->agree.line->wakeup_name_bytes = (uint32_t)(n - sizeof(a.sun_family));
    c->calls.wakeup_fd = fd;
    return 0;
}

static int hosts_open(struct cpu *c, struct err *err)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "epoll for calls");
    for (uint32_t d = 1; d < c->n_hosts; d *= 2) {
        int from = c->net.peers[(c->host + c->n_hosts - d) % c->n_hosts].fd;
        struct epoll_event e = {.events = EPOLLIN};
        if (epoll_ctl(fd, EPOLL_CTL_ADD, from, &e) < 0 && errno != EEXIST) {
            int rc = err_errno(err, errno, "epoll for calls");
            (void)close(fd);
            return rc;
        }
    }
    c->calls.hosts = fd;
    return 0;
}

int agree_wakeup_fds(struct backend *b, int ret_fds[2], struct err *err)
{
    struct cpu *c = call_self(b);
    int rc = 0;
    if (host_has_other_members(c) && c->calls.wakeup_fd < 0)
        rc = wakeup_open(c, err);
    if (rc == 0 && leads_hosts(c) && c->calls.hosts < 0)
        rc = hosts_open(c, err);
    ret_fds[0] = c->calls.wakeup_fd;
    ret_fds[1] = c->calls.hosts;
    return rc;
}

/* --- calling --- */

static void call_wake_line(struct cpu *c, struct agree_line *l)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint32_t n = l->wakeup_name_bytes;
    if (n == 0 || n > sizeof(l->wakeup_name))
        return;
    memcpy(a.sun_path, l->wakeup_name, n);
    /* a failed send is fine: a full socket is readable, a lost member is dead */
    (void)sendto(c->calls.wakeup_fd, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL,
                 (struct sockaddr *)&a, (socklen_t)(sizeof(a.sun_family) + n));
}

void call_missing(struct cpu *c)
{
    struct agree *a = &c->agree;
    /* only a member that has a wake-up socket can send */
    if (!host_has_other_members(c) || c->calls.wakeup_fd < 0)
        return;
    for (uint32_t j = 0; j < c->n_local; j++) {
        struct agree_line *l = call_line_of(c, j);
        if (j == c->local || has_started(l, a->seq) || call_is_counted(c, j)
            || (c->calls.calls && can_count(c, l)))
            continue;
        uint32_t wake_on = atomic_load_explicit(&l->wake_on, memory_order_seq_cst);
        bool is_wanted =
            wake_on == CALL_STARTED || (wake_on == CALL_CALLED && c->calls.calls);
        /* acq_rel: the sender sees the name that was written before wake_on */
        if (is_wanted
            && atomic_compare_exchange_strong_explicit(&l->wake_on, &wake_on, WAKE_SENT,
                                                       memory_order_acq_rel,
                                                       memory_order_relaxed))
            call_wake_line(c, l);
    }
}

void call_started(struct cpu *c)
{
    struct agree *a = &c->agree;
    c->calls.calls = false;
    c->calls.started_tag = c->calls.tag;
    /* relaxed: only this thread stores it now, as PROXY_READY is clear */
    uint64_t p = atomic_load_explicit(&a->line->proxy, memory_order_relaxed);
    if (p != 0 && a->seq - (uint32_t)(p >> 2) >= 2)
        atomic_store_explicit(&a->line->proxy, 0, memory_order_relaxed);
    if (leads_hosts(c))
        atomic_store_explicit(&a->line->started, a->seq, memory_order_seq_cst);
}

void agree_call(struct backend *b)
{
    struct cpu *c = call_self(b);
    struct agree *a = &c->agree;
    if (a->phase == AGREE_NONE || c->calls.calls)
        return;
    c->calls.calls = true;
    atomic_store_explicit(&a->line->called, a->seq, memory_order_seq_cst);
    if (a->n_idle >= CALL_WAKE_AFTER)
        call_missing(c);
}

/* --- being called --- */

static bool call_receives_from_hosts(struct cpu *c)
{
    for (uint32_t d = 1; d < c->n_hosts; d *= 2) {
        int fd = c->net.peers[(c->host + c->n_hosts - d) % c->n_hosts].fd;
        char byte;
        ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0)
            return true;
        /* A closed socket stays readable but is no call. The control channel reports
         * which rank is lost. */
        if (c->calls.hosts >= 0 && (n == 0 || (errno != EAGAIN && errno != EINTR)))
            (void)epoll_ctl(c->calls.hosts, EPOLL_CTL_DEL, fd, NULL);
    }
    return false;
}

/* True if a leader that has started an agreement without a call must call now: a
 * follower, which cannot call other hosts, has called, or another leader has sent bytes
 * of this agreement. */
bool call_is_due(struct cpu *c)
{
    const struct agree *a = &c->agree;
    if (!leads_hosts(c) || a->phase != AGREE_LOCAL || c->calls.calls)
        return false;
    for (uint32_t j = 0; host_has_other_members(c) && j < c->n_local; j++)
        if (j != c->local
            && atomic_load_explicit(&call_line_of(c, j)->called, memory_order_seq_cst)
                   == a->seq)
            return true;
    return call_receives_from_hosts(c);
}

enum agree_call agree_call_state(struct backend *b)
{
    struct cpu *c = call_self(b);
    uint32_t next = c->agree.seq + 1;
    enum agree_call r = CALL_NONE;
    if (c->broken.code != 0 || c->agree.phase != AGREE_NONE)
        return CALL_NONE;
    for (uint32_t j = 0; host_has_other_members(c) && j < c->n_local; j++) {
        struct agree_line *l = call_line_of(c, j);
        if (j == c->local)
            continue;
        if (atomic_load_explicit(&l->called, memory_order_seq_cst) == next)
            return CALL_CALLED;
        if (has_started(l, next))
            r = CALL_STARTED;
    }
    return leads_hosts(c) && call_receives_from_hosts(c) ? CALL_CALLED : r;
}

enum agree_call agree_arm_wakeup(struct backend *b,
                                 enum agree_call what,
                                 const uint64_t *words,
                                 uint32_t n)
{
    struct cpu *c = call_self(b);
    char byte;
    if (c->calls.wakeup_fd >= 0)
        while (recv(c->calls.wakeup_fd, &byte, 1, MSG_DONTWAIT) >= 0)
            ;
    if (words && c->agree.phase == AGREE_NONE && c->broken.code == 0)
        call_post_words(c, words, n);
    atomic_store_explicit(&c->agree.line->wake_on, what, memory_order_seq_cst);
    return agree_call_state(b);
}

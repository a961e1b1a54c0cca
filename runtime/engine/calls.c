/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to agreements. In a plan with process sets, agreements that other ranks start
 * need this rank even if it has nothing to offer, for example while its Python program
 * computes.
 *
 * The thread in the seat polls the backend for calls in each step. Before it leaves the
 * seat or blocks, it arms the calls (calls_arm) and polls once more: from then on a
 * call makes the descriptors of the backend readable. The background thread always
 * polls them too, and takes the seat when one is readable.
 *
 * A rank that sleeps with nothing to offer leaves its words to the other ranks. On one
 * host these complete agreements without it. When it returns, it may have been counted
 * in the last of their agreements.
 *
 * A rank that waits for other ranks of a set is not in an agreement but enters any that
 * starts. The time that it waits counts from the last agreement on a tensor of its own.
 *
 * Called by step.c and coordinator.c; in the seat only, except calls_fds and
 * calls_nap. */
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include "runtime/engine/coordinator.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

enum agree_call calls_pending(struct coordinator *co)
{
    return co->watches_calls ? co->backend->ops->agree_call_state(co->backend)
                             : CALL_NONE;
}

static const uint64_t NAP_MAX_NS = 5 * NS_PER_MS, NAP_HOSTS_NS = 500000;
static const uint64_t NO_WAKEUP_NS = 2 * NS_PER_MS, EXACT_NS = 50 * NS_PER_MS;
static const uint64_t FOREVER_NS = 3600 * NS_PER_S;

/* The calls that this rank must be woken for. */
static enum agree_call calls_wanted(const struct coordinator *co)
{
    return member_has_offer(co->member) ? CALL_STARTED : CALL_CALLED;
}

bool calls_arm(struct coordinator *co)
{
    const uint64_t *words = NULL;
    enum agree_call want;
    uint32_t n = 0;

    calls_disarm(co); /* it may be armed already */
    if (!co->watches_calls || co->has_failed || co->has_end)
        return false;
    want = calls_wanted(co);
    if (!member_proxy_words(co->member, &words, &n))
        words = NULL;
    co->backend->ops->agree_tag(co->backend, member_plan_no(co->member));
    return co->backend->ops->agree_arm_wakeup(co->backend, want, words, n) >= want;
}

void calls_disarm(struct coordinator *co)
{
    if (!co->watches_calls || !co->backend->ops->agree_disarm_wakeup(co->backend))
        return;
    member_resume(co->member);
    co->agree_begin_ns = clock_now_ns();
}

static void calls_begin(struct coordinator *co)
{
    struct err err = ERR_INIT;
    int fds[2] = {-1, -1};

    co->has_no_call_fd = co->backend->ops->agree_wakeup_fds(co->backend, fds, &err) < 0;
    if (co->has_no_call_fd)
        log_warn("out of descriptors for wake-ups, polling every 2 ms instead",
                 "rank=%u error=\"%s\"", co->rank, err.text);
    atomic_store(&co->call_fds[0], fds[0]);
    atomic_store(&co->call_fds[1], fds[1]);
    atomic_store(&co->is_watching_calls, true); /* seq_cst: after the descriptors */
}

bool calls_update(struct coordinator *co)
{
    bool has_sets = member_has_set_plan(co->member);

    if (has_sets == co->watches_calls)
        return false;
    if (has_sets) {
        calls_begin(co);
    } else {
        atomic_store(&co->is_watching_calls, false);
        calls_disarm(co);
        co->waits_since_ns = 0;
    }
    co->watches_calls = has_sets;
    return has_sets;
}

uint64_t calls_waits_since(struct coordinator *co)
{
    uint64_t n_planned;

    if (!co->watches_calls || !member_has_offer(co->member))
        return co->waits_since_ns = 0;
    n_planned = member_counts(co->member).n_planned;
    if (co->waits_since_ns == 0 || co->waited_at != n_planned)
        co->waits_since_ns = clock_now_ns();
    co->waited_at = n_planned;
    return co->waits_since_ns;
}

bool calls_nap(struct coordinator *co, uint64_t ns, bool of_hosts)
{
    bool is_short = !of_hosts && atomic_load(&co->call_fds[1]) >= 0;
    uint64_t max_ns = is_short ? NAP_HOSTS_NS : NAP_MAX_NS;
    struct pollfd p[3] = {{.fd = control_epoll_fd(co->control), .events = POLLIN}};
    size_t n = 1 + calls_fds(co, of_hosts, p + 1);
    struct timespec ts = {.tv_nsec = (long)(ns < max_ns ? ns : max_ns)};
    bool came;

    atomic_store(&co->nap_until_ns, clock_now_ns() + ns);
    came = ppoll(p, n, &ts, NULL) > 0;
    atomic_store(&co->nap_until_ns, 0);
    return came;
}

/* Uses epoll_wait for long waits only, because its resolution is a millisecond. */
void calls_wait(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;
    struct epoll_event ev;
    struct pollfd p[3] = {{.fd = control_epoll_fd(co->control), .events = POLLIN}};
    size_t n_fds = calls_fds(co, true, p + 1);
    bool has_no_call_fd =
        atomic_load(&co->is_watching_calls) && atomic_load(&co->has_no_call_fd);
    uint64_t max_ns = has_no_call_fd ? NO_WAKEUP_NS : FOREVER_NS;
    struct timespec ts = clock_timespec(ns < max_ns ? ns : max_ns);

    if (n_fds == 0 && !has_no_call_fd && (ns == 0 || ns >= EXACT_NS)) {
        (void)epoll_wait(p[0].fd, &ev, 1, clock_left_ms(deadline_ns));
        return;
    }
    (void)ppoll(p, 1 + n_fds, &ts, NULL);
}

size_t calls_fds(struct coordinator *co, bool of_hosts, struct pollfd *ret)
{
    size_t n = 0;

    if (!atomic_load(&co->is_watching_calls))
        return 0;
    for (int i = 0; i < 1 + of_hosts; i++)
        if (atomic_load(&co->call_fds[i]) >= 0)
            ret[n++] =
                (struct pollfd){.fd = atomic_load(&co->call_fds[i]), .events = POLLIN};
    return n;
}

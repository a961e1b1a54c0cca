/* SPDX-License-Identifier: Apache-2.0 */
/* Listening: while a plan with process sets lasts, others' agreements need this rank
 * though it has nothing to offer, while its Python computes.
 *
 * Whoever sits in the seat asks the backend at each step whether it is called. Before
 * the seat is left, or its owner blocks, the backend is told so (away) and asked once
 * more: from then on a call makes the backend's ears readable, and the background
 * thread, whatever it does then, sleeps on these too, and takes the seat.
 *
 * Away with nothing to offer, it leaves its words for the others, who then do without
 * it, on one host: back again it may find itself in the last of their agreements.
 *
 * A rank that waits for others of a set is not in an agreement, but comes to whichever
 * begins; patience with the others counts from the last time that it got anything.
 *
 * Called by step.c and coordinator.c; in the seat only, but listen_fds and listen_nap.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>

#include "runtime/api/observe.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

enum agree_call listen_heard(struct coordinator *co)
{
    return co->listens ? co->backend->ops->agree_call_state(co->backend) : CALL_NONE;
}

static const uint64_t NAP_MAX_NS = 5 * NS_PER_MS, NAP_HOSTS_NS = 500000;
static const uint64_t DEAF_NS = 2 * NS_PER_MS, EXACT_NS = 50 * NS_PER_MS;
static const uint64_t FOREVER_NS = 3600 * NS_PER_S;

/* What is this rank to be woken for? */
static enum agree_call wants(const struct coordinator *co)
{
    return member_has_offer(co->member) ? CALL_BEGUN : CALL_CALLED;
}

bool listen_away(struct coordinator *co)
{
    const uint64_t *words = NULL;
    enum agree_call want;
    uint32_t n = 0;

    listen_back(co); /* it may be away already, and counted since */
    if (!co->listens || co->is_stuck || co->has_end)
        return false;
    want = wants(co);
    if (!member_stands(co->member, &words, &n))
        words = NULL;
    co->backend->ops->agree_tag(co->backend, member_plan_no(co->member));
    return co->backend->ops->agree_away(co->backend, want, words, n) >= want;
}

void listen_back(struct coordinator *co)
{
    if (!co->listens || !co->backend->ops->agree_back(co->backend))
        return;
    member_resume(co->member);
    co->agree_begin_ns = clock_now_ns();
}

static void begin(struct coordinator *co)
{
    struct err err = ERR_INIT;
    int fds[2] = {-1, -1};

    co->is_deaf = co->backend->ops->agree_ears(co->backend, fds, &err) < 0;
    if (co->is_deaf)
        log_warn("no descriptor to be woken by, looking every 2 ms instead",
                 "rank=%u error=\"%s\"", co->rank, err.text);
    atomic_store(&co->ears[0], fds[0]);
    atomic_store(&co->ears[1], fds[1]);
    atomic_store(&co->is_listening, true); /* seq_cst: after the descriptors */
}

bool listen_update(struct coordinator *co)
{
    bool listens = member_listens(co->member);

    if (listens == co->listens)
        return false;
    if (listens) {
        begin(co);
    } else {
        atomic_store(&co->is_listening, false);
        listen_back(co);
        co->waits_since_ns = 0;
    }
    co->listens = listens;
    return listens;
}

uint64_t listen_waits_since(struct coordinator *co)
{
    uint64_t n_planned;

    if (!co->listens || !member_has_offer(co->member))
        return co->waits_since_ns = 0;
    n_planned = member_counts(co->member).n_planned;
    if (co->waits_since_ns == 0 || co->waited_at != n_planned)
        co->waits_since_ns = clock_now_ns();
    co->waited_at = n_planned;
    return co->waits_since_ns;
}

bool listen_nap(struct coordinator *co, uint64_t ns, bool of_hosts)
{
    bool is_short = !of_hosts && atomic_load(&co->ears[1]) >= 0;
    uint64_t max_ns = is_short ? NAP_HOSTS_NS : NAP_MAX_NS;
    struct pollfd p[3] = {{.fd = control_epoll_fd(co->control), .events = POLLIN}};
    size_t n = 1 + listen_fds(co, of_hosts, p + 1);
    struct timespec ts = {.tv_nsec = (long)(ns < max_ns ? ns : max_ns)};
    bool came;

    atomic_store(&co->nap_until_ns, clock_now_ns() + ns);
    came = ppoll(p, n, &ts, NULL) > 0;
    atomic_store(&co->nap_until_ns, 0);
    return came;
}

/* A short wait is to end in time: epoll_wait knows milliseconds only. */
void listen_wait(struct coordinator *co, uint64_t deadline_ns)
{
    uint64_t now = clock_now_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;
    struct epoll_event ev;
    struct pollfd p[3] = {{.fd = control_epoll_fd(co->control), .events = POLLIN}};
    size_t n_ears = listen_fds(co, true, p + 1);
    bool is_deaf = atomic_load(&co->is_listening) && atomic_load(&co->is_deaf);
    uint64_t max_ns = is_deaf ? DEAF_NS : FOREVER_NS;
    struct timespec ts = clock_timespec(ns < max_ns ? ns : max_ns);

    if (n_ears == 0 && !is_deaf && (ns == 0 || ns >= EXACT_NS)) {
        (void)epoll_wait(p[0].fd, &ev, 1, clock_left_ms(deadline_ns));
        return;
    }
    (void)ppoll(p, 1 + n_ears, &ts, NULL);
}

size_t listen_fds(struct coordinator *co, bool of_hosts, struct pollfd *ret)
{
    size_t n = 0;

    if (!atomic_load(&co->is_listening))
        return 0;
    for (int i = 0; i < 1 + of_hosts; i++)
        if (atomic_load(&co->ears[i]) >= 0)
            ret[n++] =
                (struct pollfd){.fd = atomic_load(&co->ears[i]), .events = POLLIN};
    return n;
}

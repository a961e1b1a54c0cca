/* SPDX-License-Identifier: Apache-2.0 */
/* The loop. Each turn starts what is due (lists, watches, syncs, requests), computes
 * the earliest time at which anything else becomes due, and waits for it or for a
 * descriptor. Nothing polls: an idle operator wakes only for bookmarks and probes. */
#include "operator/loop.h"

#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "operator/ask.h"
#include "operator/elect.h"
#include "operator/page/page.h"
#include "operator/rival.h"
#include "operator/sinks.h"
#include "operator/sync.h"
#include "operator/webhook.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define DRAIN_NS   (5 * NS_PER_S)
#define RELEASE_NS (2 * NS_PER_S)

static uint64_t min_ns(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void start_due(struct controller *op, struct page *page, bool is_stopping)
{
    uint64_t now_ns = clock_now_ns();
    const char *key;

    if (op->elect)
        elect_tick(op->elect, now_ns);
    if (!is_stopping) {
        sinks_tick(op, now_ns);
        if (op->rival && controller_may_act(op))
            rival_tick(op->rival, now_ns);
        if (op->ask && controller_may_act(op))
            ask_tick(op->ask, now_ns);
        webhook_tick(op->webhook, now_ns);
        while (controller_may_act(op)
               && (key = queue_take(op->queue, now_ns, sync_room(op)))) {
            metrics_queue_wait(&op->metrics, queue_waited_ns(op->queue, key));
            sync_start(op, key);
        }
    }
    if (page)
        page_tick(page, now_ns);
    kube_tick(op->kube, now_ns);
}

static uint64_t next_due_ns(const struct controller *op,
                            const struct operator_server *serve,
                            const struct page *page,
                            bool is_stopping)
{
    uint64_t now_ns = clock_now_ns(), next = kube_next_ns(op->kube);

    next = min_ns(next, serve_next_ns(serve, now_ns));
    if (page)
        next = min_ns(next, page_next_ns(page, now_ns));
    if (op->elect)
        next = min_ns(next, elect_next_ns(op->elect));
    if (is_stopping)
        return next;
    next = min_ns(next, sinks_next_ns(op));
    next = min_ns(next, webhook_next_ns(op->webhook));
    if (op->rival && controller_may_act(op))
        next = min_ns(next, rival_next_ns(op->rival));
    if (op->ask && controller_may_act(op))
        next = min_ns(next, ask_next_ns(op->ask));
    if (controller_may_act(op))
        next = min_ns(next, queue_next_ns(op->queue, sync_room(op)));
    return next;
}

struct stop {
    uint64_t drain_ns;   /* deadline of the syncs in progress; 0: not stopping */
    uint64_t release_ns; /* then the deadline of releasing the Lease */
};

/* The Lease is released last: until then no other operator acts on jobs in progress. */
static bool has_stopped(struct controller *op, struct stop *stop)
{
    uint64_t now_ns = clock_now_ns();

    if (!stop->drain_ns || (op->n_syncs > 0 && now_ns < stop->drain_ns))
        return false;
    if (!op->elect)
        return true;
    if (!stop->release_ns) {
        stop->release_ns = now_ns + RELEASE_NS;
        kube_fence(op->kube);
        elect_release(op->elect);
        elect_tick(op->elect, now_ns);
    }
    return elect_is_released(op->elect) || now_ns >= stop->release_ns;
}

static uint64_t stop_next_ns(const struct stop *stop)
{
    if (!stop->drain_ns)
        return UINT64_MAX;
    return stop->release_ns ? stop->release_ns : stop->drain_ns;
}

int loop_run(struct controller *op,
             struct operator_server *serve,
             struct page *page,
             int signal_fd,
             struct err *err)
{
    struct stop stop = {0};
    struct signalfd_siginfo info;

    for (;;) {
        struct pollfd fds[3 + SERVE_MAX_FDS] = {{.fd = signal_fd, .events = POLLIN}};
        size_t n_fds = 1 + serve_fds(serve, fds + 1);
        bool is_stopping = stop.drain_ns != 0;
        int rc;

        if (op->ask)
            fds[n_fds++] = (struct pollfd){.fd = ask_fd(op->ask), .events = POLLIN};
        if (page)
            fds[n_fds++] = (struct pollfd){.fd = page_fd(page), .events = POLLIN};
        start_due(op, page, is_stopping);
        if (has_stopped(op, &stop))
            return 0;
        rc = http_run(
            kube_http(op->kube),
            min_ns(next_due_ns(op, serve, page, is_stopping), stop_next_ns(&stop)), fds,
            n_fds, err);
        if (rc < 0)
            return rc;
        serve_run(serve);
        if (op->ask)
            ask_run(op->ask, clock_now_ns());
        if (page)
            page_run(page, clock_now_ns());
        if (fds[0].revents && read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
            log_info("stopping", "signal=%u syncs_at_work=%zu", info.ssi_signo,
                     op->n_syncs);
            if (!is_stopping)
                stop.drain_ns = clock_now_ns() + DRAIN_NS;
        }
    }
}

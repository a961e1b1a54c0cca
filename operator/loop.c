/* SPDX-License-Identifier: Apache-2.0 */
/* The loop. Each turn starts what is due (lists, watches, syncs, requests), computes
 * the earliest moment at which anything else could become due, and waits for it or for
 * a descriptor. Nothing polls: an idle operator wakes for bookmarks and probes only. */
#include "operator/loop.h"

#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "operator/sync.h"
#include "operator/watch.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

#define DRAIN_NS (5 * NS_PER_S)

static uint64_t min_ns(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void start_due(struct controller *op, bool is_stopping)
{
    uint64_t now_ns = clock_now_ns();
    const char *key;

    if (!is_stopping) {
        watcher_tick(op->jobs, now_ns);
        watcher_tick(op->pods, now_ns);
        while (controller_is_synced(op) && op->n_syncs < SYNC_MAX_AT_ONCE
               && (key = queue_take(op->queue, now_ns)))
            sync_start(op, key);
    }
    kube_tick(op->kube, now_ns);
}

static uint64_t
next_due_ns(const struct controller *op, const struct serve *serve, bool is_stopping)
{
    uint64_t next = kube_next_ns(op->kube);

    next = min_ns(next, serve_next_ns(serve, clock_now_ns()));
    if (is_stopping)
        return next;
    next = min_ns(next, watcher_next_ns(op->jobs));
    next = min_ns(next, watcher_next_ns(op->pods));
    if (controller_is_synced(op) && op->n_syncs < SYNC_MAX_AT_ONCE)
        next = min_ns(next, queue_next_ns(op->queue));
    return next;
}

int loop_run(struct controller *op, struct serve *serve, int signal_fd, struct err *err)
{
    uint64_t drain_ns = 0; /* when stopping: no later than this */
    struct signalfd_siginfo info;

    for (;;) {
        struct pollfd fds[2] = {{.fd = signal_fd, .events = POLLIN},
                                {.fd = serve_fd(serve), .events = POLLIN}};
        bool is_stopping = drain_ns != 0;
        uint64_t deadline_ns;
        int rc;

        start_due(op, is_stopping);
        if (is_stopping && (op->n_syncs == 0 || clock_now_ns() >= drain_ns))
            return 0;
        deadline_ns = next_due_ns(op, serve, is_stopping);
        if (is_stopping)
            deadline_ns = min_ns(deadline_ns, drain_ns);
        rc = http_run(kube_http(op->kube), deadline_ns, fds, 2, err);
        if (rc < 0)
            return rc;
        serve_run(serve);
        if (fds[0].revents && read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
            log_info("stopping", "signal=%u syncs_at_work=%zu", info.ssi_signo,
                     op->n_syncs);
            drain_ns = clock_now_ns() + DRAIN_NS;
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the discovery script of an elastic job again and again, without waiting for it.
 * One thread, which alone reaps the script. */
#ifndef RUNTIME_LAUNCH_DISCOVERY_WATCH_H
#define RUNTIME_LAUNCH_DISCOVERY_WATCH_H

#include <poll.h>
#include <stdbool.h>

#include "runtime/base/strbuf.h"
#include "runtime/contract/hostlist.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/signals.h"
#include "runtime/launch/spawn.h"

struct discovery_watch_config { /* borrowed */
    const char *command;        /* NULL: the host list never changes */
    uint32_t slots;             /* of hosts for which it prints none */
    char *const *env;
    const struct signals *signals;
    struct guard *guard;
    uint64_t timeout_ns; /* of one run */
};
struct discovery_watch {
    struct discovery_watch_config c;
    struct child child; /* pid 0: it does not run */
    struct strbuf out;
    uint64_t due_ns; /* of the next run, or the end of this one's time */
};

void discovery_watch_begin(struct discovery_watch *w,
                           const struct discovery_watch_config *c,
                           uint64_t now_ns);
void discovery_watch_end(struct discovery_watch *w); /* kills a script that runs */
#define DISCOVERY_WATCH_FDS 2
void discovery_watch_fds(const struct discovery_watch *w, struct pollfd *fds);
uint64_t discovery_watch_next_ns(const struct discovery_watch *w);
/* After poll, also after SIGCHLD. 1: *ret is a host list, which the caller releases; 0:
 * nothing new; -EINVAL with err: this run has failed. */
int discovery_watch_serve(struct discovery_watch *w,
                          uint64_t now_ns,
                          struct hostlist *ret,
                          struct err *err);

#endif

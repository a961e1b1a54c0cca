/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of one host do, for the leader of the job: a record of each rank every
 * LIVE_EVERY_S seconds, from its page (contract/stats_page.h) and from /proc; every second
 * until all of them have a page, so that the start of the training is seen when it
 * happens. Nothing here can fail the job. One thread. */
#ifndef RUNTIME_LAUNCH_LIVE_HOST_H
#define RUNTIME_LAUNCH_LIVE_HOST_H

#include "runtime/launch/local_ranks.h"
#include "runtime/live/live_worker.h"

struct live_host {
    const char *dir;              /* HVD_STATS_DIR of the ranks; borrowed */
    const struct contract *ranks; /* of this host; borrowed */
    uint32_t n;
    uint64_t next_ns; /* when the records are due; 0: at once */
};

/* The ranks were started. */
void live_host_begin(struct live_host *h,
                     const char *dir,
                     const struct contract *ranks,
                     uint32_t n);
/* Sends the packed record of each rank when they are due. *ret_next_ns is lowered to the
 * time of the next call. */
void live_host_tick(struct live_host *h,
                    const struct local_ranks *local,
                    void (*send)(void *arg, const struct strbuf *record),
                    void *arg,
                    uint64_t *ret_next_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a job as horovodrun sees them: their ranks, which are ready, have failed or
 * are lost, and what follows from that (core/meet.h). One thread. */
#ifndef RUNTIME_LAUNCH_REMOTE_HOSTS_H
#define RUNTIME_LAUNCH_REMOTE_HOSTS_H

#include "runtime/contract/failure.h"
#include "runtime/contract/hostlist.h"
#include "runtime/launch/core/errand.h"
#include "runtime/launch/core/meet.h"

struct remote_host {
    uint32_t first_rank, n_ranks;
    bool is_ready, has_failed; /* has_failed: before START */
    struct errand_ready ready;
    char launcher[HOST_NAME_MAX_BYTES]; /* horovodrun's address, as seen by this host */
};
struct remote_hosts {
    const struct hostlist *list;
    uint32_t local; /* index of our own host; list->n: none */
    struct remote_host *v;
    struct meet meet;
    uint32_t n_failed;
    uint64_t others_ns; /* until then further failed hosts are named with the first */
    bool
        are_interrupted; /* a stop signal was forwarded: failures are its consequence */
};

/* Borrows list. Release h in every case. */
int remote_hosts_init(struct remote_hosts *h,
                      const struct hostlist *list,
                      uint32_t np,
                      uint32_t local,
                      struct err *err);
void remote_hosts_release(struct remote_hosts *h);        /* accepts a zeroed struct */
bool remote_hosts_are_over(const struct remote_hosts *h); /* stopped or finished */
void remote_hosts_set_ready(struct remote_hosts *h,
                            uint32_t host,
                            const struct errand_ready *ready);
/* A failure that no rank caused. name: of a host. */
void remote_hosts_fail(struct remote_hosts *h,
                       const char *name,
                       int code,
                       const char *why);
/* A failure that a host's agent reports. Completes report. */
void remote_hosts_report(struct remote_hosts *h, uint32_t host, struct report *report);
/* The connection to hosts first .. end-1 ended. */
void remote_hosts_lose(struct remote_hosts *h,
                       uint32_t first,
                       uint32_t end,
                       const char *why);
/* The number of hosts that are not ready, and the first of them. */
uint32_t remote_hosts_missing(const struct remote_hosts *h, uint32_t *ret_first);
/* Appends the names of other failed hosts to a failure before the start. */
void remote_hosts_name_others(const struct remote_hosts *h, struct failure *f);

#endif

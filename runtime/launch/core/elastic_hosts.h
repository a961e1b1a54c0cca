/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of an elastic job: which worker number a host has, how many slots it offers,
 * and when a lost one is tried again. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_HOSTS_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/hostlist.h"

struct elastic_host {
    char name[HOST_NAME_MAX_BYTES]; /* "": the number was never used */
    uint32_t slots;                 /* that the host list has; 0: it is not listed */
    bool is_connected;              /* its agent is connected, or is being started */
    bool is_ready;                  /* its agent can start processes */
    bool is_leaving;                /* its agent will end soon */
    bool has_changed;               /* slots, since the caller has cleared it */
    uint32_t n_losses;              /* in a row, without having been ready */
    uint64_t retry_ns;              /* not connected: not before then */
};
struct elastic_hosts {
    struct elastic_host *v; /* [n] */
    uint32_t n, slots;      /* of each host, at most */
};

int elastic_hosts_init(struct elastic_hosts *h,
                       uint32_t n,
                       uint32_t slots,
                       struct err *err);
void elastic_hosts_release(struct elastic_hosts *h); /* accepts a zeroed struct */
/* The host list is now this one. A host keeps its number; a new one takes that of a host
 * that is neither listed nor connected. Returns how many hosts have no number left. */
uint32_t elastic_hosts_apply(struct elastic_hosts *h, const struct hostlist *list);
/* The connection to its agent has ended, or was not possible. */
void elastic_hosts_lose(struct elastic_hosts *h, uint32_t host, uint64_t now_ns);
void elastic_hosts_set_ready(struct elastic_hosts *h, uint32_t host);
/* A listed host to connect to now, which is then connected; false: none. */
bool elastic_hosts_next(struct elastic_hosts *h, uint64_t now_ns, uint32_t *ret);
uint64_t elastic_hosts_next_ns(const struct elastic_hosts *h); /* UINT64_MAX: never */
/* There is a listed host, and all of them are ready. */
bool elastic_hosts_are_ready(const struct elastic_hosts *h);
/* Hosts that are listed, that are ready, and listed ones that are not ready. */
uint32_t elastic_hosts_listed(const struct elastic_hosts *h);
uint32_t elastic_hosts_ready(const struct elastic_hosts *h);
uint32_t elastic_hosts_missing(const struct elastic_hosts *h);

#endif

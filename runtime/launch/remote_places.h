/* SPDX-License-Identifier: Apache-2.0 */
/* What horovodrun knows of each host of a job: its ranks, and by which addresses it and
 * we reach each other. */
#ifndef RUNTIME_LAUNCH_REMOTE_PLACES_H
#define RUNTIME_LAUNCH_REMOTE_PLACES_H

#include "runtime/contract/failure.h"
#include "runtime/launch/core/errand.h"
#include "runtime/launch/output.h"

struct remote_host {
    uint32_t first_rank, n_ranks;
    bool is_ready, has_failed; /* has_failed: before the start */
    struct errand_ready ready;
    uint32_t owed_bytes; /* of output, for which it has no credit yet */
    /* as this host reaches them: us, and the host of rank 0 */
    char launcher[HOST_NAME_MAX_BYTES], master[HOST_NAME_MAX_BYTES];
};

int remote_hosts_new(const struct hostlist *hosts,
                     uint32_t np,
                     struct remote_host **ret,
                     struct err *err);
/* Its ranks write no more: lines without an end are printed. */
void remote_host_output_ended(struct remote_host *h, struct output *o);
/* Adds to a failure before the start which other hosts have failed. */
void remote_name_others(const struct hostlist *hosts,
                        const struct remote_host *all,
                        struct failure *f);
/* A NOTE of a host: each of its lines on standard error, with the host's name. */
void remote_print_note(const char *program,
                       const char *host,
                       const uint8_t *p,
                       size_t n);
/* Fills launcher and master of all, which are ready. local: our own host, hosts->n:
 * none. iface: ours to be used, NULL: the one that is the route to each host. */
int remote_addresses(const struct hostlist *hosts,
                     uint32_t local,
                     const char *iface,
                     struct remote_host *all,
                     struct err *err);

#endif

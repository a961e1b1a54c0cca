/* SPDX-License-Identifier: Apache-2.0 */
/* Horovodrun's data about each host of a job: its ranks, and the addresses by which it
 * and horovodrun reach each other. */
#ifndef RUNTIME_LAUNCH_REMOTE_PLACES_H
#define RUNTIME_LAUNCH_REMOTE_PLACES_H

#include "runtime/contract/failure.h"
#include "runtime/launch/core/errand.h"
#include "runtime/launch/output.h"

struct remote_host {
    uint32_t first_rank, n_ranks;
    bool is_ready, has_failed; /* has_failed: before START */
    struct errand_ready ready;
    uint32_t owed_bytes; /* of output whose credit was not given back */
    /* addresses of horovodrun and of rank 0's host, as seen by this host */
    char launcher[HOST_NAME_MAX_BYTES], master[HOST_NAME_MAX_BYTES];
};

int remote_hosts_new(const struct hostlist *hosts,
                     uint32_t np,
                     struct remote_host **ret,
                     struct err *err);
/* The output of its ranks has ended: prints lines without a newline. */
void remote_host_output_ended(struct remote_host *h, struct output *o);
/* Appends the names of other failed hosts to a failure before the start. */
void remote_name_others(const struct hostlist *hosts,
                        const struct remote_host *all,
                        struct failure *f);
/* Prints each line of a NOTE on standard error, with the host's name. */
void remote_print_note(const char *program,
                       const char *host,
                       const uint8_t *p,
                       size_t n);
/* Fills launcher and master of all hosts, which must be ready. local: index of our own
 * host, hosts->n: none. iface: our interface; NULL: that of the route to each host. */
int remote_addresses(const struct hostlist *hosts,
                     uint32_t local,
                     const char *iface,
                     struct remote_host *all,
                     struct err *err);

#endif

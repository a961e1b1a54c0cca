/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a job and the places of its ranks: from -H, a hostfile, a discovery
 * script, or localhost alone. */
#ifndef RUNTIME_LAUNCH_HOSTS_H
#define RUNTIME_LAUNCH_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/hostlist.h"
#include "runtime/contract/places.h"
#include "runtime/launch/core/options.h"

#define HOST_MAX_RANKS 4096 /* processes of one host */

struct run_host {
    const char *name; /* as in the list, without brackets around IPv6 */
    uint32_t first_rank, n_ranks;
    bool is_local; /* any name of this host */
};
struct run_hosts { /* release with run_hosts_release */
    struct hostlist list;
    uint32_t np;
    struct place *places; /* np places, by rank; .host is an index of v */
    struct run_host *v;   /* all hosts of the list; the last ones may have no rank */
    size_t n;             /* number of hosts with ranks, which are the first ones */
};

/* Runs the discovery script of --host-discovery-script, once; see discovery.h. */
typedef int (*run_hosts_discover_fn)(void *arg,
                                     const char *command,
                                     struct hostlist *ret,
                                     struct err *err);

/* Only the list of hosts; -np alone: localhost with that many slots. -EINVAL with err. */
int run_hosts_read_list(const struct launch_options *o,
                        run_hosts_discover_fn discover,
                        void *arg,
                        struct hostlist *ret,
                        struct err *err);
/* -EINVAL with err for every mistake of the user. Release ret in every case. */
int run_hosts_read(const struct launch_options *o,
                   run_hosts_discover_fn discover,
                   void *arg,
                   struct run_hosts *ret,
                   struct err *err);
void run_hosts_release(struct run_hosts *h); /* accepts a zeroed struct */
/* Reads at least one host. -errno with err, which starts with path. */
int hostfile_read(const char *path, struct hostlist *ret, struct err *err);
bool run_hosts_all_local(const struct run_hosts *h);
bool run_hosts_any_local(const struct run_hosts *h);
/* localhost, this host's name with or without its domain, or an address of one of its
 * interfaces. */
bool host_is_local(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs, threads, GPU and NIC of the ranks of this host. */
#ifndef RUNTIME_LAUNCH_PLACEMENT_H
#define RUNTIME_LAUNCH_PLACEMENT_H

#include "runtime/contract/contract.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/topology.h"

struct placement {
    struct topology topology;
    struct binding_plan plan;
    enum binding how;
    char threads[16]; /* OMP_NUM_THREADS unless the user sets it; "": do not set */
};

/* For n ranks of this host. how: text of --binding, NULL: none. */
int placement_make(const char *how, uint32_t n, struct placement *ret, struct err *err);
void placement_release(struct placement *p); /* accepts a zeroed struct */
/* The CPUs to which the i-th rank is bound; NULL: not bound. */
const struct cpuset *placement_set(const struct placement *p, uint32_t i);
/* Appends the table of --verbose: rank, host, cores, GPU, NIC. nics: value of
 * --network-interfaces; NULL: the nearest NIC. */
void placement_table(const struct placement *p,
                     const struct contract *ranks,
                     uint32_t n,
                     const char *nics,
                     struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of this host run: CPUs, threads, GPU, NIC. */
#ifndef RUNTIME_LAUNCH_PLACEMENT_H
#define RUNTIME_LAUNCH_PLACEMENT_H

#include "runtime/contract/contract.h"
#include "runtime/launch/core/options.h"
#include "runtime/launch/core/topology.h"

struct placement {
    struct topology topology;
    struct binding_plan plan;
    enum binding how;
    char threads[16]; /* OMP_NUM_THREADS where the user sets none; "": left alone */
};

/* For n ranks of this host. how: text of --binding, NULL: none. */
int placement_make(const char *how, uint32_t n, struct placement *ret, struct err *err);
void placement_release(struct placement *p); /* accepts a zeroed struct */
/* The CPUs to bind the i-th rank to; NULL: none. */
const struct cpuset *placement_set(const struct placement *p, uint32_t i);
/* The table of --verbose: rank, host, cores, GPU, NIC; nics: of --network-interfaces,
 * NULL: the nearest. */
void placement_table(const struct placement *p,
                     const struct contract *ranks,
                     uint32_t n,
                     const char *nics,
                     struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the nodes of a step can connect to each other, at the addresses that their
 * ranks will use. The first task of each node listens there, all tasks exchange these
 * addresses at the gate, and each first task connects to at most PROBE_MAX_PEERS nodes. */
#ifndef SPANK_PLUGIN_PROBE_H
#define SPANK_PLUGIN_PROBE_H

#include "runtime/contract/contract.h"

#define PROBE_MAX_PEERS 3
#define PROBE_HELLO_MAX (HOST_NAME_MAX_BYTES + 96)

/* Start with PROBE_INIT. */
struct probe {
    uint32_t node, n_nodes;
    char name[HOST_NAME_MAX_BYTES], address[64];
    int listen_fd; /* -1: nothing is tested here */
};
#define PROBE_INIT                                                                     \
    {                                                                                  \
        .listen_fd = -1                                                                \
    }
/* local: this host's address on the route to srun, unless c names an interface. hello:
 * what the tasks of other nodes must know; "" for all but the first task of a node, in a
 * step of one node, and where nothing can listen. */
void probe_open(struct probe *r,
                const struct contract *c,
                const char *local,
                char hello[PROBE_HELLO_MAX]);
/* The hellos of all tasks, not terminated. -EHOSTUNREACH: two nodes cannot connect, in
 * words that are the same on both. At most 5 s. */
int probe_check(const struct probe *r,
                uint8_t *const *hellos,
                const uint32_t *sizes,
                uint32_t n,
                struct err *err);
/* Accepts any state. The other nodes have finished when all tasks have met again. */
void probe_close(struct probe *r);

/* The nodes that a node connects to: the next, the one before, and that above it in a
 * tree, so that all nodes are connected and each is asked by few. Returns how many. Pure. */
uint32_t probe_peers(uint32_t node, uint32_t n_nodes, uint32_t ret[PROBE_MAX_PEERS]);

#endif

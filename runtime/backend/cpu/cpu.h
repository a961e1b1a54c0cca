/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu backend's object; only for the files of this folder. */
#ifndef RUNTIME_BACKEND_CPU_CPU_H
#define RUNTIME_BACKEND_CPU_CPU_H

#include <stdatomic.h>

#include "runtime/backend/backend.h"
#include "runtime/backend/cpu/agree.h"
#include "runtime/backend/cpu/net.h"
#include "runtime/backend/cpu/peers.h"
#include "runtime/backend/cpu/shm.h"
#include "runtime/backend/cpu/shm_join.h"

struct cpu {
    struct backend b; /* first */
    struct backend_env env;
    struct waiter w;
    atomic_bool is_aborted; /* any thread; all else belongs to the driving thread */
    uint64_t n_posted;
    bool is_wide;      /* which kernels */
    struct err broken; /* code != 0: every further post fails with it */

    int unix_fd, tcp_fd; /* listening; only until connected */
    struct peer *peers;  /* [size] */

    /* Who shares memory with whom: hosts are numbered by their leader's (lowest) rank.
     */
    uint32_t n_hosts, host, n_local, local;
    uint32_t *host_of, *local_of; /* [size] host of a rank, its index there */
    uint32_t *order;              /* [size] ranks, host by host */
    uint32_t *host_start;         /* [n_hosts + 1] where a host begins in order */
    struct shm_map map;
    struct shm shm; /* n_local > 1 */
    struct net net; /* leaders, n_hosts > 1 */
    struct agree agree;

    struct piece *pieces; /* of the batch at hand */
    size_t cap_pieces;
    struct vec *vecs; /* [size] */
};

/* cpu.c: is rank, of this host, alive, and are we not aborted? Else its sentence. */
int cpu_check_member(struct cpu *c, uint32_t rank, struct err *err);
/* cpu.c: the object is broken for why; passes it on: to this host's ranks if it is a
 * lost rank, and to err. Returns rc. */
int cpu_break(struct cpu *c, int rc, const struct err *why, struct err *err);

/* group.c: who shares memory with whom; makes the segment and the mesh. */
int group_connect(struct cpu *c, struct err *err);

/* coll.c: runs one batch to its end. */
int coll_run(struct cpu *c, const struct batch *batch, struct err *err);

#endif

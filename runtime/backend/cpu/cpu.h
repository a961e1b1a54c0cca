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
#include "runtime/backend/cpu/transfer.h"

struct cpu {
    struct backend b; /* first */
    struct backend_env env;
    struct waiter w;
    atomic_bool is_aborted; /* any thread; all else belongs to the driving thread */
    uint64_t n_posted;
    uint32_t n_batches; /* begun, those of new process sets included; may wrap */
    bool is_wide;       /* which kernels */
    struct err broken;  /* code != 0: every further post fails with it */
    /* Of a process set's communicator: its parent, and the array behind env.global. Of
     * the world's: both NULL. */
    struct cpu *parent;
    uint32_t *own_global;

    int unix_fd, tcp_fd; /* listening; only until connected */
    struct peer *peers;  /* [size] */

    /* Which ranks share memory, by rank in this communicator (member): hosts are
     * numbered in the order of their leaders, the lowest ranks. */
    uint32_t n_hosts, host, n_local, local;
    uint32_t *host_of, *local_of; /* [size] host of a rank, its index there */
    uint32_t *order;              /* [size] ranks, host by host */
    uint32_t *host_start;         /* [n_hosts + 1] where a host begins in order */
    struct shm_map map;
    struct shm shm; /* n_local > 1 */
    struct net net; /* leaders, n_hosts > 1 */
    struct agree agree;
    struct cpu_transfer transfer;
    struct tuning tuning; /* the last settings passed to tune; zeroed */

    struct piece *pieces; /* of the current batch */
    size_t cap_pieces;
    struct vec *vecs; /* [2 * size]: outgoing, then incoming */
};

/* The global rank of a member, which transports and messages use. */
static inline uint32_t cpu_global(const struct cpu *c, uint32_t member)
{
    return !c->env.global ? member : c->env.global[member];
}

/* cpu_check.c: 0 while this communicator is not aborted and the rank, if it is on this
 * host, is alive; else the error. */
int cpu_check_member(struct cpu *c, uint32_t rank, struct err *err);
/* A waiter's check(): the same, and the caller does not interrupt. */
int cpu_check_waiting(void *arg, uint32_t rank, struct err *err);
/* Likewise, while a communicator is being connected. */
int cpu_check_connecting(void *arg, uint32_t rank, struct err *err);
/* Marks the object broken with err, which is also returned; reports a lost rank to this
 * host's ranks. Returns rc. */
int cpu_break(struct cpu *c, int rc, const struct err *why, struct err *err);

/* subset.c: the row of the ops table. */
int cpu_subset(struct backend *b,
               const uint32_t *ranks,
               uint32_t n,
               uint64_t deadline_ns,
               struct backend **ret,
               struct err *err);

/* group.c: finds which ranks share memory; creates the segment and the mesh. */
int group_connect(struct cpu *c, struct err *err);

/* coll.c: runs one batch to its end, as post without a ticket. */
int coll_run(struct cpu *c, const struct batch *batch, struct err *err);

#endif

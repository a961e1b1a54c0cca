/* SPDX-License-Identifier: Apache-2.0 */
/* TCP between the hosts' leaders: a mesh, full-duplex transfers, and the collectives on
 * them.
 *
 * Up to NET_FULL_MAX members the mesh is full from the start. More members connect to
 * their neighbours first: those at a distance of a power of two, in either direction
 * around the ring of members. A barrier, an agreement, a broadcast, an allgather and a
 * small sum need no other ones. The first collective in which all members send to all
 * completes the mesh. */
#ifndef RUNTIME_BACKEND_CPU_NET_H
#define RUNTIME_BACKEND_CPU_NET_H

#include <stdbool.h>

#include "runtime/backend/cpu/net_block.h"
#include "runtime/backend/cpu/peers.h"
#include "runtime/backend/cpu/shm.h"
#include "runtime/backend/cpu/vec.h"
#include "runtime/backend/cpu/wait.h"
#include "runtime/wire/auth.h"

#define NET_SMALL_BYTES   32768 /* up to here: fewest messages; above: fewest bytes */
#define NET_PAIR_BYTES    (128u << 10) /* the same, where there are only two */
#define NET_ROUND_BYTES   (256u << 10) /* of all members together: many, small */
#define NET_SCRATCH_BYTES (4u << 20)   /* what is received and not yet reduced */
#define NET_CHUNK_MAX     (256u << 10) /* largest part of it; 3 a member */
#define NET_CHUNK_MIN     4096
#define NET_LEAD_BYTES    256
#define NET_FULL_MAX      16  /* members that are all connected from the start */
#define NET_ALIGN         64u /* all that is sent is a multiple of it */

struct net_flow {      /* one direction of a connection */
    struct cursor at;  /* receiving: to the out side */
    uint64_t left;     /* bytes to move now */
    uint64_t done;     /* bytes of complete blocks: receiving: they were right */
    uint32_t in_block; /* of left: those of the current block; 0: none has begun */
    uint32_t head;     /* bytes of its header before them */
    uint32_t lead;     /* bytes without meaning before it, see net_lead() */
    uint32_t tail;     /* and after the data, up to a multiple of NET_ALIGN */
    bool is_out;       /* sending: from the out side, else from the in side */
};
static inline bool net_flow_is_empty(const struct net_flow *f)
{
    return f->left == 0 && f->tail == 0;
}
struct net_peer {
    int fd; /* -1: ourselves */
    uint32_t rank;
    char host[PEER_HOST_BYTES];
    struct net_flow send, recv;  /* both empty between operations */
    struct block_stream out, in; /* their blocks */
};
struct net_lane; /* net_reduce.c: the state of a reduction per member */
struct net_rest; /* net_join.c: what is needed to complete the mesh */
struct pollfd;
struct net {
    uint32_t n, me;
    struct net_peer *peers; /* [n] */
    const struct waiter *w;
    struct block_subject subject; /* of all blocks until the next batch */
    uint8_t lead_out[NET_LEAD_BYTES], lead_in[NET_LEAD_BYTES];
    void *memory; /* contains scratch, aligned to NET_ALIGN */
    uint8_t *scratch;
    size_t n_scratch; /* bytes */
    /* The last values passed to net_set_tuning; 0: NET_PAIR_BYTES or NET_SMALL_BYTES,
     * and NET_CHUNK_MAX. */
    uint64_t whole_bytes, chunk_bytes;
    const void **src;       /* [n] for the kernels */
    struct net_lane *lanes; /* [n] */
    struct pollfd *polls;   /* [n] */
    int64_t lost;           /* global rank whose connection broke, -1: none */
    struct net_rest *rest;  /* NULL: the mesh is full */
};

struct tuning;
/* Equal on all members, between two collectives. */
void net_set_tuning(struct net *net, const struct tuning *t);

/* Connects the mesh, or of a large one the neighbours: each member connects to those
 * before it and accepts those after it; every connection is authenticated as ROLE_DATA.
 * peers[n] gives addresses. *listen_fd remains the caller's, or becomes -1: then the mesh
 * keeps it until it is full. */
struct net_join {
    const struct auth_id *id;
    const struct waiter *w;
    enum data_check check;
    uint64_t deadline_ns;
    bool is_rest;             /* all that are missing, not the neighbours only */
    uint64_t peer_timeout_ns; /* for the kernel: unanswered data means a lost peer */
    uint32_t n, me;
    const uint32_t *ranks;      /* [n] ascending */
    const struct peer *by_rank; /* indexed by global rank */
};
int net_connect(struct net *net,
                const struct net_join *j,
                int *listen_fd,
                struct err *err);
/* All members call it together, before each collective in which members that are no
 * neighbours send to each other. Connects what is missing. */
int net_complete(struct net *net, struct err *err);
void net_close(struct net *net); /* accepts a struct whose peers are NULL */

/* Moves bytes in all flows of all members at once until all are empty. After every
 * round in which something moved (and once before the first), advance(arg), unless it
 * is NULL, may refill flows. */
int net_run(struct net *net, void (*advance)(void *arg), void *arg, struct err *err);
/* One round of it, without waiting. 1; 0: all flows were empty. Afterwards polls[i] is
 * what member i's flows wait for. */
int net_run_once(struct net *net, bool *ret_moved, struct err *err);
/* Both ends use the same n. */
void net_send(struct net *net, uint32_t to, const struct cursor *c, uint64_t n);
void net_recv(struct net *net, uint32_t from, const struct cursor *c, uint64_t n);
/* All of v as one flow: its in to a member, its out from one. */
void net_queue_send(struct net *net, uint32_t to, const struct vec *v);
void net_queue_receive(struct net *net, uint32_t from, const struct vec *v);
/* Before an operation that sends n_send bytes to a member and receives n_recv from it,
 * when both ends do so: large data is preceded by NET_LEAD_BYTES of padding. */
void net_lead(struct net *net, uint32_t member, uint64_t n_send, uint64_t n_recv);
uint32_t net_lead_bytes(uint64_t n); /* padding before n bytes; for one flow's lead */
/* One of each: n_send bytes to member `to` while n_recv come from member `from`; either
 * may be 0. */
int net_xfer(struct net *net,
             uint32_t to,
             struct cursor *send,
             uint64_t n_send,
             uint32_t from,
             struct cursor *recv,
             uint64_t n_recv,
             struct err *err);
void net_tune(int fd, uint64_t peer_timeout_ns); /* net_tune.c */
struct net_lane *net_lanes_new(uint32_t n);      /* NULL: no memory; mem_free */
/* The error of what came from a member; why: the end of the sentence. */
int net_data_wrong(const struct net *net,
                   uint32_t from,
                   const struct err *why,
                   struct err *err);
/* Without waiting: the number of bytes, of n, that the socket accepted or returned; 0
 * when none. The caller makes and checks blocks. */
int64_t
net_send_now(struct net *net, uint32_t to, const void *p, size_t n, struct err *err);
int64_t
net_recv_now(struct net *net, uint32_t from, void *p, size_t n, struct err *err);
/* Collectives among all n members, as those of shm.h. Only prescale may differ
 * between members: each scales its own values (values from shared memory are scaled
 * already). */
int net_allreduce(struct net *net,
                  const struct vec *v,
                  const struct reduction *r,
                  struct err *err);
int net_broadcast(struct net *net, const struct vec *v, uint32_t root, struct err *err);
/* v[j]: member j's block. Reads v[me].in; writes v[j].out of the other members. */
int net_allgather(struct net *net, const struct vec *v, struct err *err);
int net_barrier(struct net *net, struct err *err);
/* Every member's v goes to root only; v[j] as in allgather: elsewhere than on root only
 * in of v[me] is used. On root v[me] is in place already (in == out) or copied. */
int net_gather(struct net *net, const struct vec *v, uint32_t root, struct err *err);
/* As allreduce, but out is written on root only; elsewhere out may be NULL and in is
 * unchanged. */
int net_reduce(struct net *net,
               const struct vec *v,
               uint32_t root,
               const struct reduction *r,
               struct err *err);
/* parts[j], j in 0..n: in is what we add to member j's part; parts[me]: out (not NULL,
 * it may equal in) receives the sum over all members, in member order. */
int net_reduce_scatter(struct net *net,
                       const struct vec *parts,
                       const struct reduction *r,
                       struct err *err);
/* send[j]: in goes to member j; recv[j]: out comes from member j; the bytes of recv[j]
 * here equal those of send[me] there. send[me] is copied to recv[me]. */
int net_alltoallv(struct net *net,
                  const struct vec *send,
                  const struct vec *recv,
                  struct err *err);

#endif

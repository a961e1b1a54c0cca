/* SPDX-License-Identifier: Apache-2.0 */
/* The ops table of a backend: the one row that varies between shared memory + TCP on
 * CPUs, NCCL on GPUs, and the fakes of the tests.
 *
 * Life:   describe() on every rank -> the caller all-gathers the blobs through the
 * rendezvous -> connect() with everyone's blobs, which may ask for more rounds through
 * env->exchange
 *         -> post()/poll() in the same order with equal batches on every rank ->
 * close(). Thread: one thread at a time drives a backend (the coordinator's step holds
 * its lock); only abort() may come from another thread at any time. Order:  batches are
 * identical on all ranks up to pointers; posting them in the same order on every rank
 * is the coordinator's promise, so a backend never negotiates. */
#ifndef RUNTIME_BACKEND_BACKEND_H
#define RUNTIME_BACKEND_BACKEND_H

#include "runtime/base/err.h"
#include "runtime/core/types.h"
#include "runtime/rendezvous/auth.h"

/* One tensor of a batch. Allreduce: in -> out (may be equal), count elements.
 * Broadcast: root's in
 * -> everyone's out. Allgather: in holds counts[my rank] elements, out all of them in
 * rank order; counts has one entry per rank. Barrier: nothing. */
struct batch_item {
    const void *in;
    void *out;
    uint64_t count;
    const uint64_t *counts; /* allgather only; valid until the ticket is done */
};

struct batch { /* one collective over one or more tensors of equal dtype and parameters
                */
    enum collective coll;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t root;
    double prescale,
        postscale; /* applied by the backend; AVERAGE divides by the number of ranks */
    struct batch_item *items;
    size_t n_items; /* > 1: fused; the backend packs and unpacks as it likes */
};

/* What the surroundings give a backend. All pointers outlive it. */
struct backend_env {
    uint32_t rank, size;
    struct auth_id id;        /* for every connection it opens */
    const char *local_addr;   /* address of our interface towards the others */
    uint64_t deadline_ns;     /* for describe and connect; absolute */
    uint64_t peer_timeout_ns; /* silence of a peer inside an operation before it counts
                                 as lost */
    /* One more all-gather round during connect(); as rdv_client_exchange. */
    int (*exchange)(void *arg,
                    const void *blob,
                    uint32_t n,
                    uint8_t ***ret_blobs,
                    uint32_t **ret_sizes,
                    struct err *err);
    /* Called from every wait inside post/poll at least each 10 ms: 0 to go on, or an
     * error with its sentence (the control channel heard that a rank is lost, the user
     * shuts down): the backend stops waiting and returns it. */
    int (*interrupted)(void *arg, struct err *err);
    void *arg;
};

struct backend; /* each implementation embeds it first */

struct backend_ops {
    const char *name; /* "cpu", "nccl", "fake" */
    /* Makes the object and says how to reach it. Free *ret_blob with mem_free. */
    int (*describe)(const struct backend_env *env,
                    struct backend **ret,
                    void **ret_blob,
                    uint32_t *ret_n,
                    struct err *err);
    int (*connect)(struct backend *b,
                   uint8_t *const *blobs,
                   const uint32_t *sizes,
                   struct err *err);
    /* Starts a batch. ready_event: framework's event that the inputs wait for (NULL on
     * CPU). May run to completion inside (cpu does). The batch's memory stays valid
     * until the ticket is done. Tickets count from 1 in order of posting. An error is
     * final: the world is broken, the sentence names the peer ("lost rank 3 (host b):
     * connection reset"). */
    int (*post)(struct backend *b,
                const struct batch *batch,
                void *ready_event,
                uint64_t *ret_ticket,
                struct err *err);
    /* *ret_done: highest ticket such that it and all before are complete. Never blocks.
     */
    int (*poll)(struct backend *b, uint64_t *ret_done, struct err *err);
    void (*abort)(struct backend *b); /* any thread, idempotent, returns at once */
    void (*close)(struct backend
                      *b); /* accepts NULL and half-connected ones; never blocks long */
};

struct backend {
    const struct backend_ops *ops;
};

extern const struct backend_ops backend_cpu;

#endif

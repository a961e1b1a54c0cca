/* SPDX-License-Identifier: Apache-2.0 */
/* The ops table of a backend. There is one row for shared memory + TCP on CPUs, one for
 * NCCL on GPUs, and one for each fake of the tests.
 *
 *   Life    describe() on every rank
 *           -> the caller all-gathers the blobs through the rendezvous
 *           -> connect() with the blobs of all ranks; it may use more rounds through
 *              env->exchange
 *           -> post() and poll(), in the same order with equal batches on every rank
 *           -> close()
 *   Thread  one thread at a time drives a backend (the coordinator's step holds its
 *           lock); only abort() and nudge() may be called by another thread at any time
 *   Order   batches are identical on all ranks, apart from pointers. The coordinator
 *           posts them in the same order on every rank, so a backend never
 *           negotiates. */
#ifndef RUNTIME_BACKEND_BACKEND_H
#define RUNTIME_BACKEND_BACKEND_H

#include "runtime/base/err.h"
#include "runtime/core/tuning.h"
#include "runtime/core/types.h"
#include "runtime/wire/auth.h"

/* One tensor of a batch; "member" is a rank of this communicator, 0 to size - 1.
 *
 *   allreduce      in -> out (may be equal), count elements
 *   reduce         the same, out only on root (elsewhere out may be NULL; in is
 *                  unchanged)
 *   broadcast      root's in -> out of all members, count elements
 *   allgather      in: counts[me] elements; out: all of them in member order
 *   gather         the same, out only on root
 *   reducescatter  in: the sum of counts; out: counts[me] elements, reduced. Member j
 *                  receives those from counts[0] + ... + counts[j - 1] on. out must not
 *                  overlap in, except that it may be the place of its own part
 *   alltoall       in: the sum of send_counts, ordered by receiver; out: the sum of
 *                  counts, ordered by sender; counts[j] elements come from member j
 *   sendrecv       two members: root's in -> the other's out, count elements; root's
 *                  out and the other's in are not used
 *   barrier        no items
 *
 * counts and send_counts have one entry per member, in elements. */
struct batch_item {
    const void *in;
    void *out;
    uint64_t count;
    const uint64_t *counts;      /* valid until the ticket is done */
    const uint64_t *send_counts; /* alltoall only; likewise */
    /* Device memory only: when in and out may be used; NULL: now. Borrowed until post
     * returns. in NULL on a device: this member contributes zeros. */
    struct device_event *ready;
    struct device_event *given; /* the same for out's memory, where it is a result's */
};

/* one collective over one or more tensors of equal dtype and parameters */
struct batch {
    enum collective coll;
    enum memory_place place; /* of all items */
    uint32_t region;         /* registered buffer that all of them lie in; 0: none */
    bool is_awaited;         /* the host waits for its end, not a stream */
    /* A sum on GPUs whose results are this member's own inputs (HVD_DRY_RUN). */
    bool is_alone;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t root; /* a member */
    double prescale,
        postscale; /* applied by the backend; AVERAGE divides by the number of ranks */
    struct batch_item *items;
    size_t n_items; /* > 1: fused; how to pack and unpack is the backend's choice */
};

/* How damage of what ranks send each other over TCP is detected, besides the headers.
 * All ranks must use the same. */
enum data_check {
    DATA_BARE, /* it is not */
    DATA_CRC,  /* a checksum: accidents */
    DATA_MAC,  /* HMAC-SHA-256: attackers, too */
};

/* Everything that the caller provides to a backend. All pointers outlive it. */
struct backend_env {
    uint32_t rank, size; /* of this communicator */
    /* For messages: global rank of each member; NULL: equal to the member's index. */
    const uint32_t *global;
    struct auth_id id;      /* for every connection it opens */
    const char *local_addr; /* address of this host's interface to the other ranks */
    enum data_check data_check;
    uint64_t deadline_ns;     /* for describe and connect; absolute */
    uint64_t peer_timeout_ns; /* silence of a peer inside an operation before it counts
                                 as lost */
    /* One more all-gather round during connect(), as rdv_client_exchange. */
    int (*exchange)(void *arg,
                    const void *blob,
                    uint32_t n,
                    uint8_t ***ret_blobs,
                    uint32_t **ret_sizes,
                    struct err *err);
    /* Called by every wait inside post/poll at least every 10 ms, and while connect()
     * waits for another rank's connection: 0 to continue, or an error with its message
     * (the control channel reports a lost rank, the user shuts down, the launcher has
     * broken the world): the backend stops waiting and returns it. */
    int (*interrupted)(void *arg, struct err *err);
    void *arg;
};

#define AGREE_MAX_WORDS 64

struct backend; /* each implementation embeds it first */

struct backend_ops {
    const char *name; /* "cpu", "nccl", "fake" */
    /* Creates the object and its address blob. Free *ret_blob with mem_free. */
    int (*describe)(const struct backend_env *env,
                    struct backend **ret,
                    void **ret_blob,
                    uint32_t *ret_n,
                    struct err *err);
    int (*connect)(struct backend *b,
                   uint8_t *const *blobs,
                   const uint32_t *sizes,
                   struct err *err);
    /* Starts a batch. May complete inside (cpu does, except a sendrecv). The memory of
     * the items must stay valid until the ticket is done. Tickets count from 1 in order
     * of posting. An error is final: the world is broken, and the message names the
     * peer ("lost rank 3 (host b): connection reset"). */
    int (*post)(struct backend *b,
                const struct batch *batch,
                uint64_t *ret_ticket,
                struct err *err);
    /* *ret_done: the highest ticket such that it and all earlier ones are complete.
     * Never blocks. Moves what a sendrecv can move now; until that is done, nothing
     * else may be posted to b. */
    int (*poll)(struct backend *b, uint64_t *ret_done, struct err *err);
    /* For callers that poll several communicators in turn, so that a rank carries out
     * one sendrecv with each of several peers at the same time. Returns when one of
     * v[n], whose sendrecvs are not done, may have progressed since its last poll, or
     * after a few ms. Errors as of poll. NULL: the caller yields instead. */
    int (*await)(struct backend *const *v, size_t n, struct err *err);
    /* A communicator of some members of b, for a process set. All members of b call it
     * at the same point between two batches, with equal arguments; they meet over b.
     * ranks[n]: members of b, ascending. *ret is NULL on members that are not in ranks.
     * One thread drives parent and children; abort of the parent aborts them; they must
     * be closed before it. An error breaks b, as in post. */
    int (*subset)(struct backend *b,
                  const uint32_t *ranks,
                  uint32_t n,
                  uint64_t deadline_ns,
                  struct backend **ret,
                  struct err *err);
    /* Agreement: the bitwise AND of all members' words, without blocking: begin
     * publishes ours, poll returns whether those of all members have arrived. At most
     * one at a time, n equal on all members (1 to AGREE_MAX_WORDS), no post between
     * begin and done. Errors as in post. NULL: this backend has none, and the caller
     * always negotiates. */
    int (*agree_begin)(struct backend *b,
                       const uint64_t *words,
                       uint32_t n,
                       struct err *err);
    int (*agree_poll)(struct backend *b,
                      uint64_t *ret_words,
                      bool *ret_done,
                      struct err *err);
    /* Applies these settings from here on; called by all members at the same point
     * between two batches, outside of an agreement, with equal settings. Children
     * created later start with them. t NULL: changes nothing. True: some of them have
     * an effect on this communicator. NULL: none has. */
    bool (*tune)(struct backend *b, const struct tuning *t);
    /* Sleeps until the current agreement may have progressed, nudge() was called since
     * the last doze, or for ns (a hint: it may return early). */
    void (*doze)(struct backend *b, uint64_t ns);
    void (*nudge)(struct backend *b); /* any thread; ends a doze */
    void (*abort)(struct backend *b); /* any thread, idempotent, returns at once */
    /* Accepts NULL and half-connected ones; blocks only briefly. */
    void (*close)(struct backend *b);
};

struct backend {
    const struct backend_ops *ops;
};

extern const struct backend_ops backend_cpu;

#endif

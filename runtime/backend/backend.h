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
#include "runtime/core/tuning.h"
#include "runtime/core/types.h"
#include "runtime/rendezvous/auth.h"

/* One tensor of a batch; "member" is a rank of this communicator, 0 to size - 1.
 *   allreduce      in -> out (may be equal), count elements
 *   reduce         the same, out only on root (elsewhere out may be NULL; in stays)
 *   broadcast      root's in -> everyone's out, count elements
 *   allgather      in: counts[me] elements; out: all of them in member order
 *   gather         the same, out only on root
 *   reducescatter  in: the sum of counts; out: counts[me] elements, reduced: member j
 *                  gets those that begin at counts[0] + ... + counts[j - 1]. out must
 *                  not overlap in, or equal the place of its own part
 *   alltoall       in: the sum of send_counts, ordered by receiver; out: the sum of
 *                  counts, ordered by sender; counts[j] comes from member j
 *   sendrecv       of two: root's in -> the other's out, count elements; root's out and
 *                  the other's in are not used
 *   barrier        no items
 * counts and send_counts have one entry a member, in elements. */
struct batch_item {
    const void *in;
    void *out;
    uint64_t count;
    const uint64_t *counts;      /* valid until the ticket is done */
    const uint64_t *send_counts; /* alltoall only; likewise */
    /* Device memory only: when in and out may be used; NULL: now. Borrowed until post
     * returns. Where in is NULL on a device, this member contributes zeros. */
    struct device_event *ready;
    struct device_event *given; /* the same of out's memory, where it is a result's */
};

struct batch { /* one collective over one or more tensors of equal dtype and parameters
                */
    enum collective coll;
    enum memory_place place; /* of all items */
    uint32_t region;         /* registered buffer that all of them lie in; 0: none */
    bool is_awaited;         /* what follows its end is of the host, not of a stream */
    enum dtype dtype;
    enum reduce_op op;
    uint32_t root; /* a member */
    double prescale,
        postscale; /* applied by the backend; AVERAGE divides by the number of ranks */
    struct batch_item *items;
    size_t n_items; /* > 1: fused; the backend packs and unpacks as it likes */
};

/* What the surroundings give a backend. All pointers outlive it. */
struct backend_env {
    uint32_t rank, size; /* of this communicator */
    /* For sentences: global rank of each member; NULL: they are the same. */
    const uint32_t *global;
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

#define AGREE_MAX_WORDS 64

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
    /* Starts a batch. May run to completion inside (cpu does). The batch's memory stays
     * valid until the ticket is done. Tickets count from 1 in order of posting. An
     * error is final: the world is broken, the sentence names the peer ("lost rank 3
     * (host b): connection reset"). */
    int (*post)(struct backend *b,
                const struct batch *batch,
                uint64_t *ret_ticket,
                struct err *err);
    /* *ret_done: highest ticket such that it and all before are complete. Never blocks.
     */
    int (*poll)(struct backend *b, uint64_t *ret_done, struct err *err);
    /* A communicator of some members of b, for a process set. All members of b call it
     * at the same point between two batches, with equal arguments; it uses b to meet.
     * ranks[n]: members of b, ascending. *ret is NULL on those who are not among them.
     * One thread drives parent and children; abort of the parent reaches them; they are
     * closed before it. An error breaks b, as in post. */
    int (*subset)(struct backend *b,
                  const uint32_t *ranks,
                  uint32_t n,
                  uint64_t deadline_ns,
                  struct backend **ret,
                  struct err *err);
    /* Agreement: the bitwise AND of all members' words, without blocking: begin
     * publishes ours, poll says whether everyone's are there. At most one at a time, n
     * equal on all (1 to AGREE_MAX_WORDS), no post between begin and done. Errors as in
     * post. NULL: this backend has none, and the caller negotiates every time. */
    int (*agree_begin)(struct backend *b,
                       const uint64_t *words,
                       uint32_t n,
                       struct err *err);
    int (*agree_poll)(struct backend *b,
                      uint64_t *ret_words,
                      bool *ret_done,
                      struct err *err);
    /* Agreements that members come to whom they do not concern. agree_call: all others
     * shall join the one at hand. agree_call_state: what do others do about the next one?
     * (Outside of one; asked often, it costs little.) agree_away: nobody asks until
     * agree_back; whoever begins the next one (CALL_BEGUN) or calls for it
     * (CALL_CALLED) makes an ear readable, if nobody else can do without us; answers as
     * agree_call_state, after it took effect. words[n], if not NULL: others may count these
     * as ours instead, in any number of agreements that are called for and have our tag
     * (not 0; words may not change while it does not). agree_back: true if they have:
     * the last one is at hand as if begun, to be polled. agree_tag: of agreements from
     * here on. agree_ears: descriptors to sleep on while away, -1: there is none: [0]
     * for members of this host, [1] of others, which is readable during agreements too.
     * They are the backend's, and stay until close; of an error the caller may do
     * without, and look now and then. NULL if agree_begin is. */
    void (*agree_call)(struct backend *b);
    enum agree_call (*agree_call_state)(struct backend *b);
    enum agree_call (*agree_away)(struct backend *b,
                                  enum agree_call what,
                                  const uint64_t *words,
                                  uint32_t n);
    bool (*agree_back)(struct backend *b);
    void (*agree_tag)(struct backend *b, uint32_t tag);
    int (*agree_ears)(struct backend *b, int ret_fds[2], struct err *err);
    /* From here on its part of these settings; all members at the same point between
     * two batches, outside of an agreement, with equal ones. Children made later begin
     * with them. t NULL: changes nothing. True: some of them mean something to this
     * communicator. NULL: to none. */
    bool (*tune)(struct backend *b, const struct tuning *t);
    /* Sleeps until the agreement at hand may have moved, nudge() was called since the
     * last doze, or for ns (a hint: it may return early). */
    void (*doze)(struct backend *b, uint64_t ns);
    void (*nudge)(struct backend *b); /* any thread; ends a doze */
    void (*abort)(struct backend *b); /* any thread, idempotent, returns at once */
    void (*close)(struct backend
                      *b); /* accepts NULL and half-connected ones; never blocks long */
};

struct backend {
    const struct backend_ops *ops;
};

extern const struct backend_ops backend_cpu;

#endif

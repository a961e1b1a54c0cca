/* SPDX-License-Identifier: Apache-2.0 */
/* One submitted operation, from hvd_*_async to hvd_release. */
#ifndef RUNTIME_ENGINE_OP_H
#define RUNTIME_ENGINE_OP_H

#include <stdatomic.h>
#include <stddef.h>

#include "runtime/backend/device.h"
#include "runtime/core/member.h"
#include "hvd.h"

/* What ops refer to and outlives them: their coordinator, as its first member. */
struct op_owner {
    _Atomic uint32_t refs; /* free is called with the last one */
    void (*free)(struct op_owner *o);
};

#define OP_NO_MEMBER       UINT32_MAX
#define OP_RESERVED_PREFIX "hvd://" /* of names that only the runtime itself uses */

struct op {
    struct nametab_node node; /* tensor queue's lock; first member */
    struct member_op part;    /* in the seat */
    struct op *next;          /* in a list: tensor queue's lock, then the seat */
    _Atomic uint32_t refs;    /* handle, tensor queue, each waiter */
    /* Set before the op is shared, constant afterwards. */
    struct tensor_request req;
    uint64_t count, bytes; /* of this rank's tensor */
    uint64_t submitted_ns;
    const void *data;
    void *output;
    hvd_done_fn done;
    void *done_arg;
    hvd_alloc_fn alloc;
    void *alloc_arg;
    struct op_owner *owner;       /* a reference */
    atomic_bool is_held;          /* until hvd_submit_held */
    const struct device_ops *gpu; /* its memory is on a GPU; NULL: the host's */
    struct device *device;        /* that GPU; valid while its world is */
    void *stream;                 /* its submitter's */
    /* The stream that waited for it last reads the result: its memory is freed in that
     * order. Any thread, relaxed, because the freeing thread has the last reference. */
    _Atomic(void *) read_in;
    int ordinal; /* of the GPU */
    /* The process set at the time of submission. If the set is removed before the
     * answer, the op fails. root OP_NO_MEMBER: not in the set, negotiation reports it.
     * A transfer's set is a pair: two members, root is the sender. */
    uint32_t n_members, me, root;
    int64_t *rows;   /* alltoall: rows to each of n_members; owned */
    uint32_t *ranks; /* COLL_SET_ADD: req.n_set, ascending; owned */
    /* Used in the seat until the status is final, then read by any thread (status is
     * stored with release). */
    uint64_t *counts;      /* as batch_item's, by op_make_result */
    uint64_t *send_counts; /* alltoall; likewise */
    int64_t *received;     /* alltoall: rows from each member */
    void *result;          /* runtime's memory when owns_result */
    bool owns_result;
    /* When its inputs can be read; set before it is submitted, then used in the seat
     * until the batch is posted. */
    struct device_event *ready;
    struct device_event *given; /* the same of result, where that is the runtime's */
    /* Its batch was posted, and its end is where the stream waits for `posted` (NULL:
     * it has ended). is_posted is stored after everything else of the result. */
    struct device_event *posted;
    atomic_bool is_posted;
    bool has_no_memory; /* the caller's alloc returned NULL: take part, then fail */
    int result_ndim;
    int64_t result_shape[TENSOR_MAX_DIMS];
    uint32_t result_rank; /* COLL_JOIN, COLL_PROBE: set before op_finish */
    uint32_t set_id;      /* COLL_SET_ADD: the new set; set before op_finish */
    char error[MESSAGE_TEXT_MAX];
    _Atomic int status; /* HVD_IN_PROGRESS or the end */
};

/* The operation that contains this part. */
static inline struct op *op_of(struct member_op *part)
{
    return (struct op *)(void *)((char *)part - offsetof(struct op, part));
}

/* The op is new: sets op->owner. */
static inline void op_set_owner(struct op *op, struct op_owner *o)
{
    op->owner = o;
    atomic_fetch_add_explicit(&o->refs, 1, memory_order_relaxed);
}
void op_owner_unref(struct op_owner *o); /* accepts NULL */

struct op *op_new(void); /* one reference; NULL: out of memory */
struct op *op_ref(struct op *op);
void op_unref(struct op *op); /* accepts NULL */
int op_status(const struct op *op);
enum op_state { OP_ENDED, OP_POSTED }; /* POSTED, or ended */
/* Has it been POSTED? */
static inline bool op_is_posted(const struct op *op)
{
    return atomic_load_explicit(&op->is_posted, memory_order_relaxed);
}
bool op_has_reached(const struct op *op, enum op_state state);
/* As op_status, but inside its own callback the op has ended: its results may be
 * read. */
int op_status_in_callback(const struct op *op);

/* Exactly once per op, by the thread in the seat: callback, then the status becomes
 * visible. */
void op_finish(struct op *op, int status, const char *error);
/* Its batch was posted, in the seat; takes the reference. The result may be used by
 * streams that wait for `event`. */
void op_set_posted(struct op *op, struct device_event *event);
/* True inside a callback of this thread: waiting and shutting down are refused
 * there. */
bool op_in_callback(void);

/* Whether op_make_result allocates the output, not the caller. */
bool op_has_result(const struct op *op);
/* Before the batch is posted: memory for this member's result, its shape, and the
 * counts of all members. dim0: rows of each of the n members: of its tensor (allgather,
 * gather), or those that it sends to this rank (alltoall); unused for reducescatter,
 * whose rows follow from the shape. In a gather only the root gets memory. 0, -ENOMEM,
 * or an error of the device; err is set if the device has a text of its own. If the
 * caller's alloc fails, has_no_memory is set and this succeeds. */
int op_make_result(struct op *op, const uint64_t *dim0, uint32_t n, struct err *err);
/* alltoall: send_counts from rows. 0, -ENOMEM. */
int op_make_send_counts(struct op *op, uint32_t n);
/* FNV-1a, equal on every machine. */
#define OP_HASH_INIT 0xcbf29ce484222325ull
uint64_t op_hash_u32(uint64_t h, uint32_t v);
uint64_t op_hash_text(uint64_t h, const char *text);
/* Rows of dimension 0 that member i of n gets of `rows` by a reducescatter. */
uint64_t op_share(uint64_t rows, uint32_t n, uint32_t i);

#endif

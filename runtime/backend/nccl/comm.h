/* SPDX-License-Identifier: Apache-2.0 */
/* One NCCL communicator, or several of the same members, one for each of our streams:
 * start, split, finish, and groups of calls. It belongs to the launcher until the
 * launcher has acknowledged the stop (GPU_QUIET), then to the watcher alone.
 *
 *   meet.c       the seat: members meet, judge their cards, queue the start
 *   comm_row.c   the seat: post, poll, close, as for any backend
 *   comm.c       the launcher: start, split, groups, end
 *   abort.c      the watcher: asynchronous errors, abort */
#ifndef RUNTIME_BACKEND_NCCL_COMM_H
#define RUNTIME_BACKEND_NCCL_COMM_H

#include "runtime/backend/nccl/card.h"
#include "runtime/backend/nccl/comm_state.h"
#include "runtime/backend/nccl/gpu.h"
#include "runtime/core/nonfinite.h"

struct nan_check; /* nonfinite.c */
struct graphs;    /* graph.h */

#define COMM_TICKETS 256

struct comm_ticket {
    uint64_t number;           /* from 1; slot number % COMM_TICKETS */
    struct device_event *done; /* a reference */
    cu_ptr scratch[4];         /* given back in stream order; 0: none */
    struct nan_check *check;   /* of JOB_CHECK; NULL: none */
};

/* Memory registered with NCCL (register.c). */
struct comm_region {
    struct comm_region *next;
    void *p;
    uint64_t bytes;
    void *handles[GPU_MAX_STREAMS]; /* of nc[]; NULL: none */
};

struct comm {
    struct backend base; /* first: the row's object */
    struct device *g;
    struct comm *next;             /* device.comms */
    _Atomic int state;             /* enum comm_state; acq_rel */
    nccl_comm nc[GPU_MAX_STREAMS]; /* a split writes these late */
    nccl_comm none;                /* a split writes here if we are not a member */
    bool blocks;   /* calls return when finished: NCCL_COMM_BLOCKING, or old */
    uint32_t n_nc; /* number of communicators; 0: a set of one */
    uint32_t me, n;
    uint32_t *ranks; /* [n] global */
    struct backend_env env;
    struct comm_terms terms;
    uint8_t id[16];                        /* hash of the unique id, for parking */
    struct device_parked *parked;          /* what it is shrunk from; NULL: none */
    struct comm_ticket ring[COMM_TICKETS]; /* the seat's; scratch: the launcher's */
    _Atomic uint64_t n_posted, n_done;
    uint64_t n_calls;        /* posted batches, to select a stream */
    struct nan_check *check; /* for the next post */
    struct nan_check *lost;  /* of batches that were not posted */
    bool has_bad;            /* what poll last reported with -EDOM */
    size_t bad_item;
    struct nonfinite bad;
    struct comm_region *regions;                /* the launcher's */
    struct comm_region fusion[GPU_MAX_STREAMS]; /* likewise: our own buffers */
    struct graphs *graphs;
};

/* The seat: an object in g->comms, COMM_NEW. ranks[env->size]: global; copied, as env
 * is. Takes over terms->excluded on success. comm_free: it is no longer used. */
int comm_new(struct device *g,
             const struct backend_env *env,
             const uint32_t *ranks,
             struct comm_terms *terms,
             struct comm **ret,
             struct err *err);
void comm_free(struct comm *c);
/* The end of a device, before gpu_close: stops it, and frees all remaining
 * communicators when its threads are out. If they are not out by the deadline, the
 * communicators are leaked with the device. */
void comms_free(struct device *g, uint64_t deadline_ns);
/* Prefixes the text with "NCCL asynchronous error on rank 3 (host b), GPU 0 (its
 * name): "; returns rc. */
int comm_name_async(const struct device *g, int rc, struct err *err);

/* meet.c; rows of device_ops. */
int comm_open(struct device *g,
              struct backend *meeting,
              const struct backend_env *env,
              const uint32_t *ranks,
              struct backend **ret,
              struct err *err);
int comm_split(struct backend *parent,
               const uint32_t *ranks,
               uint32_t n,
               struct backend **ret,
               struct err *err);
int comm_refuse(struct backend *meeting,
                const struct backend_env *env,
                const uint32_t *ranks,
                const char *const *hosts,
                const char *problem,
                struct err *err);

/* comm_row.c */
extern const struct backend_ops comm_backend_ops;
struct device_event *comm_ticket_event(struct backend *b, uint64_t ticket);
/* The seat, for batches of other kinds: comm_job creates a job of a batch with an
 * event of its own, on the next of c's streams; comm_push posts it and takes it over,
 * also on failure. */
int comm_job(struct comm *c,
             enum job_kind kind,
             const struct batch *batch,
             const struct codec_plan *plans,
             size_t extra_bytes,
             struct gpu_job **ret,
             struct err *err);
int comm_push(struct comm *c,
              struct gpu_job *job,
              uint64_t *ret_ticket,
              struct err *err);

/* job->extra of these kinds. */
struct comm_start {    /* JOB_START */
    struct nccl_id id; /* of the first communicator; further ones are split off */
};
struct comm_child {     /* JOB_SPLIT: job->comm is the parent */
    struct comm *child; /* NULL: we are not a member */
};
/* The launcher: JOB_START, JOB_SPLIT, JOB_CLOSE. */
int comm_run(struct device *g, struct gpu_job *job, struct err *err);

/* The launcher: starts a group, calls `calls`, ends the group. After ncclInProgress it
 * polls ncclCommGetAsyncError (spins, then sleeps of 50 us) until the group is
 * finished or life is not GPU_RUNS (-ECONNABORTED). Calls are always grouped: a lone
 * non-blocking send may return before its kernel is enqueued. Nothing may be put on
 * the stream before it returns. index: which of c->nc. */
int comm_run_group(struct comm *c,
                   uint32_t index,
                   int (*calls)(void *arg, nccl_comm nc, struct err *err),
                   void *arg,
                   struct err *err);
/* Inside `calls`: COMM_TRY(c, nc, err, all_reduce, "ncclAllReduce", in, out, ...). */
#define COMM_TRY(c, nc, err, name, symbol, ...)                                        \
    __extension__({                                                                    \
        int result_ = (c)->g->nccl->name(__VA_ARGS__);                                 \
        result_ == NCCL_OK || result_ == NCCL_IN_PROGRESS                              \
            ? 0                                                                        \
            : nccl_fail((c)->g->nccl, (nc), (symbol), result_, (err));                 \
    })

/* nonfinite.c: rows of device_ops; the launcher's JOB_CHECK; and the seat's check of a
 * finished ticket: 0, or -EDOM with a message that names no tensor; t->check is freed.
 */
int check_post(struct backend *b, const struct batch *batch, struct err *err);
int check_bad_item(struct backend *b, size_t *ret_item, struct nonfinite *ret);
int check_run(struct device *g, struct gpu_job *job, struct err *err);
int check_finish(struct comm *c, struct comm_ticket *t, struct err *err);
void check_free(struct device *g,
                struct nan_check *check); /* with all that follow it; accepts NULL */

/* register.c: rows of device_ops; JOB_REGISTER, whose extra is private to it;
 * register_drop is for a job that is not run. */
int comm_register(struct backend *b, void *p, uint64_t bytes, struct err *err);
void comm_forget(struct backend *b, void *p);
int register_run(struct gpu_job *job);
void register_drop(struct gpu_job *job);
/* The launcher: comm_regions_close deregisters everything of c, when nothing uses it;
 * comm_regions_free frees the list when c itself is gone. */
bool comm_regions_any(const struct comm *c);
void comm_regions_close(struct comm *c);
void comm_regions_free(struct comm *c);
/* The launcher: the fusion buffer of c's calls, registered with c if the members'
 * terms say so. *ret_generation changes when the buffer moves. */
bool comm_registers(const struct comm *c);
int comm_fusion(struct comm *c,
                uint32_t index,
                uint64_t bytes,
                cu_stream s,
                cu_ptr *ret,
                uint32_t *ret_generation,
                struct err *err);

/* abort.c; hooks of the device. */
int comms_look(struct device *g, struct err *err);
void comms_abort(struct device *g, bool is_quiet);

#endif

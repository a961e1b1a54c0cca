/* SPDX-License-Identifier: Apache-2.0 */
/* One NCCL communicator (or several of the same members, one for each of our streams):
 * start, split, finish, and groups of calls. It belongs to the launcher until that has
 * acknowledged the stop (GPU_QUIET); from then on to the watcher alone. */
#ifndef RUNTIME_BACKEND_NCCL_COMM_H
#define RUNTIME_BACKEND_NCCL_COMM_H

#include "runtime/backend/nccl/card.h"
#include "runtime/backend/nccl/comm_state.h"
#include "runtime/backend/nccl/gpu.h"

struct codec_states; /* gcodec.h */
struct graphs;       /* graph.h */

#define COMM_TICKETS 256

struct ticket {
    uint64_t number;           /* from 1; slot number % COMM_TICKETS */
    struct device_event *done; /* a reference */
    cu_ptr scratch[4];         /* to be given back in stream order; 0: none */
    const void *check;         /* results of JOB_CHECK in pinned memory; NULL: none */
};

struct comm {
    struct backend base; /* first: the row's object */
    struct device *g;
    struct comm *next;             /* device.comms */
    _Atomic int state;             /* enum comm_state; acq_rel */
    nccl_comm nc[GPU_MAX_STREAMS]; /* a split writes these late */
    uint32_t n_nc;                 /* communicators that were made; 0: a set of one */
    uint32_t me, n;
    uint32_t *ranks; /* [n] global */
    struct backend_env env;
    struct comm_terms terms;
    uint8_t id[16];                   /* hash of the unique id, for parking */
    struct ticket ring[COMM_TICKETS]; /* the seat's; scratch: the launcher's */
    _Atomic uint64_t n_posted, n_done;
    uint64_t n_calls; /* batches that were run, for the choice of a stream */
    struct graphs *graphs;
    struct codec_states *codecs;
};

/* The launcher: begins a group, the caller makes its calls, ends it; after
 * ncclInProgress polls ncclCommGetAsyncError (5 us spins, then 50 us sleeps) until it
 * is over or life is not GPU_RUNS (-ECONNABORTED). Always grouped: a lone non-blocking
 * send may return before its kernel is enqueued. Nothing may be put on the stream
 * before it returns. index: which of c->nc. */
int comm_group(struct comm *c,
               uint32_t index,
               int (*calls)(void *arg, nccl_comm nc, struct err *err),
               void *arg,
               struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The states of one NCCL communicator. Pure: two enums, an edge table, one function. */
#ifndef RUNTIME_BACKEND_NCCL_COMM_STATE_H
#define RUNTIME_BACKEND_NCCL_COMM_STATE_H

#include <stdbool.h>

enum comm_state {
    COMM_NEW,       /* its start is queued; NCCL has no handle */
    COMM_STARTING,  /* ncclCommInit*, or a child of ncclCommSplit */
    COMM_READY,     /* collectives may be called */
    COMM_ENQUEUING, /* from a group's start until it is on the stream */
    COMM_SPLITTING, /* parent of an ncclCommSplit in progress */
    COMM_CLOSING,   /* ncclCommFinalize, ncclCommDestroy */
    COMM_REVOKING,  /* ncclCommRevoke */
    COMM_PARKED,    /* revoked: can only be the parent of ncclCommShrink */
    COMM_ABORTING,  /* the watcher's alone (rule R4) */
    COMM_DEAD,      /* the handle is gone */
    COMM_STATE_COUNT
};

enum comm_event {
    COMM_EV_INIT,
    COMM_EV_SPLIT,
    COMM_EV_GROUP,
    COMM_EV_OK,
    COMM_EV_STOP, /* a failure: it is aborted */
    COMM_EV_CLOSE,
    COMM_EV_REVOKE,
    COMM_EV_ENDED,
    COMM_EVENT_COUNT
};

/* The state after e, or -1: no such edge. */
int comm_next(enum comm_state s, enum comm_event e);
/* Does NCCL have a handle that must still be destroyed or aborted? */
bool comm_is_held(enum comm_state s);
const char *comm_state_name(enum comm_state s);

#endif

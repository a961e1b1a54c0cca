/* SPDX-License-Identifier: Apache-2.0 */
/* A sendrecv of a communicator of two members, which does not block its thread. Used by
 * cpu.c and coll.c. */
#ifndef RUNTIME_BACKEND_CPU_TRANSFER_H
#define RUNTIME_BACKEND_CPU_TRANSFER_H

#include "runtime/backend/backend.h"
#include "runtime/backend/cpu/vec.h"
#include "runtime/backend/cpu/wait.h"

struct cpu;

struct cpu_transfer {
    bool is_active, sends;
    bool has_moved; /* since the last await */
    uint32_t pos;   /* shared memory: of its last chunk */
    struct cursor at;
    uint64_t left;           /* bytes */
    uint64_t yield_until_ns; /* 0: this wait has not begun */
    struct patience patience;
};

/* b is checked. An error breaks the communicator, here and below. */
int transfer_begin(struct cpu *c, const struct batch *b, struct err *err);
/* Moves at most a chunk, without waiting; does nothing unless a transfer is active. */
int transfer_move(struct cpu *c, struct err *err);
/* The row await of the ops table. */
int transfer_await(struct backend *const *v, size_t n, struct err *err);

#endif

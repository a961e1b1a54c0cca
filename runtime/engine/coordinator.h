/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator of one world on one rank: takes operations through negotiation to the
 * backend and back to the waiting threads. Its parts are private to this folder. */
#ifndef RUNTIME_ENGINE_COORDINATOR_H
#define RUNTIME_ENGINE_COORDINATOR_H

#include "runtime/backend/backend.h"
#include "runtime/control/control.h"
#include "runtime/engine/device.h"
#include "runtime/engine/op.h"
#include "runtime/engine/region.h"
#include "runtime/observe/observe.h"
#include "runtime/world/sets.h"
#include "runtime/world/settings.h"

struct coordinator;

struct coordinator_config {               /* what it points to outlives the world */
    uint32_t rank, size;                  /* of the world */
    uint32_t local_size;                  /* ranks of the whole job on this host */
    const struct settings *settings;      /* copied */
    const struct control_member *members; /* by rank */
    const struct backend_env *env;
    struct sets *sets;
    struct device_park *park;
    const char *nccl_hint; /* as hvd_device_hint's; copied */
    /* Called in the seat, no lock held: other ranks wait for this tensor, which this
     * rank has not submitted. */
    void (*report_late)(const char *tensor);
};

/* With one reference. */
int coordinator_new(const struct coordinator_config *cfg,
                    struct coordinator **ret,
                    struct err *err);
void coordinator_unref(struct coordinator *co); /* accepts NULL */
/* Before coordinator_start, in this order: the handlers for control_open; the channel
 * and the backend, which stay the world's. Messages may arrive after that. 0,
 * -ENOMEM. */
struct control_handlers coordinator_handlers(struct coordinator *co);
void coordinator_set_control(struct coordinator *co, struct control *control);
int coordinator_set_backend(struct coordinator *co, struct backend *backend);
/* The world is READY; starts the background thread. */
int coordinator_start(struct coordinator *co, struct err *err);
/* backend_env's; in the seat, and while the backend connects. */
int coordinator_interrupted(struct coordinator *co, struct err *err);

/* --- operations, any thread --- */

/* The new op is this coordinator's, and holds a reference to it. */
void coordinator_own(struct coordinator *co, struct op *op);
bool coordinator_owns(const struct coordinator *co, const struct op *op);
/* Ops of this coordinator, all n or none. 0, or a negative enum hvd_status with its
 * error text. */
int coordinator_submit(struct coordinator *co,
                       struct op *const *ops,
                       uint32_t n,
                       struct err *err);
/* Not in a callback: waits until the op has reached this state in its coordinator.
 * Returns its status: HVD_IN_PROGRESS when it is POSTED, or at the deadline. */
int coordinator_wait(struct op *op, enum op_state state, uint64_t deadline_ns);

/* --- the end --- */

/* Ends this rank's part: carries out what was agreed, sends the goodbye, fails the
 * other operations (flights_fail has a limit of its own), stops the thread. Afterwards
 * no thread uses control and backend. False: a thread did not leave in time (it hangs
 * in a callback); then control and backend must not be closed. */
bool coordinator_leave(struct coordinator *co,
                       const struct leave *leave,
                       uint64_t deadline_ns);
/* Only sends the goodbye, by any thread, for a process that is about to die by a signal:
 * nothing is carried out or failed any more, since the program must not see an end of
 * its operations. The seat is kept until the process ends. False: the seat did not
 * become free in time. */
bool coordinator_say(struct coordinator *co,
                     const struct leave *leave,
                     uint64_t deadline_ns);
/* After coordinator_leave, when the communicators of its GPU are closed. Accepts NULL. */
void coordinator_close_device(struct coordinator *co);
/* Any thread, once the channel is set: the launcher says that this world is over. All
 * operations fail with this cause, as after a loss; while the world forms, forming
 * fails. */
void coordinator_break(struct coordinator *co, const char *cause);
/* In a forked child. */
void coordinator_forked(const struct coordinator *co);
/* ABORTED or DOWN, with the error text for new operations. */
int coordinator_status(struct coordinator *co, struct err *err);

/* --- its parts with their own locks, any thread --- */

struct world_device *coordinator_gpu(struct coordinator *co);
struct regions *coordinator_regions(struct coordinator *co);
struct observer *coordinator_observer(struct coordinator *co);

#endif

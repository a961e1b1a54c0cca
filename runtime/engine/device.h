/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of this rank in one world: found, opened with the first tensor on it, closed
 * with the world. The GPU itself is behind the ops table of backend/device.h. */
#ifndef RUNTIME_ENGINE_DEVICE_H
#define RUNTIME_ENGINE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/world/settings.h"
#include "runtime/backend/device.h"
#include "runtime/base/strbuf.h"
#include "runtime/control/control.h"
#include "runtime/core/lifecycle.h"
#include "runtime/core/message.h"
#include "hvd.h"

/* Outlives worlds. Exchanged when a device is opened or closed; the thread that takes a
 * value out owns it. */
struct device_park {
    _Atomic(struct device_parked *) parked;
};

struct world_device_config { /* what it points to outlives the world */
    uint32_t rank, size;
    const struct settings *settings;
    const struct control_member *members; /* by rank */
    const char *nccl_hint;                /* hvd_device_hint's; copied */
    /* Keeps what a failed world leaves until the next one; NULL: nothing is kept. */
    struct device_park *park;
    void (*wake)(void *arg); /* any thread: work on the GPU has ended */
    void *arg;
};

struct world_device {
    struct world_device_config config; /* constant */
    char hint[256];                    /* constant */
    pthread_mutex_t lock;              /* of opening; no other is taken in it */
    const struct device_ops *ops;      /* constant once d is set */
    _Atomic(struct device *) d;        /* stored with release when it is open */
    _Atomic bool is_refused;           /* lock; the reason is in problem from then on */
    bool has_looked;                   /* lock; absent has been filled */
    char problem[480];
    char absent[REQUEST_WHY_MAX]; /* lock; why there is no GPU, "" there is */
};

void device_init(struct world_device *w, const struct world_device_config *config);
void device_release(struct world_device *w); /* after device_close */
/* Any thread. The ops table of libhvd_cuda.so, which is in the folder of this library;
 * it stays loaded. -ENOENT with the reason: no usable one was found. */
int device_find_ops(const struct device_ops **ret, struct err *err);

/* Returns the device of a tensor in *ret; the first call opens the world's device. Any
 * thread. ordinal HVD_DEVICE_OF_POINTER: the device that p belongs to, or the world's
 * for an empty tensor (p NULL). Negative enum hvd_status with a text: the tensor is on
 * another device than the world's, or opening failed, now or earlier. */
int device_need(struct world_device *w,
                int ordinal,
                const void *p,
                struct device **ret,
                struct err *err);
/* Writes why this rank cannot use a GPU to ret: the reason of the last refusal or, if
 * `looks`, of an attempt to find a GPU; "": no reason is known. Any thread. */
void device_why_none(struct world_device *w, bool looks, char ret[REQUEST_WHY_MAX]);
/* NULL: none is open. Any thread. */
struct device *device_of(const struct world_device *w);
/* The world is broken: aborts the work on the GPU. Returns at once. */
void device_abort(struct world_device *w);
/* Called after its communicators are closed, when no thread uses it. After an orderly
 * end (LIFE_DOWN) its memory is freed; that of a broken world (LIFE_ABORTED) is
 * parked. */
void device_close(struct world_device *w, enum life life);
/* In a forked child: the GPU and what is parked belong to the parent and are
 * forgotten. */
void device_forked(const struct world_device *w);
void device_park_forked(struct device_park *park);

/* hvd_device_report; config as of a world that has not formed. */
void device_report_text(const struct gpu_settings *s,
                        const char *hint,
                        struct strbuf *out);

#endif

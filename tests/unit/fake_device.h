/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU in memory: a row of device_ops whose "device memory" is from malloc, and whose
 * communicators are the CPU ones that they were opened over. A batch is computed when
 * it is posted and finishes when its rank allows it (fake_hold, fake_let): the tests
 * are about the time between. Include in one file of a program: it defines the row
 * that runtime/engine/device.c looks for. */
#ifndef TESTS_UNIT_FAKE_DEVICE_H
#define TESTS_UNIT_FAKE_DEVICE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "runtime/backend/device.h"
#include "runtime/base/mem.h"
#include "runtime/core/compress/codec.h"
#include "runtime/core/nonfinite.h"
#include "tests/fakes/cuda/lock.h"

/* It has the parameters of a real row. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct device_event {
    _Atomic uint32_t refs;
};

struct fake_comm {
    struct backend base;
    struct backend *meeting;
    uint64_t posted;
    struct device_event *events[4096];
    uint64_t bad_ticket;
    size_t bad_item;
    struct nonfinite bad;
};

struct device {
    int ordinal;
    struct device_config config;
};

static struct fake { /* of this process */
    struct device device;
    pthread_mutex_t lock;
    bool holds, is_aborted;
    uint64_t n_let; /* while it holds: tickets done of each communicator */
    char broken[200];
    const char *open_fails;
    const char *problem; /* of the report */
    int n_gpus;
    _Atomic int n_opened, n_closed, n_comms, n_comms_closed, n_events, n_records,
        n_waits, n_awaiting, n_allocs, n_given, n_frees, n_batches, n_items_last;
    _Atomic int n_registered, n_forgotten, region_last;
    _Atomic int seat_slack_ns; /* of the background thread in post; 0: it did not */
    const char *register_fails;
    int alloc_result; /* an error, and */
    const char *alloc_fails;
    void *last_wait_stream, *last_free_stream;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_gpus = 8};

/* --- what a test does with it --- */

static inline void fake_hold(void)
{
    LOCK_HERE(&fake.lock);
    fake.holds = true;
    fake.n_let = 0;
}

/* n tickets of each communicator are done; from 1. */
static inline void fake_let(uint64_t n)
{
    (void)pthread_mutex_lock(&fake.lock);
    fake.n_let = n;
    (void)pthread_mutex_unlock(&fake.lock);
    fake.device.config.wake(fake.device.config.arg);
}

static inline void fake_break(const char *why)
{
    (void)pthread_mutex_lock(&fake.lock);
    (void)snprintf(fake.broken, sizeof(fake.broken), "%s", why);
    (void)pthread_mutex_unlock(&fake.lock);
    fake.device.config.wake(fake.device.config.arg);
}

/* --- the device --- */

static void fake_report(const struct device_config *c, struct device_report *ret)
{
    memset(ret, 0, sizeof(*ret));
    (void)snprintf(ret->driver, sizeof(ret->driver), "1.2");
    (void)snprintf(ret->problem, sizeof(ret->problem), "%s",
                   fake.problem ? fake.problem : "");
    (void)snprintf(ret->nccl_path, sizeof(ret->nccl_path), "%s",
                   c->nccl_hint ? c->nccl_hint : "");
    ret->n_gpus = (uint32_t)fake.n_gpus;
    for (int i = 0; i < fake.n_gpus; i++)
        (void)snprintf(ret->gpus[i].name, sizeof(ret->gpus[i].name), "Fake \"%d\"", i);
}

static int fake_open(const struct device_config *c,
                     int ordinal,
                     struct device **ret,
                     struct err *err)
{
    if (fake.open_fails)
        return err_set(err, -ENODEV, "%s", fake.open_fails);
    if (ordinal >= fake.n_gpus)
        return err_set(err, -ENODEV, "there is no GPU %d here", ordinal);
    fake.device = (struct device){ordinal, *c};
    fake.n_opened++;
    *ret = &fake.device;
    return 0;
}

static int fake_close(struct device *d, struct device_parked **ret)
{
    fake.n_closed++;
    *ret = NULL;
    return 0;
}

static void fake_parked_free(struct device_parked *p) {}

static void fake_forked(struct device *d) {}

static void fake_counts(struct device *d, struct device_counts *ret)
{
    *ret = (struct device_counts){0};
}

static int fake_ordinal(struct device *d)
{
    return d->ordinal;
}

/* Memory whose first byte is 0xee is not the device's. */
static int fake_ordinal_of(const void *p)
{
    return *(const uint8_t *)p == 0xee ? -EINVAL : 0;
}

static struct device_event *fake_event(void)
{
    struct device_event *e = mem_zalloc(sizeof(*e));

    if (e) {
        e->refs = 1;
        fake.n_events++;
    }
    return e;
}

#define FAKE_CAPTURED ((void *)(uintptr_t)0xcafe)

static int
fake_record(struct device *d, void *stream, struct device_event **ret, struct err *err)
{
    if (stream == FAKE_CAPTURED)
        return err_set(err, -EBUSY, "its stream is being captured");
    *ret = fake_event();
    fake.n_records++;
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static struct device_event *fake_event_ref(struct device_event *e)
{
    e->refs++;
    return e;
}

static void fake_event_unref(struct device_event *e)
{
    if (!e || --e->refs > 0)
        return;
    fake.n_events--;
    mem_free(e);
}

static int fake_wait(struct device *d,
                     struct device_event *e,
                     void *stream,
                     uint64_t deadline_ns,
                     struct err *err)
{
    LOCK_HERE(&fake.lock);
    fake.n_waits++;
    fake.last_wait_stream = stream;
    return fake.broken[0] ? err_set(err, -ECONNABORTED, "%s", fake.broken) : 0;
}

static int fake_alloc(struct device *d,
                      uint64_t bytes,
                      void **ret,
                      struct device_event **ret_given,
                      struct err *err)
{
    if (fake.alloc_fails)
        return err_set(err, fake.alloc_result, "%s", fake.alloc_fails);
    *ret_given = fake_event();
    *ret = mem_zalloc(bytes);
    fake.n_allocs++;
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static void fake_free(void *p, void *stream)
{
    fake.last_free_stream = stream;
    fake.n_frees++;
    mem_free(p);
}

static void fake_await(struct device *d, bool begins)
{
    fake.n_awaiting += begins ? 1 : -1;
}

static void fake_abort(struct device *d)
{
    LOCK_HERE(&fake.lock);
    fake.is_aborted = true;
}

static bool fake_quiesce(struct device *d, uint64_t deadline_ns)
{
    return fake.is_aborted;
}

/* --- communicators --- */

static int fake_post(struct backend *b,
                     const struct batch *batch,
                     uint64_t *ret_ticket,
                     struct err *err)
{
    struct fake_comm *c = (struct fake_comm *)b;
    struct batch host = *batch;
    AUTOFREE struct batch_item *items = mem_calloc(batch->n_items, sizeof(*items));
    AUTOFREE void *zeros = NULL;
    uint64_t ticket, most = 0;
    char thread[16] = "";
    int r;

    if (!items || batch->place != PLACE_CUDA)
        return err_set(err, -EINVAL, "a batch of the host");
    for (size_t i = 0; i < batch->n_items; i++)
        most = batch->items[i].count > most ? batch->items[i].count : most;
    zeros = mem_calloc(most + 1, 16);
    for (size_t i = 0; i < batch->n_items; i++) {
        items[i] = batch->items[i];
        if (!items[i].in && !items[i].out)
            items[i].in = items[i].out = zeros;
        else if (!items[i].ready)
            return err_set(err, -EINVAL, "an item without its event");
        fake.n_given += items[i].given != NULL;
        items[i].ready = items[i].given = NULL;
    }
    (void)pthread_getname_np(pthread_self(), thread, sizeof(thread));
    if (strcmp(thread, "hvd-coordinator") == 0)
        fake.seat_slack_ns = prctl(PR_GET_TIMERSLACK);
    host.place = PLACE_HOST;
    host.items = items;
    fake.n_batches++;
    fake.region_last = (int)batch->region;
    fake.n_items_last = (int)batch->n_items;
    r = c->meeting->ops->post(c->meeting, &host, &ticket, err);
    if (r < 0)
        return r;
    *ret_ticket = ++c->posted;
    c->events[*ret_ticket % 4096] = fake_event();
    return 0;
}

/* Nothing is compressed: that is the device's own business. */
static int fake_post_codec(struct backend *b,
                           const struct batch *batch,
                           const char *const *names,
                           uint32_t set,
                           const struct codec_plan *plans,
                           uint64_t *ret_ticket,
                           struct err *err)
{
    return fake_post(b, batch, ret_ticket, err);
}

static int fake_poll(struct backend *b, uint64_t *ret_done, struct err *err)
{
    struct fake_comm *c = (struct fake_comm *)b;

    LOCK_HERE(&fake.lock);
    *ret_done = fake.holds && fake.n_let < c->posted ? fake.n_let : c->posted;
    if (fake.broken[0])
        return err_set(err, -ECONNABORTED, "%s", fake.broken);
    if (c->bad_ticket > 0 && *ret_done >= c->bad_ticket)
        return err_set(err, -EDOM, "a NaN");
    return 0;
}

static void fake_comm_abort(struct backend *b) {}

static void fake_comm_close(struct backend *b)
{
    struct fake_comm *c = (struct fake_comm *)b;

    for (size_t i = 0; i < ARRAY_LEN(c->events); i++)
        fake_event_unref(c->events[i]);
    fake.n_comms_closed++;
    mem_free(c);
}

static const struct backend_ops fake_comm_ops = {.name = "fake gpu",
                                                 .post = fake_post,
                                                 .poll = fake_poll,
                                                 .abort = fake_comm_abort,
                                                 .close = fake_comm_close};

static int fake_comm_open(struct device *d,
                          struct backend *meeting,
                          const struct backend_env *env,
                          const uint32_t *ranks,
                          struct backend **ret,
                          struct err *err)
{
    struct fake_comm *c = mem_zalloc(sizeof(*c));

    if (!c || ranks[env->rank] != fake.device.config.rank)
        return err_set(err, -EINVAL, "rank %u of %u is not this one", env->rank,
                       env->size);
    c->base.ops = &fake_comm_ops;
    c->meeting = meeting;
    fake.n_comms++;
    *ret = &c->base;
    return 0;
}

static int fake_comm_refuse(struct backend *meeting,
                            const struct backend_env *env,
                            const uint32_t *ranks,
                            const char *const *hosts,
                            const char *problem,
                            struct err *err)
{
    return err_set(err, -ENODEV, "%s", problem);
}

static int fake_comm_split(struct backend *parent,
                           const uint32_t *ranks,
                           uint32_t n,
                           struct backend **ret,
                           struct err *err)
{
    return err_set(err, -ENOTSUP, "it is opened at its first batch");
}

static struct device_event *fake_ticket_event(struct backend *b, uint64_t ticket)
{
    return fake_event_ref(((struct fake_comm *)b)->events[ticket % 4096]);
}

static int
fake_post_check(struct backend *b, const struct batch *batch, struct err *err)
{
    struct fake_comm *c = (struct fake_comm *)b;

    for (size_t i = 0; i < batch->n_items && c->bad_ticket == 0; i++)
        if (batch->items[i].in
            && nonfinite_find(batch->dtype, batch->items[i].in, batch->items[i].count,
                              &c->bad)) {
            c->bad_ticket = c->posted + 1;
            c->bad_item = i;
        }
    return 0;
}

static int fake_bad_item(struct backend *b, size_t *ret_item, struct nonfinite *ret)
{
    struct fake_comm *c = (struct fake_comm *)b;

    *ret_item = c->bad_item;
    *ret = c->bad;
    return 0;
}

static int fake_register(struct backend *b, void *p, uint64_t bytes, struct err *err)
{
    if (fake.register_fails)
        return err_set(err, -ENOTSUP, "%s", fake.register_fails);
    fake.n_registered++;
    return 0;
}

static void fake_deregister(struct backend *b, void *p)
{
    fake.n_forgotten++;
}

static void fake_forget(struct device *d, uint32_t set) {}

static const struct device_ops fake_row = {.abi = DEVICE_ABI,
                                           .size_bytes = sizeof(struct device_ops),
                                           .report = fake_report,
                                           .open = fake_open,
                                           .close = fake_close,
                                           .parked_free = fake_parked_free,
                                           .forked = fake_forked,
                                           .ordinal = fake_ordinal,
                                           .counts = fake_counts,
                                           .ordinal_of = fake_ordinal_of,
                                           .record = fake_record,
                                           .event_ref = fake_event_ref,
                                           .event_unref = fake_event_unref,
                                           .wait = fake_wait,
                                           .await = fake_await,
                                           .alloc = fake_alloc,
                                           .free = fake_free,
                                           .abort = fake_abort,
                                           .quiesce = fake_quiesce,
                                           .comm_open = fake_comm_open,
                                           .comm_refuse = fake_comm_refuse,
                                           .comm_split = fake_comm_split,
                                           .ticket_event = fake_ticket_event,
                                           .post_codec = fake_post_codec,
                                           .post_check = fake_post_check,
                                           .bad_item = fake_bad_item,
                                           .buffer_register = fake_register,
                                           .buffer_forget = fake_deregister,
                                           .state_forget_set = fake_forget};
extern const struct device_ops *const hvd_device_linked;
const struct device_ops *const hvd_device_linked = &fake_row;

#endif

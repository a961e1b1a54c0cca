/* SPDX-License-Identifier: Apache-2.0 */
/* XIDs, the driver's error reports about a GPU or a program, as NVML delivers them:
 * selects the one that is kept for the cause of a device's end, and formats it.
 *
 * NVML may not answer for a minute, while the driver waits for a GPU that hangs; ends
 * of batches and of ranks must be seen meanwhile. So one thread calls it, and does
 * nothing else. The watcher sends a query every 100 ms and continues; a thread that
 * breaks the device sends one, and continues without an answer after a quarter of a
 * second. Waiting in NVML for an event instead could not be ended by a close.
 *
 * The thread and the device hold a reference each, because the thread may return from
 * NVML when the device no longer exists; it does not use the device. */
#include "runtime/backend/nccl/xid.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "runtime/backend/nccl/futex.h"
#include "runtime/backend/nccl/gpu.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#define AGE_NS  (10 * NS_PER_S) /* an older one is unrelated */
#define TELL_NS (250 * NS_PER_MS)
#define STOP_NS (200 * NS_PER_MS)
#define STOP    1u /* in asked: the last query */
#define ONE     2u

struct xids {
    char pci[16];
    _Atomic uint32_t refs;
    _Atomic uint32_t asked;    /* a futex word: ONE per query, and STOP */
    _Atomic uint32_t answered; /* likewise: value of asked before NVML was called */
    _Atomic bool is_fatal;
    pthread_mutex_t lock; /* last, last_ns; a leaf */
    unsigned last;        /* 0: none */
    uint64_t last_ns;
};

static void xids_unref(struct xids *x)
{
    if (atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) > 1)
        return;
    (void)pthread_mutex_destroy(&x->lock);
    mem_free(x);
}

/* --- the thread --- */

static void xids_keep(struct xids *x, unsigned xid)
{
    uint64_t now_ns = clock_now_ns();

    (void)pthread_mutex_lock(&x->lock);
    const bool says_more = x->last != 0 && now_ns - x->last_ns < AGE_NS
                           && (nvml_xid_is_aftermath(xid) || nvml_xid_is_fatal(x->last)
                               || (!*nvml_xid_text(xid) && *nvml_xid_text(x->last)));
    if (!says_more) {
        x->last = xid;
        x->last_ns = now_ns;
    }
    (void)pthread_mutex_unlock(&x->lock);
}

static void xids_read(struct xids *x, const struct nvml_api *nvml, nvml_set set)
{
    bool is_fatal = false;
    unsigned xid;

    /* a lost GPU reports one each time */
    while (!is_fatal && set && (xid = nvml_xids_next(nvml, set)) != 0) {
        is_fatal = nvml_xid_is_fatal(xid);
        xids_keep(x, xid);
    }
    if (is_fatal)
        atomic_store_explicit(&x->is_fatal, true, memory_order_release);
}

static void *listen_main(void *arg)
{
    struct xids *x = arg;
    uint32_t asked, answered = 0;

    (void)pthread_setname_np(pthread_self(), "hvd-gpu-xid"); /* only for people */
    const struct nvml_api *nvml = nvml_load();
    nvml_set set = nvml_xids_new(nvml, x->pci);
    do {
        while ((asked = atomic_load_explicit(&x->asked, memory_order_acquire))
               == answered)
            futex_wait(&x->asked, asked, UINT64_MAX);
        if (!(asked & STOP))
            xids_read(x, nvml, set);
        else if (set)
            (void)nvml->set_free(set);
        answered = asked;
        atomic_store_explicit(&x->answered, asked, memory_order_release);
        futex_wake(&x->answered);
    } while (!(asked & STOP));
    xids_unref(x);
    return NULL;
}

/* --- callers --- */

/* Returns the value that x->answered must reach. */
static uint32_t xids_request(struct xids *x, uint32_t what)
{
    const uint32_t before =
        atomic_fetch_add_explicit(&x->asked, what, memory_order_release);

    futex_wake(&x->asked);
    return before + what;
}

static bool xids_wait(struct xids *x, uint32_t asked, uint64_t ns)
{
    const uint64_t deadline_ns = clock_now_ns() + ns;

    for (;;) {
        const uint32_t seen = atomic_load_explicit(&x->answered, memory_order_acquire);
        const uint64_t left_ns = futex_left(deadline_ns);
        if ((int32_t)(seen - asked) >= 0)
            return true;
        if (left_ns == 0)
            return false;
        futex_wait(&x->answered, seen, left_ns);
    }
}

void xids_request_query(struct xids *x)
{
    (void)xids_request(x, ONE); /* does not wait for the answer */
}

bool xids_query(struct xids *x, uint64_t ns)
{
    return xids_wait(x, xids_request(x, ONE), ns);
}

bool xids_are_fatal(const struct xids *x)
{
    return atomic_load_explicit(&x->is_fatal, memory_order_acquire);
}

unsigned xids_last(struct xids *x)
{
    (void)pthread_mutex_lock(&x->lock);
    unsigned xid = clock_now_ns() - x->last_ns < AGE_NS ? x->last : 0;
    (void)pthread_mutex_unlock(&x->lock);
    return xid;
}

int xids_start(const char *pci, struct xids **ret, struct err *err)
{
    struct xids *x = mem_zalloc(sizeof(*x));
    pthread_t t;

    if (!x)
        return err_set(err, -ENOMEM, "out of host memory for the state of a GPU");
    (void)snprintf(x->pci, sizeof(x->pci), "%s", pci);
    (void)pthread_mutex_init(&x->lock, NULL); /* cannot fail on Linux */
    atomic_store_explicit(&x->refs, 2, memory_order_relaxed);
    int rc = thread_start(&t, listen_main, x);
    if (rc == 0) {
        (void)pthread_detach(t); /* it may outlive the device */
        *ret = x;
        return 0;
    }
    xids_unref(x);
    xids_unref(x);
    return err_errno(err, rc, "a thread for the GPU");
}

void xids_stop(struct xids *x)
{
    if (!x)
        return;
    (void)xids_wait(x, xids_request(x, STOP), STOP_NS); /* or it frees the rest later */
    xids_unref(x);
}

/* --- the message --- */

void gpu_xid_text(struct device *g, char *ret, size_t size_bytes)
{
    char host[300];

    ret[0] = '\0';
    (void)xids_query(g->xids,
                     TELL_NS); /* XIDs received before are reported in any case */
    const unsigned xid = xids_last(g->xids);
    const char *text = nvml_xid_text(xid), *hint = nvml_xid_hint(xid);
    if (xid != 0)
        (void)snprintf(ret, size_bytes,
                       "XID %u%s%s%s on GPU %d (PCI %s) of rank %u%.200s%s%s; ", xid,
                       *text ? " (" : "", text, *text ? ")" : "", g->ordinal, g->pci,
                       g->config.rank, gpu_host_text(g, g->config.rank, host),
                       *hint ? ": " : "", hint);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* XIDs, the driver's word on what a GPU or a program did, as NVML tells them: which of
 * several is kept for the cause of a device's end, and its sentence. Called by the
 * watcher, and by whoever breaks the device. NVML may not answer for a minute, while
 * the driver waits for a GPU that hangs: the watcher, which asks most often, is the one
 * that finds out; others then go on without it, for the seat must hear and tell. */
#include <stdio.h>
#include <time.h>

#include "runtime/backend/nccl/gpu.h"
#include "runtime/base/clock.h"

#define XID_AGE_NS (10 * NS_PER_S) /* an older one has nothing to do with it */
#define LOCK_NAPS  50              /* of a millisecond */

/* xid_lock is held. */
static bool hear(struct device *g)
{
    unsigned xid;
    bool is_fatal = false;

    while (!is_fatal && g->xids && (xid = nvml_xids_next(g->nvml, g->xids)) != 0) {
        uint64_t now_ns = clock_now_ns();
        is_fatal |= nvml_xid_is_fatal(xid);
        if (g->xid != 0 && now_ns - g->xid_ns < XID_AGE_NS
            && (nvml_xid_is_aftermath(xid) || nvml_xid_is_fatal(g->xid)
                || (!*nvml_xid_text(xid) && *nvml_xid_text(g->xid))))
            continue; /* what is kept says more */
        g->xid = xid;
        g->xid_ns = now_ns;
    }
    return is_fatal;
}

bool gpu_hear_xids(struct device *g)
{
    (void)pthread_mutex_lock(&g->xid_lock);
    bool is_fatal = hear(g);
    (void)pthread_mutex_unlock(&g->xid_lock);
    return is_fatal;
}

/* False: NVML has somebody, for long. */
static bool lock_in_time(struct device *g)
{
    for (int i = 0; i < LOCK_NAPS; i++) {
        if (pthread_mutex_trylock(&g->xid_lock) == 0)
            return true;
        (void)nanosleep(&(struct timespec){0, NS_PER_MS}, NULL); /* early is fine */
    }
    return false;
}

void gpu_tell_xid(struct device *g, char *ret, size_t size_bytes)
{
    char host[300];

    ret[0] = '\0';
    if (!lock_in_time(g))
        return;
    (void)hear(g); /* it is broken anyway */
    unsigned xid = g->xid;
    bool is_new = xid != 0 && clock_now_ns() - g->xid_ns < XID_AGE_NS;
    (void)pthread_mutex_unlock(&g->xid_lock);
    const char *text = nvml_xid_text(xid), *hint = nvml_xid_hint(xid);
    if (is_new)
        (void)snprintf(ret, size_bytes, "XID %u%s%s%s on GPU %d of rank %u%.200s%s%s; ",
                       xid, *text ? " (" : "", text, *text ? ")" : "", g->ordinal,
                       g->config.rank, gpu_host_text(g, g->config.rank, host),
                       *hint ? ": " : "", hint);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Detects a running mpi-operator by its Lease.
 *
 *   unknown --holder, and another version than last time--> alive: a warning
 *   alive   --the same version, no holder, or no Lease----> quiet: reported once
 *
 * A Lease that no process renews may exist forever, so only a change counts; clocks are
 * not compared. Without the right to read it, or without an answer, nothing changes.
 * Called by the loop while this process leads. */
#include "operator/rival.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/core/lease.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define LEASE_NAME  "mpi-operator" /* mpi-operator has no option for another */
#define LATER_STEPS 6u

struct rival {
    struct kube *kube;
    const char *ns;
    uint64_t step_ns, due_ns;
    char version[64]; /* at the last check, "" before the first */
    bool is_open, is_alive;
};

int rival_new(struct kube *kube, const char *ns, uint64_t step_ms, struct rival **ret)
{
    struct rival *r = mem_zalloc(sizeof(*r));

    if (!r)
        return -ENOMEM;
    r->kube = kube;
    r->ns = ns;
    r->step_ns = step_ms * NS_PER_MS;
    *ret = r;
    return 0;
}

void rival_free(struct rival *r)
{
    mem_free(r);
}

bool rival_is_alive(const struct rival *r)
{
    return r->is_alive;
}

void rival_forget(struct rival *r)
{
    r->version[0] = '\0';
    r->is_alive = false;
    r->due_ns = 0;
}

uint64_t rival_next_ns(const struct rival *r)
{
    return r->is_open ? UINT64_MAX : r->due_ns;
}

static void on_rival_answer(void *arg, const struct kube_reply *reply)
{
    struct rival *r = arg;
    struct lease_record now = {0};
    bool was_alive = r->is_alive, is_first = !*r->version;

    if (reply->answer.cls == ANSWER_OK)
        (void)lease_parse(reply->body, reply->n, &now); /* else it reads as empty */
    r->is_open = false;
    r->due_ns =
        clock_now_ns() + r->step_ns * (is_first && *now.version ? 1 : LATER_STEPS);
    if (reply->answer.cls != ANSWER_OK && reply->answer.cls != ANSWER_NOT_FOUND)
        return;
    r->is_alive = *now.holder && !is_first && strcmp(r->version, now.version) != 0;
    (void)snprintf(r->version, sizeof(r->version), "%s", now.version);
    if (r->is_alive && !was_alive)
        log_warn("mpi-operator runs, too: both act on MPIJobs without managedBy; "
                 "stop one, or set runPolicy.managedBy",
                 "lease=%s/" LEASE_NAME " holder=%s", r->ns, now.holder);
    else if (was_alive && !r->is_alive)
        log_info("mpi-operator no longer runs", "lease=%s/" LEASE_NAME, r->ns);
}

void rival_tick(struct rival *r, uint64_t now_ns)
{
    struct kube_request rq = {.method = "GET",
                              .kind = KUBE_LEASE,
                              .ns = r->ns,
                              .name = LEASE_NAME,
                              .done = on_rival_answer,
                              .arg = r};

    if (r->is_open || now_ns < r->due_ns)
        return;
    r->is_open = kube_submit(r->kube, &rq, NULL) == 0;
    if (!r->is_open)
        r->due_ns = now_ns + r->step_ns;
}

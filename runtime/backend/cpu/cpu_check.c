/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a communicator can continue: the checks of all waits, and the end after an
 * error.
 *
 * A check fails if the communicator or one of its ancestors was aborted, the caller
 * interrupts, a rank was reported lost, or the awaited rank is on this host and has
 * left or exited.
 *
 * Called by wait.c through cpu.w, group.c, agree.c, coll.c, subset.c. */
#include <errno.h>

#include "runtime/backend/cpu/cpu.h"

static int
cpu_member_lost(const struct cpu *c, uint32_t member, const char *how, struct err *err)
{
    return err_set(err, -ECONNRESET, "lost rank %u (host %s): %s",
                   cpu_global(c, member), c->peers[member].host, how);
}

/* The member with this global rank; size: none. */
static uint32_t member_of(const struct cpu *c, int64_t rank)
{
    uint32_t lo = 0, hi = c->env.size;
    while (lo < hi) { /* global ranks ascend */
        uint32_t mid = lo + (hi - lo) / 2;
        if (cpu_global(c, mid) < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->env.size && cpu_global(c, lo) == rank ? lo : c->env.size;
}

static int check_local_peer(struct cpu *c, uint32_t rank, struct err *err)
{
    uint32_t known = member_of(c, shm_lost(&c->shm)), m = member_of(c, rank);
    if (known < c->env.size)
        return cpu_member_lost(c, known, "connection closed", err);
    if (m == c->env.size || m == c->env.rank || c->host_of[m] != c->host)
        return 0;
    if (shm_has_left(&c->shm, rank)) {
        shm_report_lost(&c->shm, rank);
        return cpu_member_lost(c, m, "it has shut down", err);
    }
    uint32_t line = c->shm.line_of[c->local_of[m]];
    if (!peer_same_process(&c->peers[m], &c->peers[c->env.rank])
        && !shm_is_alive(&c->map, line)) {
        shm_report_lost(&c->shm, rank);
        return cpu_member_lost(c, m, "connection closed", err);
    }
    return 0;
}

/* True if c or one of its ancestors was aborted. */
static bool is_aborted(const struct cpu *c)
{
    for (; c; c = c->parent)
        if (atomic_load_explicit(&c->is_aborted, memory_order_relaxed))
            return true;
    return false;
}

static int cpu_interrupted(const struct cpu *c, struct err *err)
{
    while (c->parent)
        c = c->parent;
    return !c->env.interrupted ? 0 : c->env.interrupted(c->env.arg, err);
}

int cpu_check_member(struct cpu *c, uint32_t rank, struct err *err)
{
    if (is_aborted(c))
        return err_set(err, -ECANCELED, "aborted");
    return !c->shm.h ? 0 : check_local_peer(c, rank, err);
}

int cpu_check_waiting(void *arg, uint32_t rank, struct err *err)
{
    struct cpu *c = arg;
    if (is_aborted(c))
        return err_set(err, -ECANCELED, "aborted");
    int rc = cpu_interrupted(c, err);
    return rc < 0 ? rc : cpu_check_member(c, rank, err);
}

/* The world's communicator has no peers to check yet; a set's is created within its
 * parent. */
int cpu_check_connecting(void *arg, uint32_t rank, struct err *err)
{
    struct cpu *c = arg;
    (void)rank; /* no particular rank is waited for */
    if (is_aborted(c))
        return err_set(err, -ECANCELED, "aborted while connecting");
    int rc = cpu_interrupted(c, err);
    for (uint32_t m = 0; c->parent && m < c->env.size && rc == 0; m++)
        rc = cpu_check_member(c->parent, cpu_global(c, m), err);
    return rc;
}

int cpu_break(struct cpu *c, int rc, const struct err *why, struct err *err)
{
    if (c->net.peers && c->net.lost >= 0 && c->shm.h)
        shm_report_lost(&c->shm, (uint32_t)c->net.lost);
    c->broken = *why;
    return err_set(err, rc, "%s", why->text);
}

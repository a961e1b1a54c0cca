/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict of the hub, from rank 0's record and the findings of the agents:
 *
 *   rank 1 (host b, pid 412) has not submitted tensor "grad/0" (ALLREDUCE) for 63 s: its
 *   main thread waits for a lock held elsewhere, in step (train.py:42)
 *
 * Of several missing ranks the one is named that waits for no other rank: the ones that
 * wait in another collective are usually consequences. Only if all of them do, they are
 * out of step. A finding that was made while a rank waits passively counts as out of
 * step, too, if rank 0 knows of another tensor of this rank: TensorFlow waits for its
 * operations in threads of its own. Called by the hub of the agents. */
#include "runtime/launch/core/hang.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

struct verdict_search {
    const struct stall_record *r;
    const struct hang_finding *const *v;
    size_t n;
    const char *(*host_of)(void *arg, uint32_t rank);
    void *arg;
};

void hang_finding_pack(const struct hang_finding *f, struct strbuf *out)
{
    bytes_put_u32(out, f->rank);
    bytes_put_u32(out, f->pid);
    bytes_put(out, f->cause, 1);
    bytes_put(out, f->is_in_collective, 1);
    bytes_put_name(out, f->does, sizeof(f->does));
    bytes_put_name(out, f->place, sizeof(f->place));
    bytes_put_name(out, f->stacks, sizeof(f->stacks));
}

int hang_finding_unpack(const void *p,
                        size_t n,
                        struct hang_finding *ret,
                        struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    uint64_t rank, pid, cause, in_collective;
    AUTOFREE struct hang_finding *f = mem_zalloc(sizeof(*f));

    if (!f)
        return err_set(err, -ENOMEM, "out of memory");
    if (!bytes_get(&in, 4, &rank) || !bytes_get(&in, 4, &pid)
        || !bytes_get(&in, 1, &cause) || !bytes_get(&in, 1, &in_collective)
        || !bytes_get_name(&in, f->does, sizeof(f->does))
        || !bytes_get_name(&in, f->place, sizeof(f->place))
        || !bytes_get_name(&in, f->stacks, sizeof(f->stacks)))
        return err_set(err, -EPROTO, "examination of a rank: it is cut off or damaged");
    if (cause > LIVE_CAUSE_ABSENT)
        cause = LIVE_CAUSE_UNKNOWN; /* of a newer agent */
    f->rank = (uint32_t)rank;
    f->pid = (uint32_t)pid;
    f->cause = (enum live_cause)cause;
    f->is_in_collective = in_collective != 0;
    *ret = *f;
    return 0;
}

/* --- the choice --- */

static const struct hang_finding *finding_of(const struct verdict_search *s,
                                             uint32_t rank)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i]->rank == rank)
            return s->v[i];
    return NULL;
}

static bool finding_is_passive(const struct hang_finding *f)
{
    return f->is_in_collective || f->cause == LIVE_CAUSE_SLEEPING
           || f->cause == LIVE_CAUSE_LOCK;
}

static enum live_cause missing_cause(const struct verdict_search *s,
                                     const struct stall_missing *m)
{
    const struct hang_finding *f = finding_of(s, m->rank);

    if (!f)
        return LIVE_CAUSE_UNKNOWN;
    return m->tensor[0] && finding_is_passive(f) ? LIVE_CAUSE_BRANCH : f->cause;
}

/* Higher: more likely the cause. */
static int missing_weight(const struct verdict_search *s, const struct stall_missing *m)
{
    const struct hang_finding *f = finding_of(s, m->rank);
    enum live_cause cause = missing_cause(s, m);

    if (!f || cause == LIVE_CAUSE_UNKNOWN)
        return 0;
    if (cause == LIVE_CAUSE_BRANCH)
        return 2;
    return f->is_in_collective ? 1 : 3;
}

/* NULL: the record lists none. */
static const struct stall_missing *missing_select(const struct verdict_search *s)
{
    const struct stall_missing *best = NULL;

    for (uint32_t i = 0; i < s->r->n_listed; i++)
        if (!best || missing_weight(s, &s->r->missing[i]) > missing_weight(s, best))
            best = &s->r->missing[i];
    return best;
}

/* Without a record: a rank that hangs so that no record can come, best rank 0. */
static const struct hang_finding *finding_select(const struct verdict_search *s)
{
    const struct hang_finding *best = NULL;

    for (size_t i = 0; i < s->n; i++) {
        const struct hang_finding *f = s->v[i];
        bool is_stuck = f->cause == LIVE_CAUSE_STOPPED || f->cause == LIVE_CAUSE_ABSENT;

        if (is_stuck && (!best || f->rank < best->rank))
            best = f;
    }
    return best;
}

/* --- the sentence --- */

static const char *search_host(const struct verdict_search *s, uint32_t rank)
{
    const char *host = s->host_of ? s->host_of(s->arg, rank) : NULL;

    return host ? host : "";
}

void hang_put_rank(uint32_t rank, const char *host, uint32_t pid, struct strbuf *out)
{
    strbuf_printf(out, "rank %u", rank);
    if (*host && pid)
        strbuf_printf(out, " (host %s, pid %u)", host, pid);
    else if (*host)
        strbuf_printf(out, " (host %s)", host);
    else if (pid)
        strbuf_printf(out, " (pid %u)", pid);
}

static void
search_put_rank(const struct verdict_search *s, uint32_t rank, struct strbuf *out)
{
    const struct hang_finding *f = finding_of(s, rank);

    hang_put_rank(rank, search_host(s, rank), f ? f->pid : 0, out);
}

/* Where one of the ranks is that wait: out of step is a matter of two. */
static void put_waiting(const struct verdict_search *s, struct strbuf *out)
{
    for (size_t i = 0; i < s->n; i++) {
        const struct hang_finding *f = s->v[i];

        if (!f->place[0] || stall_record_is_missing(s->r, f->rank))
            continue;
        strbuf_printf(out, "; rank %u is at %s", f->rank, f->place);
        return;
    }
}

static void put_branch(const struct verdict_search *s,
                       const struct stall_missing *m,
                       struct strbuf *out)
{
    const struct hang_finding *f = finding_of(s, m->rank);

    strbuf_printf(out, "it waits in another collective, tensor \"%s\" (%s)", m->tensor,
                  m->op);
    if (f && f->place[0])
        strbuf_printf(out, ", at %s", f->place);
    put_waiting(s, out);
    strbuf_puts(out, "; the ranks are out of step");
}

static void put_verdict(const struct verdict_search *s,
                        const struct stall_missing *m,
                        uint64_t now_wall_us,
                        struct strbuf *out)
{
    const struct hang_finding *f = finding_of(s, m->rank);
    uint64_t since_us = s->r->since_wall_us;
    uint32_t others = s->r->n_missing > 0 ? s->r->n_missing - 1 : 0;

    search_put_rank(s, m->rank, out);
    if (others > 0)
        strbuf_printf(out, " and %u more rank%s have", others, others == 1 ? "" : "s");
    else
        strbuf_puts(out, " has");
    strbuf_printf(
        out, " not submitted tensor \"%s\" (%s) for %llu s: ", s->r->tensor, s->r->op,
        (unsigned long long)(now_wall_us > since_us ? (now_wall_us - since_us) / 1000000
                                                    : 0));
    if (missing_cause(s, m) == LIVE_CAUSE_BRANCH)
        put_branch(s, m, out);
    else if (f)
        strbuf_printf(out, "%s%s", others > 0 ? "the former: " : "", f->does);
    else
        strbuf_puts(out, "it could not be examined");
}

void hang_conclude(const struct stall_record *r,
                   const struct hang_finding *const *v,
                   size_t n,
                   const char *(*host_of)(void *arg, uint32_t rank),
                   void *arg,
                   uint64_t now_wall_us,
                   struct live_stall *ret)
{
    const struct verdict_search s = {r, v, n, host_of, arg};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    const struct stall_missing *m = r ? missing_select(&s) : NULL;
    const struct hang_finding *f = r ? NULL : finding_select(&s);

    strbuf_init(&out, sizeof(ret->text) - 1);
    ret->rank = -1;
    ret->cause = LIVE_CAUSE_UNKNOWN;
    if (m) {
        ret->rank = (int32_t)m->rank;
        ret->cause = missing_cause(&s, m);
        put_verdict(&s, m, now_wall_us, &out);
    } else if (f) {
        ret->rank = (int32_t)f->rank;
        ret->cause = f->cause;
        search_put_rank(&s, f->rank, &out);
        strbuf_printf(&out, ": %s", f->does);
    }
    (void)snprintf(ret->text, sizeof(ret->text), "%s", strbuf_str(&out));
    (void)snprintf(ret->host, sizeof(ret->host), "%s",
                   ret->rank >= 0 ? search_host(&s, (uint32_t)ret->rank) : "");
    ret->has_stacks = false;
    for (size_t i = 0; i < n; i++)
        ret->has_stacks = ret->has_stacks || v[i]->stacks[0];
}

void hang_gpu_put(
    uint64_t sm, uint64_t nccl, uint64_t cuda, uint64_t n_batches, struct strbuf *out)
{
    if (sm == 0)
        return;
    strbuf_printf(out, "GPU: compute capability %llu.%llu",
                  (unsigned long long)(sm / 10), (unsigned long long)(sm % 10));
    if (nccl > 0)
        strbuf_printf(out, ", NCCL %llu.%llu.%llu", (unsigned long long)(nccl / 10000),
                      (unsigned long long)(nccl / 100 % 100),
                      (unsigned long long)(nccl % 100));
    if (cuda > 0)
        strbuf_printf(out, ", CUDA %llu.%llu", (unsigned long long)(cuda / 1000),
                      (unsigned long long)(cuda % 1000 / 10));
    strbuf_printf(out, ", %llu batches", (unsigned long long)n_batches);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Reports late ranks. Rank 0's coordinator calls this between steps. It visits tensors
 * from the oldest on and stops at the first one that is young enough.
 *
 * A deadlock is reported when it has lasted half the time of a warning: before that it may
 * be a rank that has just begun to submit what they wait for. It is searched for
 * only when a report is due, or when the oldest tensor is old enough for it to end the
 * world.
 *
 * Readers of the job's report want to ask again when a stall will have been explained, so
 * they must see one coming: a tensor is noticed after a quarter of that time. */
#include "runtime/core/stall.h"

#include <stdio.h>

#include "runtime/base/mem.h"
#include "runtime/core/deadlock.h"

enum { SHOW_TENSORS = 6, SHOW_RANKS = 16 };
static const uint64_t NS_IN_S = 1000000000ull;

struct walk {
    const struct stall *s;
    uint64_t now_ns, next_ns, waits_ns;
    bool report, must_fail, may_be_deadlock;
    size_t n_old;
    struct strbuf *out;
};

static uint64_t stall_earlier_ns(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void stall_put_ranks(struct strbuf *out,
                            const struct stall *s,
                            const struct negotiate_view *v)
{
    uint32_t shown = 0, missing = v->n_missing;

    if (v->coll == COLL_PROBE) {
        strbuf_puts(out, "a send from any rank");
        return;
    }
    if (missing == 0) {
        strbuf_puts(out, "the rest of its group");
        return;
    }
    strbuf_puts(out, missing == 1 ? "rank " : "ranks ");
    for (uint32_t r = 0; r < v->n_ranks && shown < SHOW_RANKS; r++)
        if (negotiate_is_missing(v, r)) {
            strbuf_printf(out, "%s%u", shown++ ? ", " : "", r);
            if (s->host_of)
                strbuf_printf(out, " (host %s)", s->host_of(s->arg, r));
        }
    if (missing > shown)
        strbuf_printf(out, " and %u more", missing - shown);
}

uint64_t stall_notice_ns(const struct stall *s)
{
    return s->warn_ns / 4;
}

static bool stall_find_due(void *arg, const struct negotiate_view *v)
{
    struct walk *w = arg;
    uint64_t age = w->now_ns > v->since_ns ? w->now_ns - v->since_ns : 0;

    if (w->s->fail_ns > 0 && age >= w->s->fail_ns)
        w->must_fail = true;
    else if (w->s->fail_ns > 0)
        w->next_ns = stall_earlier_ns(w->next_ns, v->since_ns + w->s->fail_ns);
    if (w->s->deadlock_ns > 0 && age >= w->s->deadlock_ns)
        w->may_be_deadlock = true;
    else if (w->s->deadlock_ns > 0)
        w->next_ns = stall_earlier_ns(w->next_ns, v->since_ns + w->s->deadlock_ns);
    if (w->s->warn_ns > 0) {
        uint64_t due = v->since_ns + w->s->warn_ns, notice_ns = stall_notice_ns(w->s);

        w->waits_ns = age >= notice_ns ? v->since_ns : 0;
        w->next_ns = stall_earlier_ns(
            w->next_ns, (w->waits_ns ? w->now_ns : v->since_ns) + notice_ns);
        if (w->s->last_ns > 0 && due < w->s->last_ns + w->s->warn_ns)
            due = w->s->last_ns + w->s->warn_ns;
        if (due <= w->now_ns)
            w->report = true;
        else
            w->next_ns = stall_earlier_ns(w->next_ns, due);
    }
    return false; /* only the oldest one counts */
}

static bool stall_put_tensor(void *arg, const struct negotiate_view *v)
{
    struct walk *w = arg;
    uint64_t age = w->now_ns > v->since_ns ? w->now_ns - v->since_ns : 0;
    uint64_t old = w->must_fail ? w->s->fail_ns : w->s->warn_ns;

    if (age < old)
        return false;
    if (w->n_old++ < SHOW_TENSORS) {
        strbuf_printf(w->out, "%stensor \"%s\" (%s) has waited %llu s for ",
                      w->n_old > 1 ? "; " : "", v->name, collective_name(v->coll),
                      (unsigned long long)(age / NS_IN_S));
        stall_put_ranks(w->out, w->s, v);
    }
    return true;
}

/* Writes the sentence about a deadlock that is old enough. True: it is to end the world. */
static bool stall_check_deadlock(struct walk *w, const struct negotiate *n)
{
    const struct stall *s = w->s;
    uint64_t limit_ns = s->deadlock_ns, since_ns, age_ns;
    struct deadlock d;

    if (!w->report && !w->must_fail && !w->may_be_deadlock)
        return false;
    if (deadlock_find(n, &d) < 0)
        d.n_ranks = 0; /* out of memory: it is searched for again */
    if (d.n_ranks == 0) {
        if (w->may_be_deadlock)
            w->next_ns = stall_earlier_ns(w->next_ns, w->now_ns + s->deadlock_ns / 2);
        return false;
    }
    since_ns = d.since_ns > s->resumed_ns ? d.since_ns : s->resumed_ns;
    age_ns = w->now_ns > since_ns ? w->now_ns - since_ns : 0;
    if (d.has_transfer) {
        limit_ns = 0;
        if (w->may_be_deadlock)
            w->next_ns = stall_earlier_ns(w->next_ns, w->now_ns + s->deadlock_ns / 2);
    }
    if (limit_ns > 0 && age_ns >= limit_ns) {
        deadlock_put(&d, w->out);
        return true;
    }
    if (limit_ns > 0)
        w->next_ns = stall_earlier_ns(w->next_ns, since_ns + limit_ns);
    if ((w->report || w->must_fail) && age_ns >= s->warn_ns / 2) {
        deadlock_put(&d, w->out);
        if (limit_ns > 0)
            strbuf_printf(w->out,
                          "; this ends the world in %llu s (HVD_DEADLOCK_TIMEOUT)",
                          (unsigned long long)((limit_ns - age_ns) / NS_IN_S));
        strbuf_puts(w->out, "; ");
    }
    return false;
}

enum stall_act stall_step(struct stall *s,
                          const struct negotiate *n,
                          uint64_t now_ns,
                          struct strbuf *out,
                          uint64_t *ret_next_ns)
{
    struct walk w = {.s = s, .now_ns = now_ns, .next_ns = UINT64_MAX, .out = out};
    bool is_deadlock;

    negotiate_walk(n, stall_find_due, &w);
    s->waits_ns = w.waits_ns;
    is_deadlock = stall_check_deadlock(&w, n);
    if (!is_deadlock && (w.report || w.must_fail)) {
        negotiate_walk(n, stall_put_tensor, &w);
        if (w.n_old > SHOW_TENSORS)
            strbuf_printf(out, " (and %zu more tensors)", w.n_old - SHOW_TENSORS);
        s->last_ns = now_ns;
        if (s->warn_ns > 0)
            w.next_ns = stall_earlier_ns(w.next_ns, now_ns + s->warn_ns);
    }
    *ret_next_ns = w.next_ns;
    if (is_deadlock)
        return STALL_DEADLOCK;
    if (w.must_fail)
        return STALL_FAIL;
    return w.report ? STALL_WARN : STALL_NONE;
}

/* --- the record --- */

struct stall_search {
    uint64_t before_ns; /* a tensor of that time or later is too young */
    bool is_old, has_best;
    struct negotiate_view best;
    struct stall_missing *missing; /* of stall_find_elsewhere; its rank is given */
};

static bool stall_view_is_transfer(const struct negotiate_view *v)
{
    return v->coll == COLL_SENDRECV || v->coll == COLL_PROBE;
}

/* A receive may be posted long before it is needed, so a transfer is the last choice. */
static bool stall_view_is_better(const struct negotiate_view *v,
                                 const struct negotiate_view *best)
{
    if (stall_view_is_transfer(v) != stall_view_is_transfer(best))
        return stall_view_is_transfer(best);
    return v->n_missing < best->n_missing;
}

static bool stall_find_best(void *arg, const struct negotiate_view *v)
{
    struct stall_search *s = arg;

    if (v->since_ns > s->before_ns)
        return false;
    s->is_old = true;
    if (v->n_missing > 0 && (!s->has_best || stall_view_is_better(v, &s->best))) {
        s->best = *v;
        s->has_best = true;
    }
    return true;
}

static bool stall_find_old(void *arg, const struct negotiate_view *v)
{
    struct stall_search *s = arg;

    s->is_old = v->since_ns <= s->before_ns;
    return false; /* the oldest decides */
}

static bool stall_find_elsewhere(void *arg, const struct negotiate_view *v)
{
    struct stall_search *s = arg;

    if (v->n_missing == 0 || stall_view_is_transfer(v)
        || !negotiate_is_submitted(v, s->missing->rank))
        return true;
    (void)snprintf(s->missing->op, sizeof(s->missing->op), "%s",
                   collective_name(v->coll));
    (void)snprintf(s->missing->tensor, sizeof(s->missing->tensor), "%s", v->name);
    return false;
}

static struct stall_search stall_search_from(const struct stall *s, uint64_t now_ns)
{
    return (struct stall_search){.before_ns = now_ns - s->warn_ns};
}

bool stall_lasts(const struct stall *s, const struct negotiate *n, uint64_t now_ns)
{
    struct stall_search w = stall_search_from(s, now_ns);

    if (s->warn_ns > 0 && now_ns >= s->warn_ns)
        negotiate_walk(n, stall_find_old, &w);
    return w.is_old;
}

static void stall_describe_deadlock(const struct stall *s,
                                    const struct negotiate *n,
                                    uint64_t now_ns,
                                    struct stall_record *ret)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct deadlock d;

    if (deadlock_find(n, &d) < 0 || d.n_ranks == 0
        || now_ns < d.since_ns + s->warn_ns / 2)
        return;
    strbuf_init(&text, 4096);
    deadlock_put(&d, &text);
    (void)snprintf(ret->deadlock, sizeof(ret->deadlock), "%s", strbuf_str(&text));
}

bool stall_describe(const struct stall *s,
                    const struct negotiate *n,
                    uint64_t now_ns,
                    struct stall_record *ret,
                    uint64_t *ret_age_ns)
{
    struct stall_search w = stall_search_from(s, now_ns);
    struct stall_record r = {0};

    if (!stall_lasts(s, n, now_ns))
        return false;
    w.before_ns += s->warn_ns / 2; /* ranks that went astray may have come first */
    negotiate_walk(n, stall_find_best, &w);
    if (!w.has_best)
        return false;
    r.size = negotiate_n_ranks(n);
    r.n_missing = w.best.n_missing;
    (void)snprintf(r.op, sizeof(r.op), "%s", collective_name(w.best.coll));
    (void)snprintf(r.tensor, sizeof(r.tensor), "%s", w.best.name);
    for (uint32_t rank = 0; rank < w.best.n_ranks && r.n_listed < STALL_MISSING_MAX;
         rank++) {
        if (!negotiate_is_missing(&w.best, rank))
            continue;
        w.missing = &r.missing[r.n_listed++];
        w.missing->rank = rank;
        negotiate_walk(n, stall_find_elsewhere, &w);
    }
    if (r.n_missing < r.n_listed)
        r.n_missing = r.n_listed; /* a probe lists its candidates */
    stall_describe_deadlock(s, n, now_ns, &r);
    *ret = r;
    *ret_age_ns = now_ns - w.best.since_ns;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The circle of ask_plan.h: an array by place, and a hand that moves over it; beside it an
 * array of the jobs that are asked soon, by time.
 *
 * Invariants
 *  1. Places differ, so that no job is passed over at the hand's own place: a job whose
 *     hash is taken gets the next free one.
 *  2. The hand is never more than one interval late: after a pause each job is asked once.
 *  3. Questions soon, of all jobs together, are ASK_SOON_GAP_NS apart, so many jobs that
 *     start at once, or agents that want much, cost at most half of what 1,000 running jobs
 *     cost. Each question at a job's place counts as one of its firsts, and replaces the
 *     one that its last report has wanted.
 *
 * A job that fails is asked again at one of its own places, so back-off keeps the jobs
 * spread. Called by ask.c. */
#include "operator/core/ask_plan.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

#define MAX_JOBS (1u << 20)

static const char *const ask_result_names[] = {
    [ASK_OK] = "ok",           [ASK_UNREACHABLE] = "unreachable",
    [ASK_REFUSED] = "refused", [ASK_GARBAGE] = "garbage",
    [ASK_NO_TOKEN] = "secret",
};
_Static_assert(ARRAY_LEN(ask_result_names) == ASK_RESULTS, "one name per result");

const char *ask_result_name(enum ask_result r)
{
    return ask_result_names[r];
}

enum ask_result ask_result_of(int error)
{
    if (error >= 0)
        return ASK_OK;
    if (error == -EACCES)
        return ASK_REFUSED;
    return error == -EPROTO || error == -ESTALE ? ASK_GARBAGE : ASK_UNREACHABLE;
}

/* --- the circle ------------------------------------------------------------------- */

void ask_wheel_init(struct ask_wheel *w, uint64_t interval_ns, uint64_t now_ns)
{
    *w = (struct ask_wheel){.interval_ns = interval_ns, .hand_ns = now_ns};
}

void ask_wheel_release(struct ask_wheel *w)
{
    mem_free(w->places.v);
    mem_free(w->soon.v);
    *w = (struct ask_wheel){0};
}

/* The index of the first entry at at_ns or behind it. */
static size_t row_from(const struct ask_row *r, uint64_t at_ns)
{
    size_t low = 0, high = r->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (r->v[middle].at_ns < at_ns)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int row_reserve(struct ask_row *r)
{
    void *v = r->v;
    int rc = mem_grow(&v, r->n, &r->cap, sizeof(*r->v), MAX_JOBS);

    if (rc == 0)
        r->v = v;
    return rc;
}

/* Where it is: at at_ns, or behind entries that are there. There is room. */
static uint64_t row_insert(struct ask_row *r, uint64_t at_ns, struct ask_turn *t)
{
    size_t i = row_from(r, at_ns);

    for (; i < r->n && r->v[i].at_ns == at_ns; i++)
        at_ns++;
    memmove(r->v + i + 1, r->v + i, (r->n - i) * sizeof(*r->v));
    r->v[i] = (struct ask_entry){at_ns, t};
    r->n++;
    return at_ns;
}

static void row_remove(struct ask_row *r, uint64_t at_ns)
{
    size_t i = row_from(r, at_ns);

    r->n--;
    memmove(r->v + i, r->v + i + 1, (r->n - i) * sizeof(*r->v));
}

static uint64_t wheel_hash(const char *uid)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */

    for (; *uid; uid++)
        h = (h ^ (unsigned char)*uid) * 1099511628211u;
    return h ^ h >> 32;
}

int ask_wheel_add(struct ask_wheel *w, struct ask_turn *t, const char *uid)
{
    int rc = row_reserve(&w->places);

    if (rc < 0)
        return rc;
    *t = (struct ask_turn){0}; /* a place beyond the interval is as good as its begin */
    t->place_ns = row_insert(&w->places, wheel_hash(uid) % w->interval_ns, t);
    return 0;
}

/* There is room. */
static void wheel_set_soon(struct ask_wheel *w, struct ask_turn *t, uint64_t at_ns)
{
    t->soon_ns = row_insert(&w->soon, at_ns, t);
}

static void wheel_set_first(struct ask_wheel *w, struct ask_turn *t, uint64_t now_ns)
{
    static const uint64_t after_ns[ASK_FIRSTS] = {6000000000u, 3000000000u,
                                                  1000000000u}; /* by n_firsts - 1 */

    if (t->n_firsts > 0)
        wheel_set_soon(w, t, now_ns + after_ns[t->n_firsts - 1]);
}

void ask_wheel_start(struct ask_wheel *w, struct ask_turn *t, uint64_t now_ns)
{
    if (row_reserve(&w->soon) < 0)
        return;
    t->n_firsts = ASK_FIRSTS;
    wheel_set_first(w, t, now_ns);
}

void ask_wheel_again(struct ask_wheel *w,
                     struct ask_turn *t,
                     int64_t again_ms,
                     uint64_t now_ns)
{
    uint64_t after_ns;

    if (again_ms < 0 || (uint64_t)again_ms >= w->interval_ns / 1000000u || t->soon_ns
        || row_reserve(&w->soon) < 0)
        return;
    after_ns = (uint64_t)again_ms * 1000000u;
    if (after_ns < ASK_SOON_MIN_NS)
        after_ns = ASK_SOON_MIN_NS;
    wheel_set_soon(w, t, now_ns + after_ns);
}

void ask_wheel_remove(struct ask_wheel *w, const struct ask_turn *t)
{
    row_remove(&w->places, t->place_ns);
    if (t->soon_ns)
        row_remove(&w->soon, t->soon_ns);
}

/* UINT64_MAX: there is none. */
static uint64_t wheel_soon_ns(const struct ask_wheel *w)
{
    if (w->soon.n == 0)
        return UINT64_MAX;
    return w->soon.v[0].at_ns > w->gap_ns ? w->soon.v[0].at_ns : w->gap_ns;
}

/* The job is about to be asked. */
static struct ask_turn *
wheel_count(struct ask_wheel *w, struct ask_turn *t, uint64_t now_ns)
{
    if (t->soon_ns)
        row_remove(&w->soon, t->soon_ns);
    t->soon_ns = 0;
    if (t->n_firsts > 0) {
        t->n_firsts--;
        wheel_set_first(w, t, now_ns);
    }
    return t;
}

/* The next job behind the hand, and when the hand is there. */
static struct ask_turn *wheel_next(const struct ask_wheel *w, uint64_t *ret_ns)
{
    uint64_t begin_ns = w->hand_ns - w->hand_ns % w->interval_ns;
    size_t i = row_from(&w->places, w->hand_ns % w->interval_ns + 1);

    if (w->places.n == 0)
        return NULL;
    if (i == w->places.n) {
        i = 0;
        begin_ns += w->interval_ns;
    }
    *ret_ns = begin_ns + w->places.v[i].at_ns;
    return w->places.v[i].turn;
}

struct ask_turn *ask_wheel_take(struct ask_wheel *w, uint64_t now_ns)
{
    struct ask_turn *t;
    uint64_t at_ns;

    if (wheel_soon_ns(w) <= now_ns) {
        w->gap_ns = now_ns + ASK_SOON_GAP_NS;
        t = w->soon.v[0].turn;
        t->is_extra = t->n_firsts == 0;
        return wheel_count(w, t, now_ns);
    }
    if (now_ns - w->hand_ns > w->interval_ns)
        w->hand_ns = now_ns - w->interval_ns;
    while ((t = wheel_next(w, &at_ns)) && at_ns <= now_ns) {
        w->hand_ns = at_ns;
        t->is_extra = false;
        if (t->after_ns <= now_ns)
            return wheel_count(w, t, now_ns);
    }
    w->hand_ns = now_ns;
    return NULL;
}

uint64_t ask_wheel_next_ns(const struct ask_wheel *w)
{
    uint64_t at_ns = UINT64_MAX, soon_ns = wheel_soon_ns(w);

    (void)wheel_next(w, &at_ns); /* NULL: it stays */
    return soon_ns < at_ns ? soon_ns : at_ns;
}

void ask_turn_end(struct ask_turn *t,
                  enum ask_result r,
                  uint64_t interval_ns,
                  uint64_t now_ns)
{
    uint64_t wait_ns = interval_ns;

    t->n_failures = r == ASK_OK ? 0 : t->soon_ns ? 1 : t->n_failures + 1;
    if (t->is_extra && r == ASK_OK)
        return; /* the one at its place brings progress */
    for (uint32_t i = 1; i < t->n_failures && wait_ns < ASK_MAX_WAIT_NS; i++)
        wait_ns *= 2;
    if (wait_ns > ASK_MAX_WAIT_NS)
        wait_ns = interval_ns > ASK_MAX_WAIT_NS ? interval_ns : ASK_MAX_WAIT_NS;
    t->after_ns = now_ns + wait_ns - interval_ns / 2; /* until its place comes again */
}

bool ask_is_stale(uint64_t received_ns, uint64_t interval_ns, uint64_t now_ns)
{
    return now_ns - received_ns > ASK_STALE * interval_ns;
}

/* --- news ------------------------------------------------------------------------- */

uint32_t ask_write_turns(uint64_t interval_ns, size_t n_jobs, uint32_t qps)
{
    uint64_t all_ns = n_jobs * (1000000000ull * ASK_WRITE_SHARE / (qps ? qps : 1));
    uint64_t turns = (all_ns + interval_ns - 1) / interval_ns;

    return turns < 1 ? 1 : turns > UINT32_MAX ? UINT32_MAX : (uint32_t)turns;
}

enum ask_news ask_news_of(const struct ask_wheel *w,
                          const struct ask_turn *t,
                          const struct live_digest *shown,
                          const struct live_digest *digest,
                          uint32_t write_turns)
{
    uint64_t turn = w->hand_ns / w->interval_ns + t->place_ns;

    if (shown->verdicts != digest->verdicts)
        return NEWS_VERDICT;
    return !t->is_extra && shown->progress != digest->progress
                   && turn % write_turns == 0
               ? NEWS_PROGRESS
               : NEWS_NONE;
}

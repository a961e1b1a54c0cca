/* SPDX-License-Identifier: Apache-2.0 */
/* Tales of one job, for the tests of its ledger. Each sync is followed by a restart of the
 * operator. Include after cmocka.h. */
#ifndef TESTS_UNIT_OP_LEDGER_TALE_H
#define TESTS_UNIT_OP_LEDGER_TALE_H

#include <string.h>

#include "operator/core/goodput.h"
#include "operator/doc/json.h"
#include "runtime/base/mem.h"

#define T0 1767225600u /* 2026-01-01T00:00:00Z; times of tests are seconds after it */

static inline uint64_t ledger_sum(const struct ledger *l)
{
    uint64_t sum = 0;

    for (int i = 0; i < LEDGER_PARTS; i++)
        sum += l->seconds[i];
    return sum;
}

static inline void ledger_must_add_up(const struct ledger *l, uint64_t seed)
{
    struct ledger total;

    ledger_total(l, &total);
    if (ledger_sum(&total) != l->until_s - l->start_s)
        fail_msg("seed %llu: the parts are %llu s of %llu s", (unsigned long long)seed,
                 (unsigned long long)ledger_sum(&total),
                 (unsigned long long)(l->until_s - l->start_s));
}

/* The operator is restarted: only what the status has is left. */
static inline void ledger_reload(struct ledger *l)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf text, again;
    struct build b = {.arena = &a};
    struct node *o;

    arena_init(&a, 1u << 20);
    strbuf_init(&text, 1u << 16);
    strbuf_init(&again, 1u << 16);
    json_write(goodput_node(&b, l), &text);
    assert_int_equal(json_read(&a, text.p, text.n, &o, NULL), 0);
    assert_true(goodput_read(o, l));
    json_write(goodput_node(&b, l), &again);
    assert_string_equal(strbuf_str(&text), strbuf_str(&again));
}

/* "queued 5, training 9". */
static inline void ledger_print(const struct ledger *l, struct strbuf *out)
{
    struct ledger t;

    ledger_total(l, &t);
    for (int i = 0; i < LEDGER_PARTS; i++) {
        if (t.seconds[i] + t.gpu_seconds[i] == 0)
            continue;
        strbuf_printf(out, "%s%s %llu", out->n ? ", " : "",
                      ledger_part_name((enum ledger_part)i),
                      (unsigned long long)t.seconds[i]);
        if (t.gpu_seconds[i])
            strbuf_printf(out, "/%llu", (unsigned long long)t.gpu_seconds[i]);
    }
    for (size_t i = 0; i < t.n_losses; i++)
        strbuf_printf(out, "; %s %s %llu x%u", ledger_part_name(t.loss[i].part),
                      t.loss[i].reason, (unsigned long long)t.loss[i].seconds,
                      t.loss[i].count);
}

/* --- usual histories -------------------------------------------------------------- */

/* A job of two pods with 4 GPUs each. Times are seconds after T0. */
struct tale {
    struct ledger l;
    struct ledger_pod pod[2];
    struct ledger_report report;
    struct ledger_view v;
};

static inline uint64_t after(uint32_t s)
{
    return s ? T0 + s : 0;
}

static inline void tale_begin(struct tale *t)
{
    *t = (struct tale){.v = {.is_live = true, .n_pods = 2, .waiting = ""}};
    t->v.pod = t->pod;
    ledger_begin(&t->l, T0, LEDGER_QUEUED);
    t->v.is_incomplete = true;
}

static inline void
tale_pod(struct tale *t, int i, uint32_t made, uint32_t bound, uint32_t run)
{
    t->pod[i] = (struct ledger_pod){.is_required = true,
                                    .made_s = after(made),
                                    .bound_s = after(bound),
                                    .run_s = after(run),
                                    .gpus = 4};
    t->v.is_incomplete = !t->pod[0].is_required || !t->pod[1].is_required;
}

static inline void
tale_pods(struct tale *t, uint32_t made, uint32_t bound, uint32_t run)
{
    tale_pod(t, 0, made, bound, run);
    tale_pod(t, 1, made, bound, run);
}

/* With a restart of the operator. */
static inline void tale_sync(struct tale *t, uint32_t at)
{
    ledger_advance(&t->l, &t->v, T0 + at);
    ledger_must_add_up(&t->l, 0);
    ledger_reload(&t->l);
}

static inline void tale_report(struct tale *t,
                               uint32_t at,
                               uint32_t run,
                               enum ledger_share state,
                               const uint32_t share[LEDGER_SHARES],
                               int64_t step,
                               uint32_t commit)
{
    t->report = (struct ledger_report){.at_s = after(at),
                                       .run_s = after(run),
                                       .state = state,
                                       .step = step,
                                       .commit_s = after(commit),
                                       .stall = "rank 1"};
    for (int k = 0; k < LEDGER_SHARES; k++)
        t->report.share_s[k] = share[k];
    t->v.report = &t->report;
    tale_sync(t, at);
}

static inline void
tale_fail(struct tale *t, uint32_t at, uint32_t seen, const char *cause)
{
    ledger_advance(&t->l, &t->v, T0 + at);
    ledger_end_attempt(&t->l, cause);
    ledger_switch(&t->l, LEDGER_DOWN, cause);
    t->pod[0].end_s = t->pod[1].end_s = after(at);
    t->v.is_live = false;
    t->v.report = NULL;
    tale_sync(t, seen);
}

static inline void tale_restart(struct tale *t)
{
    memset(t->pod, 0, sizeof(t->pod));
    t->v.is_live = t->v.is_incomplete = true;
}

static inline void tale_must_be(const struct tale *t, const char *wanted)
{
    CLEANUP(strbuf_release) struct strbuf text;

    strbuf_init(&text, 4096);
    ledger_print(&t->l, &text);
    assert_string_equal(strbuf_str(&text), wanted);
}

#endif

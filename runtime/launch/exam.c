/* SPDX-License-Identifier: Apache-2.0 */
/* Findings are kept as they come, at most as many as the arrays have room for; what they
 * mean is decided in core/hang.h. Called by live_lead.c. */
#include "runtime/launch/exam.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

bool exam_begin(struct live_exam *x, uint32_t n_ranks, uint64_t now_ns)
{
    uint32_t max = n_ranks < EXAM_RANKS_MAX ? n_ranks : EXAM_RANKS_MAX;

    if (x->deadline_ns > 0 || n_ranks == 0)
        return false;
    x->v = mem_calloc(max + STALL_MISSING_MAX, sizeof(struct hang_finding *));
    if (!x->v)
        return false;
    x->number++;
    x->n = x->n_answered = 0;
    x->n_wanted = n_ranks;
    x->deadline_ns = now_ns + EXAM_NS;
    return true;
}

void exam_cancel(struct live_exam *x)
{
    for (uint32_t i = 0; i < x->n; i++)
        mem_free(x->v[i]);
    mem_free(x->v);
    x->v = NULL;
    x->n = x->n_answered = x->n_wanted = 0;
    x->deadline_ns = 0;
}

void exam_release(struct live_exam *x)
{
    exam_cancel(x);
    mem_free(x->text);
    x->text = NULL;
}

int exam_take(struct live_exam *x,
              uint32_t number,
              const void *p,
              size_t n,
              const struct stall_record *r,
              struct err *err)
{
    AUTOFREE struct hang_finding *f = NULL;
    uint32_t max = x->n_wanted < EXAM_RANKS_MAX ? x->n_wanted : EXAM_RANKS_MAX;
    int rc;

    if (x->deadline_ns == 0 || number != x->number)
        return 0;
    f = mem_alloc(sizeof(*f));
    if (!f)
        return 0; /* one rank less */
    rc = hang_finding_unpack(p, n, f, err);
    if (rc < 0)
        return rc;
    x->n_answered++;
    if (stall_record_is_missing(r, f->rank))
        max += STALL_MISSING_MAX;
    if (x->n < max)
        x->v[x->n++] = TAKE(f);
    return 0;
}

bool exam_is_due(const struct live_exam *x, uint64_t now_ns)
{
    return x->deadline_ns > 0
           && (x->n_answered >= x->n_wanted || now_ns >= x->deadline_ns);
}

static char *exam_write(const struct live_exam *x, const struct live_stall *verdict)
{
    AUTOFREE struct stack_text *texts = mem_calloc(x->n + 1, sizeof(*texts));
    CLEANUP(strbuf_release) struct strbuf out = {0};

    if (!texts)
        return NULL;
    strbuf_init(&out, EXAM_TEXT_MAX);
    if (verdict->since_wall_us > 0)
        strbuf_printf(&out, "%s\n", verdict->text);
    for (uint32_t i = 0; i < x->n; i++)
        texts[i] = (struct stack_text){x->v[i]->rank, x->v[i]->stacks};
    stacks_group(texts, x->n, &out);
    if (x->n_answered < x->n_wanted)
        strbuf_printf(&out, "%u of %u ranks were not examined in %d s\n",
                      x->n_wanted - x->n_answered, x->n_wanted,
                      (int)(EXAM_NS / NS_PER_S));
    if (x->n < x->n_answered)
        strbuf_printf(&out, "the stacks of %u more ranks are not shown\n",
                      x->n_answered - x->n);
    return strbuf_status(&out) == -E2BIG ? mem_strdup(strbuf_str(&out)) /* what fits */
                                         : strbuf_take(&out);
}

void exam_conclude(struct live_exam *x,
                   const struct stall_record *r,
                   const char *(*host_of)(void *arg, uint32_t rank),
                   void *arg,
                   uint64_t now_wall_us,
                   struct live_stall *ret)
{
    struct live_stall verdict = *ret;
    char *text;

    hang_conclude(r, (const struct hang_finding *const *)x->v, x->n, host_of, arg,
                  now_wall_us, &verdict);
    if (verdict.rank >= 0)
        *ret = verdict;
    text = exam_write(x, ret);
    if (text) {
        mem_free(x->text);
        x->text = text;
        ret->has_stacks = true;
    }
    exam_cancel(x);
}

void record_describe(const struct stall_record *r,
                     const char *(*host_of)(void *arg, uint32_t rank),
                     void *arg,
                     uint64_t now_wall_us,
                     struct live_stall *ret)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    uint64_t age_us =
        now_wall_us > r->since_wall_us ? now_wall_us - r->since_wall_us : 0;

    *ret = (struct live_stall){.since_wall_us = r->since_wall_us,
                               .seen_wall_us = r->seen_wall_us,
                               .n_missing = r->n_missing,
                               .rank = r->n_listed ? (int32_t)r->missing[0].rank : -1};
    (void)snprintf(ret->tensor, sizeof(ret->tensor), "%s", r->tensor);
    (void)snprintf(ret->op, sizeof(ret->op), "%s", r->op);
    if (ret->rank >= 0)
        (void)snprintf(ret->host, sizeof(ret->host), "%s",
                       host_of(arg, (uint32_t)ret->rank));
    strbuf_init(&text, LIVE_TEXT_MAX - 1);
    strbuf_printf(&text, "tensor \"%s\" (%s) has waited %llu s for rank%s ", r->tensor,
                  r->op, (unsigned long long)(age_us / 1000000u),
                  r->n_missing == 1 ? "" : "s");
    for (uint32_t i = 0; i < r->n_listed && i < LIVE_MISSING_MAX; i++) {
        const char *host = host_of(arg, r->missing[i].rank);

        ret->missing[i] = r->missing[i].rank;
        strbuf_printf(&text, "%s%u%s%s%s", i ? ", " : "", r->missing[i].rank,
                      *host ? " (host " : "", host, *host ? ")" : "");
    }
    if (r->n_missing > r->n_listed)
        strbuf_printf(&text, " and %u more", r->n_missing - r->n_listed);
    (void)snprintf(ret->text, sizeof(ret->text), "%s", strbuf_str(&text));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and stacks, as worker 0's agent knows them. An agent belongs to the job's user: its
 * answer is bounded and checked. No examination is requested, since that interrupts ranks.
 * Called by page_fetch.c. */
#include <errno.h>

#include "operator/ask.h"
#include "operator/page/page_work.h"
#include "runtime/base/mem.h"

#define RANKS_MAX   4096u /* of an answer */
#define RANKS_QUERY 512u  /* of one question */
#define RANK_BYTES  (32u << 10)

static void agent_fail(struct page_work *w, int rc, const char *why)
{
    int http = rc == -ENOENT      ? 404
               : rc == -EAGAIN    ? 429
               : rc == -EPERM     ? 503
               : rc == -ETIMEDOUT ? 504
                                  : 502;

    page_work_fail(w, http, why);
}

/* --- ranks ------------------------------------------------------------------------ */

static int agent_take_rank(void *arg, const struct live_rank *r)
{
    CLEANUP(strbuf_release) struct strbuf one = {0};
    struct page_work *w = arg;

    strbuf_init(&one, RANK_BYTES);
    live_rank_json(r, &one);
    if (strbuf_status(&one) < 0)
        return strbuf_status(&one);
    if (w->n_ranks == RANKS_MAX || w->out.n + one.n + RANK_BYTES > w->out.max) {
        w->is_truncated = true;
        return 0;
    }
    strbuf_puts(&w->out, w->n_ranks > 0 ? "," : "");
    strbuf_add(&w->out, strbuf_str(&one), one.n);
    w->n_ranks++;
    return 0;
}

static void on_ranks(void *arg, int rc, const void *p, size_t n, const char *why);

static void agent_ask(struct page_work *w, ask_answer_fn fn)
{
    if (!w->op->ask) {
        page_work_fail(w, 404, "no agents are asked: --progress-interval is 0");
        return;
    }
    w->is_asking = true;
    ask_query(w->op->ask, w->q->key, &w->query, fn, w);
}

static void on_ranks(void *arg, int rc, const void *p, size_t n, const char *why)
{
    struct page_work *w = arg;
    struct err err = ERR_INIT;
    uint32_t n_ranks = 0;

    w->is_asking = false;
    if (rc == 0)
        rc = live_ranks_read(p, n, agent_take_rank, w, &n_ranks, &err);
    else
        (void)err_set(&err, rc, "%s", why);
    if (rc < 0) {
        agent_fail(w, rc, err.text);
        return;
    }
    w->query.first += n_ranks;
    if (n_ranks >= w->query.max && !w->is_truncated) {
        if (w->n_ranks == RANKS_MAX)
            w->query.max = 1; /* is there another one? */
        agent_ask(w, on_ranks);
        return;
    }
    strbuf_puts(&w->out, w->is_truncated ? "],\"truncated\":true}" : "]}");
    page_work_end(w, &w->out);
}

/* --- stacks ----------------------------------------------------------------------- */

static void on_stacks(void *arg, int rc, const void *p, size_t n, const char *why)
{
    struct page_work *w = arg;
    bool is_cut;

    w->is_asking = false;
    if (rc < 0) {
        agent_fail(w, rc, why);
        return;
    }
    strbuf_puts(&w->out, "{\"text\":");
    is_cut = page_body_text(p, n, &w->out);
    strbuf_puts(&w->out, is_cut ? ",\"truncated\":true}" : "}");
    page_work_end(w, &w->out);
}

void page_agent_begin(struct page_work *w)
{
    strbuf_init(&w->out, PAGE_BODY_MAX);
    if (w->q->what == PAGE_STACKS) {
        w->query = (struct live_query){.kind = QUERY_STACKS};
        agent_ask(w, on_stacks);
        return;
    }
    strbuf_puts(&w->out, "{\"ranks\":[");
    w->query = (struct live_query){.kind = QUERY_RANKS, .max = RANKS_QUERY};
    agent_ask(w, on_ranks);
}

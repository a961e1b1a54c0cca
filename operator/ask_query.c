/* SPDX-License-Identifier: Apache-2.0 */
/* A question is a slot of a short array:
 *
 *   ask_desk_open --> [Secret read] --> live_ask --> fn
 *         '------------ token known ------^
 *
 * Invariants
 *  1. fn is called exactly once, after its slot is free: it may ask again.
 *  2. Nothing here changes a job's turn, its report, its stored token or the metrics. An
 *     outdated token is replaced when the job's next report is refused.
 *  3. ask_desk_run steps all slots, so a slot that a callback frees or reuses in between
 *     does no harm.
 * Called by ask.c. */
#include "operator/ask_query.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "operator/job_token.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/live/live_ask.h"

struct ask_slot {
    struct ask_desk *desk;
    struct ask_place at; /* job NULL: free */
    struct live_query query;
    uint64_t deadline_ns;
    struct live_ask *ask; /* NULL: the token is being read */
    short events;         /* that epoll waits for */
    ask_answer_fn fn;
    void *arg;
};

struct ask_desk {
    struct token_reader *tokens;
    int epoll_fd;
    struct ask_slot slot[ASK_QUERIES_MAX];
};

struct ask_desk *ask_desk_new(struct kube *kube, int epoll_fd)
{
    struct ask_desk *d = mem_zalloc(sizeof(*d));

    if (!d)
        return NULL;
    d->epoll_fd = epoll_fd;
    d->tokens = token_reader_new(kube);
    if (!d->tokens) {
        mem_free(d);
        return NULL;
    }
    for (size_t i = 0; i < ASK_QUERIES_MAX; i++)
        d->slot[i].desk = d;
    return d;
}

static void slot_clear(struct ask_slot *x)
{
    if (!x->ask)
        token_reader_cancel(x->desk->tokens, x);
    live_ask_free(x->ask); /* closes the socket, which leaves the epoll set */
    *x = (struct ask_slot){.desk = x->desk};
}

void ask_desk_free(struct ask_desk *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < ASK_QUERIES_MAX; i++)
        live_ask_free(d->slot[i].ask);
    token_reader_free(d->tokens);
    mem_free(d);
}

static void slot_end(struct ask_slot *x, int rc, const char *why)
{
    ask_answer_fn fn = x->fn;
    void *arg = x->arg;

    slot_clear(x);
    fn(arg, rc, NULL, 0, why);
}

/* Whatever errno an agent answers with is not one of ours. */
static void slot_fail(struct ask_slot *x, int rc, const char *why)
{
    slot_end(x, rc == -ETIMEDOUT ? rc : -EIO, why);
}

static void slot_answer(struct ask_slot *x)
{
    struct ask_slot answered = *x;
    size_t n;
    const void *p = live_ask_answer(answered.ask, &n);

    x->ask = NULL;
    slot_clear(x);
    answered.fn(answered.arg, 0, p, n, "");
    live_ask_free(answered.ask);
}

static void slot_connect(struct ask_slot *x, const struct token *token)
{
    struct auth_id id = {.token = token, .job_id = x->at.job_id, .generation = 0};
    struct epoll_event e = {.data.ptr = NULL};
    struct err err = ERR_INIT;
    int rc = live_ask_start(x->at.address, x->at.port, &id, &x->query, x->deadline_ns,
                            &x->ask, &err);

    if (rc == 0) {
        x->events = live_ask_events(x->ask);
        e.events = (uint32_t)(unsigned short)x->events;
        if (epoll_ctl(x->desk->epoll_fd, EPOLL_CTL_ADD, live_ask_fd(x->ask), &e) < 0)
            rc = err_errno(&err, errno, "epoll_ctl");
    }
    if (rc < 0)
        slot_fail(x, rc, err.text);
}

static void on_query_token(void *arg, const struct token *t, const char *why)
{
    struct ask_slot *x = arg;

    if (t)
        slot_connect(x, t);
    else
        slot_end(x, -EIO, why);
}

void ask_desk_open(struct ask_desk *d,
                   const struct ask_place *at,
                   const struct live_query *q,
                   ask_answer_fn fn,
                   void *arg)
{
    struct ask_slot *x = d->slot;

    while (x < d->slot + ASK_QUERIES_MAX && x->at.job)
        x++;
    if (x == d->slot + ASK_QUERIES_MAX) {
        fn(arg, -EAGAIN, NULL, 0, "too many agents are being asked");
        return;
    }
    *x = (struct ask_slot){.desk = d,
                           .at = *at,
                           .query = *q,
                           .deadline_ns = clock_now_ns() + ASK_QUERY_DEADLINE_NS,
                           .fn = fn,
                           .arg = arg};
    if (at->token)
        slot_connect(x, at->token);
    else if (token_reader_start(d->tokens, at->ns, at->secret, at->uid, on_query_token,
                                x)
             < 0)
        slot_end(x, -ENOMEM, "out of memory");
}

void ask_desk_end(struct ask_desk *d, const void *job, int rc, const char *why)
{
    for (size_t i = 0; d && i < ASK_QUERIES_MAX; i++) {
        if (d->slot[i].at.job == job)
            slot_end(&d->slot[i], rc, why);
    }
}

void ask_desk_cancel(struct ask_desk *d, const void *arg)
{
    for (size_t i = 0; i < ASK_QUERIES_MAX; i++) {
        if (d->slot[i].at.job && d->slot[i].arg == arg)
            slot_clear(&d->slot[i]);
    }
}

static void slot_step(struct ask_slot *x, uint64_t now_ns)
{
    struct epoll_event e = {.data.ptr = NULL};
    struct err err = ERR_INIT;
    short events;
    int rc;

    if (!x->ask) {
        if (now_ns >= x->deadline_ns)
            slot_end(x, -ETIMEDOUT, "the job's Secret was not read in time");
        return;
    }
    rc = live_ask_step(x->ask, now_ns, &err);
    if (rc > 0) {
        slot_answer(x);
        return;
    }
    if (rc < 0) {
        slot_fail(x, rc, err.text);
        return;
    }
    events = live_ask_events(x->ask);
    if (events == x->events)
        return;
    x->events = events;
    e.events = (uint32_t)(unsigned short)events;
    (void)epoll_ctl(x->desk->epoll_fd, EPOLL_CTL_MOD, live_ask_fd(x->ask), &e);
}

void ask_desk_run(struct ask_desk *d, uint64_t now_ns)
{
    for (size_t i = 0; i < ASK_QUERIES_MAX; i++) {
        if (d->slot[i].at.job)
            slot_step(&d->slot[i], now_ns);
    }
}

uint64_t ask_desk_next_ns(const struct ask_desk *d)
{
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < ASK_QUERIES_MAX; i++) {
        if (d->slot[i].at.job)
            next = earlier_ns(next, d->slot[i].deadline_ns);
    }
    return next;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's side of the live report.
 *
 *   its turn --> [Secret read once per pod] --> live_ask --> report kept --> a sync, if it
 *      ^                                           |                         brings news
 *      '------------ ask_turn_end: back-off -------'
 *
 * Invariants
 *  1. A job is here from a sync that found the pod to ask running until a sync that did not,
 *     or until the store says that it is finished or absent. What belongs to a pod (token,
 *     report) is dropped with it.
 *  2. A token exists in the vault, and while a query is open in that. A refused token is
 *     read again once; it was replaced with its Secret.
 *  3. Nothing here delays a sync: at most ASK_MAX_AT_ONCE connections with a deadline, at
 *     most SECRETS_AT_ONCE requests to the API server. An answer is bounded, and is not
 *     believed: it can only become text and numbers of its own job's status.
 *  4. One descriptor for the loop: the epoll descriptor of all connections. Those of
 *     ask_query.c, with a NULL pointer, are in it, too; they have bounds of their own.
 *
 * Called by sync.c (targets and reports), loop.c, serve.c, controller.c and, for ask_query,
 * by page/page_agent.c. */
#include "operator/ask.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>

#include "operator/ask_query.h"
#include "operator/core/ask_plan.h"
#include "operator/job_token.h"
#include "operator/options.h"
#include "operator/vault.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define SECRETS_AT_ONCE 2u
#define WARN_FAILURES   4u /* in a row, of one job */
#define WARN_EVERY_NS   (60 * NS_PER_S)

struct ask_job {
    char *key; /* the first member: see keyed.h */
    struct asker *asker;
    struct ask_turn turn;
    char *ns, *uid, *address, *run, *secret, *job_id;
    uint16_t port;
    struct token *token;  /* NULL: not read */
    bool was_refused;     /* since the last answer; the token was read again */
    bool is_reading;      /* the token is requested */
    struct live_ask *ask; /* NULL: none is open */
    short events;         /* that epoll waits for */
    bool is_doubtful;     /* it did not answer the last time */
    uint64_t started_ns;
    void *report; /* packed; NULL: none */
    size_t report_n;
    uint64_t received_ns, received_wall_s;
    /* Of the report; of the report that the last sync read, and of the one that is in the
     * status. */
    struct live_digest digest, seen, shown;
    bool may_write;   /* the next status may bring nothing but progress */
    int64_t again_ms; /* of the report */
    bool is_stalled, is_straggling;
};

struct asker {
    struct controller *op;
    uint32_t qps;
    int epoll_fd;
    struct keyed jobs;
    struct ask_wheel wheel;
    struct vault *vault;
    struct ask_job *open[ASK_MAX_AT_ONCE];
    size_t n_open, n_doubtful;
    struct token_reader *tokens;
    struct ask_desk *desk; /* questions outside the schedule */
    size_t n_reports;
    uint64_t warned_ns; /* 0: never */
};

static struct ask_job *job_of_turn(struct ask_turn *t)
{
    return (struct ask_job *)(void *)((char *)t - offsetof(struct ask_job, turn));
}

/* --- jobs ------------------------------------------------------------------------- */

static void ask_close(struct asker *a, struct ask_job *j)
{
    size_t i = 0;

    if (!j->ask)
        return;
    live_ask_free(j->ask); /* closes the socket, which leaves the epoll set */
    j->ask = NULL;
    a->n_doubtful -= j->is_doubtful;
    while (a->open[i] != j)
        i++;
    a->open[i] = a->open[--a->n_open];
}

static void ask_drop_report(struct asker *a, struct ask_job *j)
{
    a->n_reports -= j->report != NULL;
    mem_free(j->report);
    j->report = NULL;
}

static void ask_job_free(struct asker *a, struct ask_job *j)
{
    if (!j)
        return;
    ask_close(a, j);
    ask_drop_report(a, j);
    vault_give(a->vault, j->token);
    if (j->is_reading)
        token_reader_cancel(a->tokens, j);
    mem_free(j->key);
    mem_free(j->ns);
    mem_free(j->uid);
    mem_free(j->address);
    mem_free(j->run);
    mem_free(j->secret);
    mem_free(j->job_id);
    mem_free(j);
}

static void ask_forget(struct asker *a, struct ask_job *j, int rc, const char *why)
{
    ask_wheel_remove(&a->wheel, &j->turn);
    keyed_remove(&a->jobs, j);
    ask_desk_end(a->desk, j, rc, why);
    ask_job_free(a, j);
}

void ask_forget_all(struct asker *a)
{
    while (a->jobs.n > 0)
        ask_forget(a, a->jobs.v[a->jobs.n - 1], -EPERM,
                   "this operator no longer leads");
}

static struct ask_job *ask_job_new(const char *key,
                                   const struct job_meta *job,
                                   const struct ask_target *target)
{
    struct ask_job *j = mem_zalloc(sizeof(*j));

    if (!j)
        return NULL;
    j->port = target->port;
    j->key = mem_strdup(key);
    j->ns = mem_strdup(job->ns);
    j->uid = mem_strdup(job->uid);
    j->address = mem_strdup(target->address);
    j->run = mem_strdup(target->run);
    j->secret = mem_strdup(target->secret);
    j->job_id = mem_strdup(target->job_id);
    return j;
}

static bool ask_job_is_whole(const struct ask_job *j)
{
    return j->key && j->ns && j->uid && j->address && j->run && j->secret && j->job_id;
}

static bool
ask_job_is_at(const struct ask_job *j, const char *uid, const struct ask_target *target)
{
    return strcmp(j->uid, uid) == 0 && strcmp(j->run, target->run) == 0
           && strcmp(j->address, target->address) == 0 && j->port == target->port;
}

/* Out of memory, the job is not asked until its next sync. */
static void ask_add(struct asker *a,
                    const char *key,
                    const struct job_meta *job,
                    const struct ask_target *target)
{
    struct ask_job *j = ask_job_new(key, job, target);

    if (j)
        j->asker = a;
    if (!j || !ask_job_is_whole(j) || keyed_insert(&a->jobs, j) < 0) {
        ask_job_free(a, j);
        return;
    }
    if (ask_wheel_add(&a->wheel, &j->turn, j->uid) < 0) {
        keyed_remove(&a->jobs, j);
        ask_job_free(a, j);
    } else if (!node_get(job->status, "progress")) { /* not known from before */
        ask_wheel_start(&a->wheel, &j->turn, clock_now_ns());
    }
}

void ask_set(struct asker *a,
             const char *key,
             const struct job_meta *job,
             const struct ask_target *target)
{
    struct ask_job *j = keyed_find(&a->jobs, key);

    if (j && target->address && ask_job_is_at(j, job->uid, target))
        return;
    if (j)
        ask_forget(a, j, -ENOENT, "the pod that was asked has ended or was replaced");
    if (target->address)
        ask_add(a, key, job, target);
}

/* --- the end of an ask ------------------------------------------------------------ */

/* Unreachable agents may be many, and the cause the same: a NetworkPolicy, for example. */
static void ask_warn(struct asker *a, const struct ask_job *j, const char *why)
{
    uint64_t now_ns = clock_now_ns();

    log_debug("job was not asked", "job=%s attempt=%u cause=\"%s\"", j->key,
              j->turn.n_failures, why);
    if (j->turn.n_failures != WARN_FAILURES
        || (a->warned_ns && now_ns - a->warned_ns < WARN_EVERY_NS))
        return;
    a->warned_ns = now_ns;
    log_warn("cannot ask jobs for their progress, continuing without",
             "job=%s cause=\"%s\"", j->key, why);
}

static void
ask_end(struct asker *a, struct ask_job *j, enum ask_result r, const char *why)
{
    uint64_t now_ns = clock_now_ns();

    metrics_ask(&a->op->metrics, r, now_ns - j->started_ns);
    ask_close(a, j);
    if (r == ASK_REFUSED && !j->was_refused) {
        vault_give(a->vault, j->token); /* it is read again */
        j->token = NULL;
        j->was_refused = true;
    }
    if (r == ASK_OK)
        j->was_refused = false;
    ask_turn_end(&j->turn, r, a->wheel.interval_ns, now_ns);
    if (r != ASK_OK)
        ask_warn(a, j, why);
}

static void ask_announce(struct asker *a, struct ask_job *j)
{
    uint32_t turns = ask_write_turns(a->wheel.interval_ns, a->n_reports, a->qps);

    switch (ask_news_of(&a->wheel, &j->turn, &j->shown, &j->digest, turns)) {
    case NEWS_NONE:
        return;
    case NEWS_PROGRESS:
        j->may_write = true;
        controller_sweep(a->op, j->key);
        return;
    case NEWS_VERDICT: /* of another operator, the status may have it already */
        j->may_write = true;
        controller_wake(a->op, j->key);
        return;
    }
}

/* 0, or -EPROTO or -ENOMEM with err. */
static int ask_keep(struct asker *a, struct ask_job *j, struct err *err)
{
    struct live_report report;
    size_t n;
    const void *p = live_ask_answer(j->ask, &n);
    void *copy;
    int rc;

    if (n > LIVE_REPORT_MAX_BYTES)
        return err_set(err, -EPROTO, "the report has %zu bytes, more than %u", n,
                       LIVE_REPORT_MAX_BYTES);
    rc = live_report_unpack(p, n, &report, err);
    if (rc == 0)
        rc = progress_digest(&report, &j->digest);
    if (rc < 0)
        return rc;
    copy = mem_alloc(n + 1);
    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    memcpy(copy, p, n);
    ask_drop_report(a, j);
    j->report = copy;
    j->report_n = n;
    a->n_reports++;
    j->received_ns = clock_now_ns();
    j->received_wall_s = clock_wall_s();
    j->again_ms = report.again_ms;
    j->is_stalled = report.stall.since_wall_us > 0;
    j->is_straggling = report.straggler.rank >= 0;
    return 0;
}

static void ask_step(struct asker *a, struct ask_job *j, uint64_t now_ns)
{
    struct epoll_event e = {.data.ptr = j};
    struct err err = ERR_INIT;
    short events;
    int rc = live_ask_step(j->ask, now_ns, &err);

    if (rc > 0) {
        rc = ask_keep(a, j, &err);
        ask_end(a, j, ask_result_of(rc), err.text);
        if (rc < 0)
            return;
        ask_wheel_again(&a->wheel, &j->turn, j->again_ms, now_ns);
        ask_announce(a, j);
        return;
    }
    if (rc < 0) {
        ask_end(a, j, ask_result_of(rc), err.text);
        return;
    }
    events = live_ask_events(j->ask);
    if (events == j->events)
        return;
    j->events = events;
    e.events = (uint32_t)(unsigned short)events; /* POLLIN is EPOLLIN, and so on */
    (void)epoll_ctl(a->epoll_fd, EPOLL_CTL_MOD, live_ask_fd(j->ask), &e);
}

/* --- the begin of an ask ---------------------------------------------------------- */

static void ask_open(struct asker *a, struct ask_job *j)
{
    struct auth_id id = {.token = j->token, .job_id = j->job_id, .generation = 0};
    struct live_query q = {.kind = QUERY_REPORT};
    struct epoll_event e = {.data.ptr = j};
    struct err err = ERR_INIT;
    int rc = live_ask_start(j->address, j->port, &id, &q,
                            j->started_ns + ASK_DEADLINE_NS, &j->ask, &err);

    if (rc < 0) {
        ask_end(a, j, ask_result_of(rc), err.text);
        return;
    }
    a->open[a->n_open++] = j;
    j->is_doubtful = j->turn.n_failures > 0;
    a->n_doubtful += j->is_doubtful;
    j->events = live_ask_events(j->ask);
    e.events = (uint32_t)(unsigned short)j->events;
    if (epoll_ctl(a->epoll_fd, EPOLL_CTL_ADD, live_ask_fd(j->ask), &e) < 0)
        ask_end(a, j, ASK_UNREACHABLE, strerror(errno));
}

static void on_token(void *arg, const struct token *t, const char *why)
{
    struct ask_job *j = arg;
    struct asker *a = j->asker;

    j->is_reading = false;
    j->token = t ? vault_take(a->vault) : NULL;
    if (!j->token) {
        ask_end(a, j, ASK_NO_TOKEN, t ? "out of memory" : why);
        return;
    }
    *j->token = *t;
    if (a->n_open < ASK_MAX_AT_ONCE) {
        j->started_ns = clock_now_ns();
        ask_open(a, j);
    }
}

/* A job that cannot be asked now has another turn. */
static void ask_begin(struct asker *a, struct ask_job *j, uint64_t now_ns)
{
    if (store_is_finished(a->op->store, j->key)) {
        ask_forget(a, j, -ENOENT, "the job has ended");
        return;
    }
    if (j->ask || j->is_reading
        || (j->turn.n_failures > 0 && a->n_doubtful >= ASK_MAX_DOUBTFUL))
        return;
    j->started_ns = now_ns;
    if (j->token)
        ask_open(a, j);
    else if (token_reader_n(a->tokens) < SECRETS_AT_ONCE)
        j->is_reading =
            token_reader_start(a->tokens, j->ns, j->secret, j->uid, on_token, j) == 0;
}

/* --- the loop --------------------------------------------------------------------- */

void ask_tick(struct asker *a, uint64_t now_ns)
{
    struct ask_turn *t;

    while (a->n_open < ASK_MAX_AT_ONCE && (t = ask_wheel_take(&a->wheel, now_ns)))
        ask_begin(a, job_of_turn(t), now_ns);
}

void ask_run(struct asker *a, uint64_t now_ns)
{
    struct epoll_event e[ASK_MAX_AT_ONCE + ASK_QUERIES_MAX];
    int n = a->n_open > 0 ? epoll_wait(a->epoll_fd, e, ARRAY_LEN(e), 0) : 0;

    for (int i = 0; i < n; i++) {
        if (e[i].data.ptr)
            ask_step(a, e[i].data.ptr, now_ns);
    }
    for (size_t i = a->n_open; i-- > 0;) { /* ask_step moves the last one to i */
        if (now_ns >= a->open[i]->started_ns + ASK_DEADLINE_NS)
            ask_step(a, a->open[i], now_ns);
    }
    ask_desk_run(a->desk, now_ns);
}

uint64_t ask_next_ns(const struct asker *a)
{
    uint64_t next =
        a->n_open < ASK_MAX_AT_ONCE ? ask_wheel_next_ns(&a->wheel) : UINT64_MAX;

    for (size_t i = 0; i < a->n_open; i++)
        next = earlier_ns(next, a->open[i]->started_ns + ASK_DEADLINE_NS);
    return earlier_ns(next, ask_desk_next_ns(a->desk));
}

int ask_fd(const struct asker *a)
{
    return a->epoll_fd;
}

void ask_query(struct asker *a,
               const char *key,
               const struct live_query *q,
               ask_answer_fn fn,
               void *arg)
{
    const struct ask_job *j = keyed_find(&a->jobs, key);

    if (!j) {
        fn(arg, -ENOENT, NULL, 0,
           "no agent can be asked: its pod does not run, or the job has none");
        return;
    }
    ask_desk_open(a->desk,
                  &(struct ask_place){.job = j,
                                      .ns = j->ns,
                                      .uid = j->uid,
                                      .secret = j->secret,
                                      .address = j->address,
                                      .job_id = j->job_id,
                                      .port = j->port,
                                      .token = j->token},
                  q, fn, arg);
}

void ask_query_cancel(struct asker *a, const void *arg)
{
    ask_desk_cancel(a->desk, arg);
}

/* --- reports ---------------------------------------------------------------------- */

static bool
ask_is_known(const struct asker *a, const struct ask_job *j, uint64_t now_ns)
{
    return j->report && !ask_is_stale(j->received_ns, a->wheel.interval_ns, now_ns);
}

const struct live_report *ask_peek(const struct asker *a,
                                   const char *key,
                                   struct arena *arena,
                                   uint64_t *ret_wall_s)
{
    const struct ask_job *j = keyed_find(&a->jobs, key);
    struct live_report *r;

    if (!j || !ask_is_known(a, j, clock_now_ns()))
        return NULL;
    r = arena_alloc(arena, sizeof(*r));
    if (!r || live_report_unpack(j->report, j->report_n, r, NULL) < 0)
        return NULL;
    *ret_wall_s = j->received_wall_s;
    return r;
}

const struct live_report *
ask_report(struct asker *a, const char *key, struct arena *arena, uint64_t *ret_wall_s)
{
    const struct live_report *r = ask_peek(a, key, arena, ret_wall_s);
    struct ask_job *j = r ? keyed_find(&a->jobs, key) : NULL;

    if (j)
        j->seen = j->digest;
    return r;
}

bool ask_may_write(const struct asker *a, const char *key)
{
    const struct ask_job *j = keyed_find(&a->jobs, key);

    return j && j->may_write;
}

void ask_show(struct asker *a, const char *key)
{
    struct ask_job *j = keyed_find(&a->jobs, key);

    if (!j)
        return;
    j->shown = j->seen;
    j->may_write = false;
}

void ask_count(const struct asker *a, struct ask_gauges *ret)
{
    uint64_t now_ns = clock_now_ns();

    *ret = (struct ask_gauges){0};
    for (size_t i = 0; i < a->jobs.n; i++) {
        const struct ask_job *j = a->jobs.v[i];

        if (!ask_is_known(a, j, now_ns))
            continue;
        ret->reports++;
        ret->report_bytes += j->report_n;
        ret->stalled += j->is_stalled;
        ret->straggling += j->is_straggling;
    }
}

void ask_each(const struct asker *a, ask_each_fn fn, void *arg)
{
    uint64_t now_ns = clock_now_ns();
    struct live_report r;

    for (size_t i = 0; i < a->jobs.n; i++) {
        const struct ask_job *j = a->jobs.v[i];

        if (ask_is_known(a, j, now_ns)
            && live_report_unpack(j->report, j->report_n, &r, NULL) == 0)
            fn(arg, j->key, &r);
    }
}

/* --- begin and end ---------------------------------------------------------------- */

int ask_new(struct controller *op,
            const struct operator_options *o,
            struct asker **ret,
            struct err *err)
{
    struct asker *a = mem_zalloc(sizeof(*a));

    if (!a)
        return err_set(err, -ENOMEM, "out of memory");
    a->op = op;
    a->qps = o->qps;
    a->vault = vault_new();
    a->tokens = token_reader_new(op->kube);
    a->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    a->desk = a->epoll_fd < 0 ? NULL : ask_desk_new(op->kube, a->epoll_fd);
    ask_wheel_init(&a->wheel, o->progress_ms * NS_PER_MS, clock_now_ns());
    if (!a->vault || !a->tokens || !a->desk) {
        int e = a->epoll_fd < 0 ? errno : ENOMEM;

        ask_free(a);
        return err_errno(err, e, "epoll_create1");
    }
    *ret = a;
    return 0;
}

void ask_free(struct asker *a)
{
    if (!a)
        return;
    ask_desk_free(a->desk);
    a->desk = NULL;
    ask_forget_all(a);
    token_reader_free(a->tokens);
    keyed_release(&a->jobs);
    ask_wheel_release(&a->wheel);
    vault_free(a->vault);
    fd_close(&a->epoll_fd);
    mem_free(a);
}

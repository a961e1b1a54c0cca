/* SPDX-License-Identifier: Apache-2.0 */
/* Sequential: one request, then its answer. Clocks are not compared: an operator acts if
 * the version of its Lease changes while this process reads it. */
#include "operator/check.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "operator/controller.h"
#include "operator/core/lease.h"
#include "operator/page/core/page_review.h"
#include "operator/sinks.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#define LEASE_DURATIONS 3u
#define REQUEST_MS      10000
#define LEASE_STEP_NS   (NS_PER_S / 2)
#define REVIEW_BYTES    4096u

struct check {
    struct kube *kube;
    const struct operator_options *o;
    int n_failed;
    /* the answer to the request in progress */
    bool is_answered;
    struct kube_answer answer;
    struct lease_record lease; /* of an answer with a Lease */
};

static void check_print(const char *word, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void check_print(const char *word, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)printf("%s: ", word);
    (void)vprintf(fmt, ap);
    (void)printf("\n");
    va_end(ap);
}

/* --- requests --------------------------------------------------------------------- */

static void on_check_answer(void *arg, const struct kube_reply *reply)
{
    struct check *c = arg;

    c->is_answered = true;
    c->answer = reply->answer;
    c->lease = (struct lease_record){0};
    if (reply->answer.cls == ANSWER_OK)
        (void)lease_parse(reply->body, reply->n,
                          &c->lease); /* else it reads as empty */
}

/* Waits for the network until then, or until the answer is there. */
static int check_wait(struct check *c, uint64_t until_ns, struct err *err)
{
    int rc = 0;

    while (rc == 0 && !c->is_answered && clock_now_ns() < until_ns) {
        uint64_t next_ns = kube_next_ns(c->kube);

        kube_tick(c->kube, clock_now_ns());
        rc = http_run(kube_http(c->kube), next_ns < until_ns ? next_ns : until_ns, NULL,
                      0, err);
    }
    return rc;
}

/* Every request is answered in the end: the client has a time limit for each. */
static int check_send(struct check *c, const struct kube_request *rq, struct err *err)
{
    struct kube_request own = *rq;
    int rc;

    if (!own.method)
        own.method = "GET";
    own.done = on_check_answer;
    own.arg = c;
    c->is_answered = false;
    rc = kube_submit(c->kube, &own, err);
    return rc < 0 ? rc : check_wait(c, UINT64_MAX, err);
}

/* --- the checks ------------------------------------------------------------------- */

static void check_fail(struct check *c, const char *what)
{
    c->n_failed++;
    check_print("failed", "%s: %s", what, c->answer.message);
}

/* Of a whole kind. Fails without an answer: the other requests would wait as long. */
static int check_kind(struct check *c, struct kube_request *rq, struct err *err)
{
    int rc;

    rq->timeout_ms = REQUEST_MS;
    rc = check_send(c, rq, err);
    if (rc == 0 && c->answer.http == 0)
        rc = err_set(err, -ECONNREFUSED, "%s: %s", kube_kind_name(rq->kind),
                     c->answer.message);
    return rc;
}

static int check_list(struct check *c, struct kube_request *rq, struct err *err)
{
    const char *name = kube_kind_name(rq->kind);
    int rc;

    rq->query = "?limit=1";
    rc = check_kind(c, rq, err);
    if (rc < 0)
        return rc;
    if (c->answer.cls == ANSWER_OK) {
        check_print("ok", "%s: this account may list it", name);
    } else if (c->answer.cls == ANSWER_NOT_FOUND && rq->kind == KUBE_MPIJOB) {
        check_print("skipped", "%s: the cluster does not define it", name);
    } else if (c->answer.cls == ANSWER_NOT_FOUND) {
        c->n_failed++;
        check_print("failed", "%s: the cluster does not define it", name);
    } else {
        check_fail(c, name);
    }
    return 0;
}

static int check_lists(struct check *c, struct err *err)
{
    /* read when a pod does not start */
    struct kube_request rq = {.kind = KUBE_EVENT, .ns = c->o->ns};
    int rc = check_list(c, &rq, err);

    for (int i = 0; rc == 0 && i < WATCH_COUNT; i++) {
        if (i != WATCH_MPI_PODS /* pods are checked once */
            && sinks_has_list(c->o, (enum watch_id)i, &rq))
            rc = check_list(c, &rq, err);
    }
    return rc;
}

static int
check_review(struct check *c, enum kube_kind kind, struct strbuf *body, struct err *err)
{
    struct kube_request rq = {
        .method = "POST", .kind = kind, .body = strbuf_str(body), .body_n = body->n};
    int rc = strbuf_status(body);

    rc = rc < 0 ? err_set(err, rc, "out of memory") : check_kind(c, &rq, err);
    if (rc < 0)
        return rc;
    if (c->answer.cls == ANSWER_OK)
        check_print("ok", "%s: this account may create it", kube_kind_name(kind));
    else
        check_fail(c, kube_kind_name(kind));
    return 0;
}

/* Of a viewer who does not exist: how the page checks each one. */
static int check_reviews(struct check *c, struct err *err)
{
    const struct page_owner owner = {.name = "nobody", .spec = "{\"user\":\"nobody\"}"};
    const struct page_right right = {"list", "ringmaster.dev", "horovodjobs", "", "",
                                     ""};
    CLEANUP(strbuf_release) struct strbuf token, access;
    int rc;

    strbuf_init(&token, REVIEW_BYTES);
    strbuf_init(&access, REVIEW_BYTES);
    page_review_write_token("hvd-operator-check", false, &token);
    page_review_write_right(&owner, &right, &access);
    rc = check_review(c, KUBE_TOKEN_REVIEW, &token, err);
    return rc < 0 ? rc : check_review(c, KUBE_ACCESS_REVIEW, &access, err);
}

static void lease_report(struct check *c, const char *ns)
{
    const char *holder = c->lease.holder;
    unsigned long long s = LEASE_DURATIONS * c->o->lease_duration_ms / 1000u;

    c->n_failed++;
    if (c->answer.cls != ANSWER_OK && c->answer.cls != ANSWER_NOT_FOUND)
        check_print("failed", "Lease %s/%s: %s", ns, c->o->lease_name,
                    c->answer.message);
    else if (!*holder)
        check_print("failed", "Lease %s/%s: no operator held it for %llu s", ns,
                    c->o->lease_name, s);
    else
        check_print("failed",
                    "Lease %s/%s: %s holds it and did not renew it for %llu s", ns,
                    c->o->lease_name, holder, s);
}

static int check_lease(struct check *c, const char *ns, struct err *err)
{
    const struct kube_request rq = {.kind = KUBE_LEASE,
                                    .ns = ns,
                                    .name = c->o->lease_name,
                                    .timeout_ms = REQUEST_MS};
    uint64_t end_ns =
        clock_now_ns() + LEASE_DURATIONS * c->o->lease_duration_ms * NS_PER_MS;
    char version[sizeof(c->lease.version)] = "";
    int rc;

    while ((rc = check_send(c, &rq, err)) == 0 && clock_now_ns() < end_ns) {
        const struct lease_record *l = &c->lease;

        if (*l->holder && *version && strcmp(version, l->version) != 0) {
            check_print("ok", "Lease %s/%s: %s acts", ns, c->o->lease_name, l->holder);
            return 0;
        }
        (void)snprintf(version, sizeof(version), "%s", l->version);
        c->is_answered = false;
        rc = check_wait(c, clock_now_ns() + LEASE_STEP_NS, err);
        if (rc < 0)
            return rc;
    }
    if (rc == 0)
        lease_report(c, ns);
    return rc;
}

int check_run(const struct kube_config *config,
              const struct operator_options *o,
              struct err *err)
{
    const struct kube_options k = {.qps = o->qps, .burst = o->burst};
    struct check c = {.o = o};
    const char *ns = options_lock_namespace(o, config->ns);
    int rc = kube_new(config, &k, &c.kube, err);

    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a pod may be killed before the end */
    if (rc == 0)
        rc = check_lists(&c, err);
    if (rc == 0 && o->page_port)
        rc = check_reviews(&c, err);
    if (rc == 0 && o->is_leader_elect_set && !o->leader_elect)
        check_print("skipped", "Lease: --leader-elect=false");
    else if (rc == 0)
        rc = check_lease(&c, ns, err);
    kube_free(c.kube);
    if (rc == 0)
        check_print(c.n_failed ? "failed" : "ok", "hvd-operator --check: %d failed",
                    c.n_failed);
    return rc < 0 ? rc : c.n_failed;
}

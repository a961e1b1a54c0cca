/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to the API server by kind, name and verb: queued, rate-limited, at most a
 * few in flight; and watches, which are neither queued nor limited. One thread;
 * callbacks run in http_run. */
#ifndef OPERATOR_KUBE_CLIENT_H
#define OPERATOR_KUBE_CLIENT_H

#include "operator/kube/answer.h"
#include "operator/kube/http.h"
#include "operator/kube/path.h"
#include "operator/kube/stream.h"

struct kube;

struct kube_reply {
    struct kube_answer answer;
    const char *body; /* valid during the callback */
    size_t n;
    int error; /* why there was no whole answer, a negative errno; else 0 */
};
typedef void (*kube_done_fn)(void *arg, const struct kube_reply *reply);

struct kube_request {
    const char *method; /* GET POST PUT PATCH DELETE */
    enum kube_kind kind;
    const char *ns, *name, *sub; /* see kube_path */
    const char *query;           /* "?a=b", from kube_query; NULL for none */
    const char *body; /* copied; NULL for none. A PATCH is a merge patch, for pods a
                         strategic merge patch */
    size_t body_n;
    bool is_metadata;    /* a list: only the metadata of each object */
    bool is_text;        /* the answer is text of any form, such as a log */
    size_t max_answer;   /* bytes; a longer one fails with -E2BIG. 0: the default */
    uint64_t timeout_ms; /* 0: the default, half a minute */
    /* Sent at once: not queued, rate-limited or fenced. Its timeout starts now, even while
     * credentials are fetched. */
    bool is_urgent;
    kube_done_fn done;
    void *arg;
};

/* Called for every answer; for metrics. */
typedef void (*kube_seen_fn)(void *arg, const char *method, int http, uint64_t took_ns);
/* Returns true if writes are allowed now. Called just before a write is sent. */
typedef bool (*kube_fence_fn)(void *arg);

struct kube_options {
    uint32_t qps, burst;
    kube_seen_fn seen; /* may be NULL */
    void *seen_arg;
    kube_fence_fn may_write; /* may be NULL: always */
    void *may_write_arg;
};

int kube_new(const struct kube_config *config,
             const struct kube_options *options,
             struct kube **ret,
             struct err *err);
void kube_free(struct kube *k); /* open requests are dropped without a callback */
struct http *kube_http(struct kube *k);

/* Queues a request; done is called exactly once unless this fails. A write that the
 * fence stops ends with ANSWER_UNAVAILABLE and -EPERM. */
int kube_submit(struct kube *k, const struct kube_request *rq, struct err *err);
/* Opens a watch at once. opened is called when the server has accepted it, line for
 * each event, done when it has ended. */
struct kube_watch {
    enum kube_kind kind;
    const char *ns, *query;
    bool is_metadata; /* only the metadata of each object */
    uint64_t idle_ms;
    void (*opened)(void *arg); /* may be NULL */
    stream_line_fn line;
    kube_done_fn done;
    void *arg;
};
int kube_watch(struct kube *k, const struct kube_watch *spec, struct err *err);

/* The end of the pause that the API server requested (429); no watch may be opened
 * before. In the past: no pause. */
uint64_t kube_paused_ns(const struct kube *k);

/* Writes are no longer allowed: fails all writes and reads of single objects, queued or
 * in flight. Lists and watches continue. */
void kube_fence(struct kube *k);
/* Ends the watch that was opened with this arg, without a callback. */
void kube_watch_cancel(struct kube *k, const void *arg);

void kube_tick(struct kube *k, uint64_t now_ns); /* sends due requests */
uint64_t
kube_next_ns(const struct kube *k); /* when kube_tick has work; UINT64_MAX: none */

#endif

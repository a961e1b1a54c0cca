/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP status + Status object -> struct kube_answer. The server's own message is kept,
 * because it names the field ("spec.containers[0].image: Required value"). */
#include "operator/kube/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/doc/json.h"

#define MAX_STATUS_BYTES (256u << 10)

/* A webhook that denies without a code of its own returns 400. Its cause may be outside
 * the object and may change. */
static bool is_denial(const char *message)
{
    return strstr(message, "admission webhook \"") != NULL;
}

static enum answer_class class_of(int http, const char *reason, const char *message)
{
    switch (http) {
    case 0:
        return ANSWER_UNAVAILABLE;
    case 400:
        return is_denial(message) ? ANSWER_FORBIDDEN : ANSWER_INVALID;
    case 413:
    case 422:
        return ANSWER_INVALID;
    case 401:
    case 403:
        return ANSWER_FORBIDDEN;
    case 404:
        return ANSWER_NOT_FOUND;
    case 409:
        return strcmp(reason, "AlreadyExists") == 0 ? ANSWER_EXISTS : ANSWER_CONFLICT;
    case 410:
        return ANSWER_GONE;
    case 429:
        return ANSWER_THROTTLED;
    default:
        return http >= 200 && http < 300 ? ANSWER_OK : ANSWER_UNAVAILABLE;
    }
}

static void answer_read_status(const struct http_reply *reply, struct kube_answer *a)
{
    struct arena arena;
    struct node *status;
    const char *s;

    arena_init(&arena, 8 * MAX_STATUS_BYTES);
    if (reply->n <= MAX_STATUS_BYTES
        && json_read(&arena, reply->body, reply->n, &status, NULL) == 0) {
        s = node_str(status, "reason");
        (void)snprintf(a->reason, sizeof(a->reason), "%s", s ? s : "");
        s = node_str(status, "message");
        (void)snprintf(a->message, sizeof(a->message), "%s", s ? s : "");
        if (a->retry_after_s == 0)
            a->retry_after_s =
                (uint32_t)node_int(status, "details.retryAfterSeconds", 0) % 301;
    }
    arena_release(&arena);
}

void answer_read(const struct http_reply *reply, struct kube_answer *ret)
{
    *ret = (struct kube_answer){.http = reply->status,
                                .retry_after_s = reply->retry_after_s};
    if (reply->status >= 300)
        answer_read_status(reply, ret);
    if (reply->status == 0)
        (void)snprintf(ret->message, sizeof(ret->message), "%s", reply->err.text);
    else if (reply->status >= 300 && !*ret->message)
        (void)snprintf(ret->message, sizeof(ret->message),
                       "the API server answered HTTP %d", reply->status);
    ret->cls = class_of(reply->status, ret->reason, ret->message);
}

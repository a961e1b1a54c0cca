/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of the API server's answer for the caller, from the HTTP status and the
 * Status object in the body. Pure. */
#ifndef OPERATOR_KUBE_ANSWER_H
#define OPERATOR_KUBE_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "operator/kube/http.h"

enum answer_class {
    ANSWER_OK,
    ANSWER_EXISTS,      /* 409 AlreadyExists */
    ANSWER_CONFLICT,    /* any other 409: the object was changed in the meantime */
    ANSWER_NOT_FOUND,   /* 404 */
    ANSWER_GONE,        /* 410: resourceVersion or continue token too old */
    ANSWER_INVALID,     /* 400, 413, 422: the same request fails again */
    ANSWER_FORBIDDEN,   /* 401, 403, 400 of a webhook: rights, quota, admission */
    ANSWER_THROTTLED,   /* 429: wait retry_after_s */
    ANSWER_UNAVAILABLE, /* 5xx, or no answer at all */
};
struct kube_answer {
    enum answer_class cls;
    int http;           /* 0: no answer */
    char reason[64];    /* of the Status object; "" if none */
    char message[1024]; /* for users */
    uint32_t retry_after_s;
};
void answer_read(const struct http_reply *reply, struct kube_answer *ret);

#endif

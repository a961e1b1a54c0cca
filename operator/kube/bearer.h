/* SPDX-License-Identifier: Apache-2.0 */
/* The bearer token: a fixed string, or a file that is read again every minute and after
 * a 401 (the kubelet rotates it). */
#ifndef OPERATOR_KUBE_BEARER_H
#define OPERATOR_KUBE_BEARER_H

#include <stdint.h>

#include "runtime/base/err.h"

#define BEARER_MAX_AGE_NS 60000000000ull

struct bearer {
    const char *path; /* NULL: token is fixed. Borrowed */
    char *token;
    uint64_t read_ns; /* 0: read before the next use */
};
int bearer_init(struct bearer *b, const char *token, const char *path);
void bearer_release(struct bearer *b);
/* *ret: the token, NULL if none is configured; valid until the next call. If the file
 * cannot be read, an older token is used. */
int bearer_get(struct bearer *b, uint64_t now_ns, const char **ret, struct err *err);
void bearer_stale(struct bearer *b); /* the server has answered 401 */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* An HTTP request with a body. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_POST_H
#define RUNTIME_LAUNCH_CORE_POST_H

#include <stdbool.h>
#include <stddef.h>

enum { POST_HEAD_MAX = 4096, POST_BODY_MAX = 16384 };

enum post_state {
    POST_PARTIAL, /* more bytes follow */
    POST_COMPLETE,
    POST_REFUSED
};

struct post { /* the texts point into the request, and have no NUL at the end */
    const char *path, *bearer, *body;
    size_t n_path, n_bearer, n_body; /* bearer: of "Authorization: Bearer"; 0: none */
    const char *status, *why; /* POST_REFUSED: "411 Length Required", a sentence */
};

bool post_is_one(const char *p, size_t n); /* the method is POST */
/* Reads what has arrived of it; at most POST_HEAD_MAX + POST_BODY_MAX bytes are needed for
 * an end of POST_PARTIAL. Bytes behind the body are ignored. */
enum post_state post_read(const char *p, size_t n, struct post *ret);

#endif

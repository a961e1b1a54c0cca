/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of the webhook, by the specification Standard Webhooks 1.0: the receiver's URL
 * and key as an administrator writes them, a message's body, and the headers that sign it.
 * Pure. */
#ifndef OPERATOR_CORE_WEBHOOK_TEXT_H
#define OPERATOR_CORE_WEBHOOK_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "operator/core/front.h"
#include "runtime/base/err.h"

#define WEBHOOK_ID_SIZE     37 /* with NUL */
#define WEBHOOK_MAX_URL     4096u
#define WEBHOOK_MIN_KEY     24u /* bytes, as the specification has them */
#define WEBHOOK_MAX_KEY     64u
#define WEBHOOK_MAX_SECRET  256u  /* the file that has the key */
#define WEBHOOK_MAX_MESSAGE 1024u /* of a job; the rest is cut off */
#define WEBHOOK_MAX_BODY    16384u

struct webhook_key {
    uint8_t p[WEBHOOK_MAX_KEY];
    size_t n;
};

/* Splits "https://host:port/path?query\n" into the server, which may be logged, and what
 * follows, which may contain secrets; it is no part of errors. Both are freed with
 * mem_free. */
int webhook_read_url(const char *text,
                     char **ret_server,
                     char **ret_path,
                     struct err *err);
/* text: "whsec_" and base64, or the bytes of the key. One line break at the end does not
 * count. */
int webhook_read_key(const char *text,
                     size_t n,
                     struct webhook_key *ret,
                     struct err *err);

/* A change of a job's state: from job->status, NULL for a new job, to status. */
struct webhook_change {
    const struct job_meta *job;
    const struct node *status;
    const char *reason, *message; /* may be NULL */
    uint64_t wall_s;
};
/* True if the state differs. */
bool webhook_is_change(const struct webhook_change *c);
/* Names the write of this status. The API server accepts one write for each version of the
 * job, so a change that is announced twice has the same id. */
void webhook_make_id(const struct webhook_change *c, char ret[WEBHOOK_ID_SIZE]);
/* A JSON object. -ENOMEM, or -E2BIG beyond the bound of out. */
int webhook_make_body(const struct webhook_change *c,
                      struct arena *a,
                      struct strbuf *out);
/* The lines webhook-id, webhook-timestamp and webhook-signature of an attempt at wall_s. */
void webhook_make_headers(const char *id,
                          uint64_t wall_s,
                          const char *body,
                          size_t body_n,
                          const struct webhook_key *key,
                          struct strbuf *out);

#endif

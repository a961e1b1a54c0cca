/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the tokens of jobs from their Secrets: one request to the API server for each. In
 * the operator's thread. */
#ifndef OPERATOR_JOB_TOKEN_H
#define OPERATOR_JOB_TOKEN_H

#include <stddef.h>

#include "operator/kube/client.h"
#include "runtime/contract/token.h"

struct token_reader;
/* t: valid during the callback; NULL: it could not be read, and why. */
typedef void (*token_done_fn)(void *arg, const struct token *t, const char *why);

struct token_reader *token_reader_new(struct kube *kube);
void token_reader_free(struct token_reader *r); /* after kube_free; accepts NULL */
/* done is called exactly once, unless this fails or is cancelled. -ENOMEM. */
int token_reader_start(struct token_reader *r,
                       const char *ns,
                       const char *secret,
                       const char *job_uid, /* the Secret's owner must be this job */
                       token_done_fn done,
                       void *arg);
void token_reader_cancel(struct token_reader *r, const void *arg);
size_t token_reader_n(const struct token_reader *r); /* requests without an answer */

#endif

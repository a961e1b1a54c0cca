/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a job over several hosts.
 *
 *   over ssh    the root key is random for each job and travels through ssh, which
 * hides and authenticates it; session keys are made of it by serve    the root key is
 * what the token file holds and never travels; session keys come from the handshake's
 * nonces (auth.h) the token   that ranks authenticate each other by is HMAC(root, seed)
 * with a random seed for each job: the shared token itself reaches no rank */
#ifndef RUNTIME_LAUNCH_SESSION_H
#define RUNTIME_LAUNCH_SESSION_H

#include "runtime/launch/core/errand.h"
#include "runtime/rendezvous/auth.h"

#define SERVE_JOB_ID "hvd-agent/serve"

void session_of_job(const struct token *root,
                    bool is_launcher,
                    struct auth_session *ret);
void session_job_token(const struct token *root,
                       const uint8_t seed[ERRAND_SEED_BYTES],
                       struct token *ret);

#endif

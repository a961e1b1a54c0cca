/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a job on several hosts.
 *
 *   with ssh     The root key is random for each job and is sent through ssh, which
 *                encrypts and authenticates it. The session keys are derived from it.
 *   with serve   The root key is the content of the token file and is never sent. The
 *                session keys come from the nonces of the handshake (auth.h).
 *   job token    Ranks authenticate each other with HMAC(root, seed), where the seed is
 *                random for each job. Ranks never get the shared token. */
#ifndef RUNTIME_LAUNCH_SESSION_H
#define RUNTIME_LAUNCH_SESSION_H

#include "runtime/launch/core/errand.h"
#include "runtime/wire/auth.h"

#define SERVE_JOB_ID "hvd-agent/serve"

void session_of_job(const struct token *root,
                    bool is_launcher,
                    struct auth_session *ret);
void session_job_token(const struct token *root,
                       const uint8_t seed[ERRAND_SEED_BYTES],
                       struct token *ret);

/* The keys of a new job. token_file NULL: with ssh. */
int session_make_keys(const char *token_file,
                      const uint8_t seed[ERRAND_SEED_BYTES],
                      struct token *ret_root,
                      struct token *ret_token,
                      struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Each key is the HMAC of another label, so that no key reveals another. Called by
 * attach.c, link.c, remote.c and remote_agent.c. */
#include "runtime/launch/session.h"

#include <string.h>

#include "runtime/base/sha256.h"

static void token_derive(const struct token *root,
                         const char *label,
                         const void *p,
                         size_t n,
                         uint8_t ret[SHA256_BYTES])
{
    struct hmac m;
    hmac_init(&m, root->key, sizeof(root->key));
    hmac_add(&m, label, strlen(label));
    if (n)
        hmac_add(&m, p, n);
    hmac_end(&m, ret);
}

void session_of_job(const struct token *root,
                    bool is_launcher,
                    struct auth_session *ret)
{
    token_derive(root, "hvd launcher", NULL, 0,
                 is_launcher ? ret->send_key : ret->recv_key);
    token_derive(root, "hvd agent", NULL, 0,
                 is_launcher ? ret->recv_key : ret->send_key);
}

void session_job_token(const struct token *root,
                       const uint8_t seed[ERRAND_SEED_BYTES],
                       struct token *ret)
{
    token_derive(root, "hvd job token", seed, ERRAND_SEED_BYTES, ret->key);
}

int session_make_keys(const char *token_file,
                      const uint8_t seed[ERRAND_SEED_BYTES],
                      struct token *ret_root,
                      struct token *ret_token,
                      struct err *err)
{
    int rc = token_file ? token_read_file(token_file, ret_root, err)
                        : token_random(ret_root, err);
    if (rc == 0)
        session_job_token(ret_root, seed, ret_token);
    return rc;
}

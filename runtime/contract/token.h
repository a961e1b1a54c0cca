/* SPDX-License-Identifier: Apache-2.0 */
/* The job token: 32 random bytes. A file or pipe contains 64 hex digits and a newline;
 * a Secret may contain any 16 to 4096 bytes, which are hashed. */
#ifndef RUNTIME_CONTRACT_TOKEN_H
#define RUNTIME_CONTRACT_TOKEN_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"

struct token {
    uint8_t key[32];
};
int token_random(struct token *ret, struct err *err);
/* -EACCES with an error message: other users may write or read the file. Reading is
 * allowed if the file system is mounted read-only, as Secret volumes are (the pod is
 * the boundary there). */
int token_read_file(const char *path, struct token *ret, struct err *err);
int token_write_file(const char *path,
                     const struct token *t,
                     struct err *err); /* 0600 */
/* The place's token, whatever its source; TOKEN_FD is read once and closed. */
int token_from_contract(const struct contract *c, struct token *ret, struct err *err);
void token_wipe(struct token *t);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The job token: 32 random bytes. A file or pipe contains them as 64 hex digits; blanks
 * and newlines may follow. */
#ifndef RUNTIME_CONTRACT_TOKEN_H
#define RUNTIME_CONTRACT_TOKEN_H

#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"

struct token {
    uint8_t key[32];
};
int token_random(struct token *ret, struct err *err);
/* The file must be a regular one of this user or root, without access for others. They
 * may read it if the file system is mounted read-only, as Secret volumes are. -EACCES
 * or -EINVAL with an error message that contains the command that helps. */
int token_read_file(const char *path, struct token *ret, struct err *err);
/* Replaces what is there; mode 0600. */
int token_write_file(const char *path, const struct token *t, struct err *err);
/* Writes a new token to a new file of mode 0600; -EEXIST if there is one. */
int token_create_file(const char *path, struct err *err);
/* The place's token, whatever its source; TOKEN_FD is read once and closed. */
int token_from_contract(const struct contract *c, struct token *ret, struct err *err);
void token_wipe(struct token *t);

#endif

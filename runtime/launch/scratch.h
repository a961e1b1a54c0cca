/* SPDX-License-Identifier: Apache-2.0 */
/* A private folder with what ranks read: the token (0600) and the hostfile. */
#ifndef RUNTIME_LAUNCH_SCRATCH_H
#define RUNTIME_LAUNCH_SCRATCH_H

#include "runtime/contract/contract.h"
#include "runtime/contract/hostlist.h"
#include "runtime/contract/token.h"

struct scratch_folder {
    char dir[CONTRACT_PATH_MAX - 32]; /* "": none */
    char token_file[CONTRACT_PATH_MAX], hostfile[CONTRACT_PATH_MAX];
};

/* In $TMPDIR, /tmp, /dev/shm or extra_dir ("": none), whichever is writable first. */
int scratch_make(struct scratch_folder *s, const char *extra_dir, struct err *err);
int scratch_write(const struct scratch_folder *s,
                  const struct token *token,
                  const struct hostlist *hosts,
                  struct err *err);
/* A struct in memory that later children share: a guard that is forked before
 * scratch_make knows what was made after it. */
int scratch_share(struct scratch_folder **ret, struct err *err);
void scratch_unshare(struct scratch_folder *s); /* accepts NULL */
void scratch_remove(const struct scratch_folder *s);

#endif

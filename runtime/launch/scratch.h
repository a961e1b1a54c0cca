/* SPDX-License-Identifier: Apache-2.0 */
/* A private folder with the files for ranks: the token (0600) and the hostfile; and one
 * in memory for the pages of the ranks. */
#ifndef RUNTIME_LAUNCH_SCRATCH_H
#define RUNTIME_LAUNCH_SCRATCH_H

#include "runtime/contract/contract.h"
#include "runtime/contract/hostlist.h"
#include "runtime/contract/token.h"

struct scratch_folder {
    char dir[CONTRACT_PATH_MAX - 32]; /* "": none */
    char token_file[CONTRACT_PATH_MAX], hostfile[CONTRACT_PATH_MAX];
    /* HVD_STATS_DIR of the ranks: on a tmpfs if there is one, else dir. Ranks map files
     * there and write to them in each step. On a disk such a write waits now and then
     * for the page to be written back. */
    char stats_dir[CONTRACT_PATH_MAX - 32];
};

/* Creates it in the first writable one of $TMPDIR, /tmp, /dev/shm and extra_dir ("":
 * none). Removes folders of this user there that others left when they were killed. */
int scratch_make(struct scratch_folder *s, const char *extra_dir, struct err *err);
int scratch_write(const struct scratch_folder *s,
                  const struct token *token,
                  const struct hostlist *hosts,
                  struct err *err);
/* Allocates the struct in memory that is shared with later children: a guard that is
 * forked before scratch_make sees the folder that it creates. */
int scratch_share(struct scratch_folder **ret, struct err *err);
void scratch_unshare(struct scratch_folder *s); /* accepts NULL */
/* Calls visit for each such folder of this user in $TMPDIR, /tmp and /dev/shm. */
void scratch_visit(void (*visit)(void *arg, const char *dir), void *arg);
void scratch_remove(const struct scratch_folder *s);

#endif

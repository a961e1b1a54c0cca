/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that a foreign launcher started meet by that launcher's own channel (PMI-1,
 * PMIx): rank 0 publishes the address of its rendezvous and a random token. */
#ifndef RUNTIME_BOOTSTRAP_BOOTSTRAP_H
#define RUNTIME_BOOTSTRAP_BOOTSTRAP_H

#include "runtime/contract/contract.h"
#include "runtime/contract/token.h"

struct bootstrap;

/* Called once per process, by all ranks at the same time; c->channel is not
 * CHANNEL_NONE. port: where rank 0 listens (other ranks: ignored); addrs: its
 * addresses, separated by commas. On success c has its whole place, the rendezvous
 * address and TOKEN_CHANNEL, and *ret_token is the job's token; *ret must be passed to
 * bootstrap_finish at the exit of the process.
 *
 * A world of one rank exchanges nothing: the token stays unchanged. -ENOENT: the
 * channel cannot be used in this process and c is unchanged; another way may be tried.
 * -ETIMEDOUT and every other error: one message and no second attempt, because other
 * ranks may have continued. */
int bootstrap_meet(struct contract *c,
                   uint16_t port,
                   const char *addrs,
                   uint64_t deadline_ns,
                   struct bootstrap **ret,
                   struct token *ret_token,
                   struct err *err);
/* Reports a normal exit of this process to the launcher; bounded. Does nothing in a
 * forked child, and accepts NULL. Frees b. */
void bootstrap_finish(struct bootstrap *b);

#endif

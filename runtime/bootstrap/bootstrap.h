/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that a foreign launcher started find each other by that launcher's own channel
 * (PMI-1, PMIx): rank 0 tells everybody where ranks meet, and a random token. */
#ifndef RUNTIME_BOOTSTRAP_BOOTSTRAP_H
#define RUNTIME_BOOTSTRAP_BOOTSTRAP_H

#include "runtime/contract/contract.h"
#include "runtime/contract/token.h"

struct bootstrap;

/* Once a process, by all ranks at the same time; c->channel is not CHANNEL_NONE.
 * port: where rank 0 listens (others: anything); addrs: its addresses, with commas
 * between. On success c has its whole place, where ranks meet and TOKEN_CHANNEL, and
 * *ret_token is the job's token; *ret must go to bootstrap_finish at the process' exit.
 *
 * For a place of one rank nothing is exchanged: the token stays as it was.
 * -ENOENT: the channel cannot be used in this process, and c is as it was: another way
 * may be taken. -ETIMEDOUT, and whatever else: one sentence, and no second try: other
 * ranks have gone on. */
int bootstrap_meet(struct contract *c,
                   uint16_t port,
                   const char *addrs,
                   uint64_t deadline_ns,
                   struct bootstrap **ret,
                   struct token *ret_token,
                   struct err *err);
/* Tells the launcher that this process leaves well; bounded. Does nothing in a forked
 * child, and accepts NULL. Frees b. */
void bootstrap_finish(struct bootstrap *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How an agent that keeps the processes of a job gets the connection of the next
 * horovodrun. hvd-agent serve starts a new agent for each connection; that one finds the
 * keeper by the job's name and passes frames on between the two. One thread. */
#ifndef RUNTIME_LAUNCH_HANDOVER_H
#define RUNTIME_LAUNCH_HANDOVER_H

#include "runtime/contract/token.h"
#include "runtime/launch/channel.h"
#include "runtime/launch/signals.h"

/* The keeper listens at a name that follows from the job's key and name. -EADDRINUSE:
 * another agent keeps this job. */
int handover_listen(const struct token *root,
                    const char *job_id,
                    int *ret_fd,
                    struct err *err);
/* A connection of a new agent; false: none. *ret is a channel, with the new agent at its
 * other end, which passes JOB on first. */
bool handover_accept(int fd, const struct token *root, struct channel *ret);
/* The new agent: 0 if there is a keeper. */
int handover_connect(const struct token *root,
                     const char *job_id,
                     struct channel *ret,
                     struct err *err);
/* Passes frames on, first this one, until either end closes or a stop signal arrives.
 * silence_ns: as channel_tick. */
void handover_relay(struct channel *leader,
                    struct channel *keeper,
                    uint8_t type,
                    const struct strbuf *first,
                    uint64_t silence_ns,
                    struct signals *signals);

#endif

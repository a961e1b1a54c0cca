/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the agents of a job's hosts (core/errand.h). */
#ifndef RUNTIME_LAUNCH_REMOTE_RECEIVE_H
#define RUNTIME_LAUNCH_REMOTE_RECEIVE_H

#include "runtime/launch/links.h"
#include "runtime/launch/live_lead.h"
#include "runtime/launch/remote_hosts.h"
#include "runtime/launch/remote_output.h"

/* Applies one message of l. -EPROTO or -ENOMEM with err: the link must end. */
int remote_receive(struct remote_hosts *h,
                   struct remote_output *o,
                   struct live_lead *lead,
                   const struct link *l,
                   const struct frame *f,
                   struct err *err);

/* READY alone: with the addresses of both ends, as far as they are known. */
int remote_receive_ready(const struct link *l,
                         const struct frame *f,
                         struct errand_ready *ret,
                         struct err *err);

/* LIVE, after the host. A malformed one costs only what it would have shown. */
void remote_receive_live(struct live_lead *lead, struct bytes_reader *b);

#endif

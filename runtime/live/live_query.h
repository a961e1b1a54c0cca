/* SPDX-License-Identifier: Apache-2.0 */
/* What a reader can ask worker 0's agent, over an authenticated connection
 * (wire/auth.h: ROLE_READER to ROLE_AGENT_HUB, at the check-in port). One query, one
 * answer, then the agent closes. Readers only read: nothing here changes a job, but an
 * examination interrupts its ranks for a moment.
 *
 *   reader -> hub   frame QUERY   what:2 first:4 max:4
 *   hub -> reader   frame ANSWER  status:4 and bytes
 *
 * status 0: the bytes are the answer; else an errno, and the bytes are one sentence. */
#ifndef RUNTIME_LIVE_LIVE_QUERY_H
#define RUNTIME_LIVE_LIVE_QUERY_H

#include "runtime/live/live_worker.h"

enum live_query_kind {
    QUERY_REPORT = 1, /* a packed live_report */
    QUERY_RANKS,   /* u32 n, then n {u32 length, packed live_rank}: from rank `first` */
    QUERY_STACKS,  /* text: the last examination (launch/examine.h), equal stacks
                       * grouped; "" if there was none */
    QUERY_EXAMINE, /* the same after a new examination of all ranks (takes seconds) */
};
enum live_message { LIVE_MESSAGE_QUERY = 64, LIVE_MESSAGE_ANSWER }; /* frame types */
#define QUERY_ANSWER_MAX_BYTES (4u << 20)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Calls members to an agreement in which they have nothing to offer; only for the files
 * of this folder. backend.h documents each function. */
#ifndef RUNTIME_BACKEND_CPU_CALL_H
#define RUNTIME_BACKEND_CPU_CALL_H

#include <stdbool.h>

#include "runtime/backend/backend.h"

#define CALL_WAKE_AFTER 32u /* polls of an agreement before a missing member is woken */

struct cpu;

struct calls {     /* owned by the driving thread */
    int wakeup_fd; /* datagrams from members of this host; -1: none */
    int hosts;     /* epoll: sockets of leaders that may send first; -1: none */
    bool calls;    /* all members must join the current agreement */
    uint32_t tag;
    uint32_t
        started_tag; /* tag of the last agreement that this member started itself */
};

void call_init(struct calls *k);
void call_close(struct calls *k);
void call_started(struct cpu *c); /* an agreement; once its words are published */
void call_missing(struct cpu *c); /* wakes the missing members of the current one */
/* A leader that waits for its own host: whether other members call for the current
 * agreement. */
bool call_is_due(struct cpu *c);
/* Whether a local member's proxy words were counted in the current agreement. */
bool call_is_counted(struct cpu *c, uint32_t member);
/* Counts it, if only such members are missing; false: it must join itself. */
bool call_count(struct cpu *c, uint32_t member);

int agree_wakeup_fds(struct backend *b, int ret_fds[2], struct err *err);
void agree_call(struct backend *b);
enum agree_call agree_call_state(struct backend *b);
enum agree_call agree_arm_wakeup(struct backend *b,
                                 enum agree_call what,
                                 const uint64_t *words,
                                 uint32_t n);
bool agree_disarm_wakeup(struct backend *b);
void agree_tag(struct backend *b, uint32_t tag);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the hub knows and decides: who is here, when to start, stop and finish. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_MEET_H
#define RUNTIME_LAUNCH_CORE_MEET_H

#include <stdbool.h>

#include "runtime/launch/core/message.h"

enum meet_state { MEET_WAITING, MEET_RUNNING, MEET_STOPPED, MEET_FINISHED };
enum member_state { MEMBER_ABSENT, MEMBER_HERE, MEMBER_DONE, MEMBER_LOST };

struct member {
    enum member_state state;
    char host[HOST_NAME_MAX_BYTES], address[HOST_NAME_MAX_BYTES];
};
struct meet {
    enum meet_state state;
    uint32_t workers, slots, np;  /* np 0: all slots */
    const struct hostlist *hosts; /* horovodrun's, which knows them; else NULL */
    uint64_t start_deadline_ns, start_timeout_s;
    struct member *members;
    struct verdict verdict;
};

int meet_init(struct meet *m,
              uint32_t workers,
              uint32_t slots,
              uint32_t np,
              uint64_t start_timeout_s,
              uint64_t now_ns,
              struct err *err);
/* For horovodrun: one worker a host, with that host's slots; sentences name the host.
 * Borrowed. np is the true one here. */
void meet_know_hosts(struct meet *m, const struct hostlist *hosts, uint32_t np);
void meet_here(struct meet *m, uint32_t worker); /* and its command can start */
void meet_release(struct meet *m);
/* A worker introduces itself. -EINVAL, -EALREADY (the job has started): the sentence is
 * for it. A worker that is here already is replaced: its pod was started anew. */
int meet_hello(struct meet *m,
               const struct hello *h,
               const char *address,
               struct err *err);
void meet_failed(struct meet *m, const struct report *r, uint64_t now_ns);
void meet_done(struct meet *m, uint32_t worker);
/* The connection is gone: before the start it may come back, later it is a failure. */
void meet_lost(struct meet *m,
               uint32_t worker,
               const char *why,
               uint64_t wall_us,
               uint64_t now_ns);

/* What is due now: the state to enter, or the present one. The caller carries it out by
 * sending TABLE, STOP or FINISH to all, then sets it by meet_enter. */
enum meet_state meet_due(struct meet *m, uint64_t wall_us, uint64_t now_ns);
void meet_enter(struct meet *m, enum meet_state s);
uint64_t meet_deadline_ns(const struct meet *m);
const struct report *meet_first(const struct meet *m); /* of the job, NULL: none */
uint32_t meet_present(const struct meet *m);
void meet_missing(const struct meet *m, struct strbuf *out); /* "1, 3, 5 and 12 more" */
/* Host names in worker order, made unique (by address, then by number) where pods share
 * one. */
int meet_hosts(const struct meet *m, struct hostlist *ret, struct err *err);

#endif

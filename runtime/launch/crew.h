/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of an elastic job on this host: starts and stops them as the leader of
 * the job sends, passes messages between them and the leader, and reports their ends.
 * One thread. */
#ifndef RUNTIME_LAUNCH_CREW_H
#define RUNTIME_LAUNCH_CREW_H

#include "runtime/contract/contract.h"
#include "runtime/launch/core/elastic.h"
#include "runtime/launch/local_ranks.h"
#include "runtime/launch/member_door.h"

struct crew_config {
    uint32_t first, n;              /* slots of this host */
    uint32_t host;                  /* its number */
    const struct contract *common;  /* of all processes; copied */
    struct local_ranks_config *run; /* the caller's; ranks and n are set here */
    struct signals *signals;
    struct guard *guard;
    /* Each is called with arg, in this thread. */
    void (*on_message)(
        void *arg, uint32_t slot, uint32_t incarnation, const uint8_t *p, size_t n);
    /* exit_code and signal 0: with success. report is the callee's to change. */
    void (*on_exit)(void *arg,
                    uint32_t slot,
                    uint32_t incarnation,
                    struct report *report);
    void *arg;
};
struct member_crew;

int crew_open(const struct crew_config *c, struct member_crew **ret, struct err *err);
void crew_close(
    struct member_crew *c); /* kills processes that still run; accepts NULL */
struct local_ranks *crew_ranks(struct member_crew *c);
/* [n] of the processes, with their places in their present worlds; for live_host.h. Valid
 * until crew_close. */
const struct contract *crew_members(const struct member_crew *c);
/* A process that cannot be started is reported as one that has ended. If another one runs
 * in the slot, it is stopped first. A slot that is not of this host is ignored. place: for
 * its environment; the host is set here. */
void crew_spawn(struct member_crew *c,
                uint32_t slot,
                uint32_t incarnation,
                const struct place *place);
void crew_kill(struct member_crew *c, uint32_t slot, uint32_t incarnation);
void crew_send(struct member_crew *c,
               uint32_t slot,
               uint32_t incarnation,
               const void *p,
               size_t n);
/* What a leader that takes over must know, for each process that runs, or has ended with
 * success. */
void crew_describe(const struct member_crew *c,
                   void (*put)(void *arg,
                               uint32_t slot,
                               const struct elastic_process *p),
                   void *arg);
/* For a leader that gives the slots of this host other numbers. */
void crew_renumber(struct member_crew *c, uint32_t first);
uint32_t
crew_generation(const struct member_crew *c); /* of the latest world; 0: none */
/* For an event of crew_ranks about a process. */
void crew_take_event(struct member_crew *c, struct local_ranks_event *ev);
int crew_fd(const struct member_crew *c); /* to poll for POLLIN */
void crew_serve(struct member_crew *c);

#endif

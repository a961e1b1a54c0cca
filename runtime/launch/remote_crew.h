/* SPDX-License-Identifier: Apache-2.0 */
/* The crew of a host whose leader is horovodrun: messages of errand.h. */
#ifndef RUNTIME_LAUNCH_REMOTE_CREW_H
#define RUNTIME_LAUNCH_REMOTE_CREW_H

#include "runtime/launch/crew.h"
#include "runtime/launch/uplink.h"

struct remote_crew { /* all borrowed */
    struct uplink *up;
    const struct errand *e; /* of an elastic job */
    uint32_t host;
    struct contract *common; /* the host's name is set here */
    struct local_ranks_config *run;
    struct signals *signals;
    struct guard *guard;
};

/* up is used until crew_close. */
int remote_crew_open(const struct remote_crew *r,
                     struct member_crew **ret,
                     struct err *err);
/* Carries out SPAWN, KILL or MEMBER. */
void remote_crew_take(struct member_crew *c,
                      enum errand_type type,
                      struct bytes_reader *r);

/* HAS for each process, to a horovodrun that has not led this crew before. */
void remote_crew_send_processes(const struct member_crew *c, struct uplink *up);

#endif

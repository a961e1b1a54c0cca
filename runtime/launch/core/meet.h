/* SPDX-License-Identifier: Apache-2.0 */
/* What the hub knows and decides: who is here, when to start, to form another world, to
 * stop and to finish. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_MEET_H
#define RUNTIME_LAUNCH_CORE_MEET_H

#include <stdbool.h>

#include "runtime/launch/core/message.h"

enum meet_state { MEET_WAITING, MEET_RUNNING, MEET_STOPPED, MEET_FINISHED };
enum member_state { MEMBER_ABSENT, MEMBER_HERE, MEMBER_DONE, MEMBER_LOST };
/* How long a failure that a leaving worker may explain waits for a world without that
 * worker: less than the 30 s that a deleted pod has by default, long enough for a
 * kubelet that is told of the annotation by a watch to rewrite the world's file. */
#define MEET_LEAVE_MS 10000

struct meet_member {
    enum member_state state;
    bool has_run;    /* its ranks have run in an earlier world */
    bool was_done;   /* they ended with 0 in the last world that ran */
    bool is_leaving; /* it was told to end, or was lost */
    char host[HOST_NAME_MAX_BYTES], address[HOST_NAME_MAX_BYTES];
};
struct meet {
    enum meet_state state;
    uint32_t workers, slots, np;  /* np 0: all slots */
    const struct hostlist *hosts; /* horovodrun's, which knows them; else NULL */
    uint64_t start_deadline_ns, start_timeout_s;
    struct meet_member *members; /* n_members >= workers: also of earlier worlds */
    uint32_t n_members;
    struct launch_verdict verdict;
    /* a job that can be scaled */
    bool is_scalable;
    uint32_t generation, first_generation;
    struct job_world wanted;              /* the newest heard of */
    uint32_t ran_generation, ran_workers; /* the last world that ran; 0 workers: none */
    uint64_t left_ns, leave_until_ns;     /* when the first of those leaving was known,
                                             when failures no longer wait; 0: nobody */
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
/* Of which generation the world is, and whether another may follow. At once after
 * meet_init. */
void meet_know_world(struct meet *m, uint32_t generation, bool is_scalable);
void meet_release(struct meet *m);
/* A worker introduces itself. -EINVAL, -EALREADY (the job has started): the sentence is
 * for it. A worker that is here already is replaced: its pod was started anew. -EAGAIN:
 * it is of a newer world, which is wanted from now on, and says it again when that has
 * come. -ESTALE: of an older one; it is to be told ours if meet_tells. */
int meet_hello(struct meet *m,
               const struct hello *h,
               const char *address,
               struct err *err);
/* Whether a failure among the ranks of that world counts. Those of an earlier one end
 * anyway. */
bool meet_cares(const struct meet *m, uint32_t generation);
void meet_failed(struct meet *m, const struct report *r, uint64_t now_ns);
/* All ranks of a worker have ended well. Of an earlier world too: a job whose ranks had
 * all done so is not formed anew. */
void meet_done(struct meet *m, uint32_t worker, uint32_t generation);
/* It was told to end, so that failures may be its doing. */
void meet_leaving(struct meet *m, uint32_t worker, uint64_t now_ns);
/* Somebody has read of a world. 1: it is newer than all that we know; 0: not; -EINVAL:
 * it cannot be ours, with a sentence. */
int meet_take_world(struct meet *m, const struct job_world *w, struct err *err);
/* Whether an agent of that world is to be told of ours. Not one of before our time,
 * which may be left over from an earlier attempt: its own file tells it or nobody. */
bool meet_sends_world(const struct meet *m, uint32_t generation);
/* Nothing has begun that the worker was part of: it may go, and another take its place.
 */
bool meet_lets_go(const struct meet *m, uint32_t worker);
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
/* Whether the wanted world is to be formed now; asked before meet_due. The caller then
 * calls meet_reform and tells all agents, who say HELLO again. */
bool meet_reforms(const struct meet *m);
int meet_reform(struct meet *m, uint64_t now_ns, struct err *err);
uint32_t meet_ranks(const struct meet *m); /* of the present world */
uint64_t meet_deadline_ns(const struct meet *m);
/* Whether a failure waits for a world without those who leave. */
bool meet_holds(const struct meet *m);
const struct report *meet_first(const struct meet *m); /* of the job, NULL: none */
uint32_t meet_present(const struct meet *m);
void meet_missing(const struct meet *m, struct strbuf *out); /* "1, 3, 5 and 12 more" */
/* Host names in worker order, made unique (by address, then by number) where pods share
 * one. */
int meet_hosts(const struct meet *m, struct hostlist *ret, struct err *err);

#endif

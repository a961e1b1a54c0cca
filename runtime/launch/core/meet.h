/* SPDX-License-Identifier: Apache-2.0 */
/* The state and decisions of a job's leader: which workers are present, when to start,
 * to form a new world, to stop and to finish. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_MEET_H
#define RUNTIME_LAUNCH_CORE_MEET_H

#include <stdbool.h>

#include "runtime/launch/core/message.h"

enum meet_state { MEET_WAITING, MEET_RUNNING, MEET_STOPPED, MEET_FINISHED };
enum member_state { MEMBER_ABSENT, MEMBER_HERE, MEMBER_DONE, MEMBER_LOST };
/* How long a failure is held back after a worker started to leave. Less than the 30 s
 * that a deleted pod has by default; long enough for a kubelet that receives the new
 * annotation by a watch to rewrite the world file. */
#define MEET_LEAVE_MS 10000

struct meet_member {
    enum member_state state;
    bool has_run;    /* its ranks have run in an earlier world */
    bool was_done;   /* its ranks exited with 0 in the last world that ran */
    bool is_leaving; /* it received a stop signal or was lost */
    char host[HOST_NAME_MAX_BYTES], address[HOST_NAME_MAX_BYTES];
};
struct meet {
    enum meet_state state;
    uint32_t workers, slots, np; /* np 0: all slots */
    /* of horovodrun, where they are known; otherwise NULL */
    const struct hostlist *hosts;
    uint64_t start_deadline_ns, start_timeout_s;
    struct meet_member *members; /* n_members >= workers: includes earlier worlds */
    uint32_t n_members;
    struct launch_verdict verdict;
    /* for a job that can be scaled */
    bool is_scalable;
    uint32_t generation, first_generation;
    struct job_world wanted;              /* the newest world that was announced */
    uint32_t ran_generation, ran_workers; /* the last world that ran; 0 workers: none */
    uint64_t leave_until_ns; /* failures are held back; 0: no worker is leaving */
};

int meet_init(struct meet *m,
              uint32_t workers,
              uint32_t slots,
              uint32_t np,
              uint64_t start_timeout_s,
              uint64_t now_ns,
              struct err *err);
/* For horovodrun: each host is one worker with its own slots, and error messages name
 * the host. Borrows hosts. np must not be 0. */
void meet_know_hosts(struct meet *m, const struct hostlist *hosts, uint32_t np);
/* it is present and its command can start */
void meet_set_ready(struct meet *m, uint32_t worker);
/* Sets the generation of the world and whether it may change. Call directly after
 * meet_init. */
void meet_know_world(struct meet *m, uint32_t generation, bool is_scalable);
void meet_release(struct meet *m);
/* Handles a HELLO. -EINVAL, -EALREADY (the job has started): err is sent to the worker.
 * A worker that is already present is replaced: its pod was replaced. -EAGAIN: it
 * belongs to a newer world, which is wanted from now on; it sends HELLO again in that
 * world. -ESTALE: it belongs to an older one; send it ours if meet_sends_world. */
int meet_hello(struct meet *m,
               const struct hello *h,
               const char *address,
               struct err *err);
/* True if a failure in that world counts. Ranks of an earlier world are stopped
 * anyway. */
bool meet_counts(const struct meet *m, uint32_t generation);
void meet_failed(struct meet *m, const struct report *r, uint64_t now_ns);
/* All ranks of a worker have exited with 0. Also valid for an earlier world: a job in
 * which all ranks have done so does not form a new one. */
void meet_done(struct meet *m, uint32_t worker, uint32_t generation);
/* A worker received a stop signal, so that failures may be caused by it. */
void meet_leaving(struct meet *m, uint32_t worker, uint64_t now_ns);
/* A world was announced. 1: it is newer than all known ones; 0: it is not; -EINVAL with
 * err: it is invalid for this job. */
int meet_take_world(struct meet *m, const struct job_world *w, struct err *err);
/* True if an agent of that world is sent ours. Not an agent of a generation before our
 * first one: it may be left over from an earlier attempt and must wait for its own
 * file. */
bool meet_sends_world(const struct meet *m, uint32_t generation);
/* True if the worker's ranks have not run: it may leave and be replaced. */
bool meet_may_leave(const struct meet *m, uint32_t worker);
/* The connection was lost. Before the start the worker may come back; later it is a
 * failure. */
void meet_lost(struct meet *m,
               uint32_t worker,
               const char *why,
               uint64_t wall_us,
               uint64_t now_ns);

/* The state to enter now, or the current one. The caller sends TABLE, STOP or FINISH to
 * all agents, then calls meet_enter. */
enum meet_state meet_due(struct meet *m, uint64_t wall_us, uint64_t now_ns);
void meet_enter(struct meet *m, enum meet_state s);
/* True if the wanted world must be formed now. Call before meet_due. The caller then
 * calls meet_reform and sends WORLD to all agents, which send HELLO again. */
bool meet_reforms(const struct meet *m);
int meet_reform(struct meet *m, uint64_t now_ns, struct err *err);
uint32_t meet_ranks(const struct meet *m); /* of the current world */
uint64_t meet_deadline_ns(const struct meet *m);
/* True if a failure is held back because of leaving workers. */
bool meet_holds(const struct meet *m);
/* the first failure of the job; NULL: none */
const struct report *meet_first(const struct meet *m);
uint32_t meet_present(const struct meet *m);
void meet_missing(const struct meet *m, struct strbuf *out); /* "1, 3, 5 and 12 more" */
/* Host names in worker order; equal names are replaced by the address, or else by the
 * number. */
int meet_hosts(const struct meet *m, struct hostlist *ret, struct err *err);

#endif

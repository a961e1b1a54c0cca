/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes are in the next world of an elastic job: the decisions of its leader.
 * Pure: events and the time come in, actions go out.
 *
 * A slot is a place for one process on a worker (a pod, or a host). The leader has a
 * process started in each slot that the job may use, and forms worlds of processes that
 * are ready. A process that survives the loss of another one stays: it reports ready, and
 * is in the next world, with its old rank where possible. Ready processes beyond the
 * maximum are spares.
 *
 * Events of a process carry its incarnation, so that what a process reported that has
 * been replaced since is ignored. Calls of one thread. */
#ifndef RUNTIME_LAUNCH_CORE_ELASTIC_H
#define RUNTIME_LAUNCH_CORE_ELASTIC_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define ELASTIC_NO_LIMIT  UINT32_MAX
#define ELASTIC_TERM_BITS 16 /* generation = term << this + number of the world */

struct elastic_config {
    uint32_t n_workers;
    uint32_t slots;       /* of each worker, at most; slot number: worker * slots + i */
    uint32_t start_ranks; /* of the first world, at least */
    uint32_t min_ranks, max_ranks; /* of a later one; 1 <= min <= start <= max */
    uint32_t n_spares;
    uint32_t reset_limit; /* worlds after the first; at most 65534 count */
    uint64_t wait_ns;     /* how long the job waits for a world, at most */
    uint64_t leave_ns; /* a member of a broken world that has not reported is stopped */
    /* A slot, after the second failure by one cause within an hour; doubles. */
    uint64_t exclude_ns;
    uint64_t exclude_max_ns;
};

enum slot_state {
    SLOT_ABSENT,   /* its worker is not here, or does not offer it */
    SLOT_IDLE,     /* no process */
    SLOT_EXCLUDED, /* no process until until_ns */
    SLOT_STARTING, /* its process was started and has not reported yet */
    SLOT_READY,    /* its process waits for a world */
    SLOT_MEMBER,   /* its process is in the current world */
    SLOT_ENDING, /* its process has left its world because it failed, and still exists */
    SLOT_DONE,   /* its process has ended with success */
};
struct elastic_slot {
    enum slot_state state;
    uint32_t incarnation; /* of its present or last process; 0: there was none */
    bool is_stopping;     /* STOP was returned for its process */
    bool is_drained;      /* its worker is here and does not offer it any more */
    /* of its process */
    bool has_committed;  /* in a world: it has the state of the job */
    uint32_t generation; /* its last world; 0: it was in none */
    uint32_t since;      /* its first world; 0: it was in none */
    uint32_t rank;       /* in its last world */
    uint32_t expected;   /* before its first world: the rank in its environment */
    uint64_t until_ns;   /* EXCLUDED: its end; ENDING: it is stopped then */
    uint64_t cause;      /* of the last failure here; 0: there was none */
    uint64_t failed_ns;  /* the last one by a cause of its own */
    uint32_t n_failures; /* in a row by that cause, each within an hour of the last */
    uint32_t n_loops;    /* the same, without a commit in between */
    uint32_t n_excluded; /* times */
};

enum elastic_state {
    ELASTIC_WAITING, /* for enough ready processes, and for members of a broken world */
    ELASTIC_RUNNING, /* the current world works */
    ELASTIC_FINISHING, /* a member has ended with success */
    ELASTIC_ENDED,
};
struct elastic {
    struct elastic_config config;
    enum elastic_state state;
    uint32_t n_slots;
    struct elastic_slot *slots; /* [n_slots] */
    uint32_t generation;        /* of the current or last world; 0: there was none */
    uint32_t term, n_formed;    /* of this leader; its worlds */
    uint32_t *members;          /* [n_members] slots by rank, of that world */
    uint32_t n_members;
    uint32_t n_resets; /* worlds after the first */
    bool is_break_due; /* the current world is broken, and its members do not know */
    bool has_notified;
    bool is_adopting;     /* a new leader: workers report what they have */
    uint64_t wait_ns;     /* WAITING, FINISHING: its end */
    uint64_t join_ns;     /* RUNNING: processes wait for others to join with; 0: not */
    uint64_t leave_ns;    /* WAITING: members that have not reported are stopped */
    uint32_t n_expected;  /* workers that are not here yet */
    uint64_t handover_ns; /* of the state to processes in other slots; 0: none */
    bool has_handover_ended; /* its time was over */
    uint64_t cause;   /* by which the last worlds were broken; 0: none since a commit */
    uint32_t n_loops; /* how many in a row by that cause */
    /* worlds in a row of which no process was left, by total_cause */
    uint32_t n_totals;
    uint64_t formed_ns;                /* when the present or last world formed */
    uint64_t total_cause, world_cause; /* the latter: of the present world; 0: none */
    bool has_counted; /* the present world, or the wait for it, has had its cause */
    bool has_ended_well;
    char why[200];                        /* ENDED, and not well: why */
    struct elastic_candidate *candidates; /* [n_slots] scratch */
};

enum elastic_act {
    ELASTIC_START,  /* a process, in slot */
    ELASTIC_STOP,   /* the process of slot */
    ELASTIC_FORM,   /* the world of e->members, e->generation */
    ELASTIC_BREAK,  /* all members: the world is broken */
    ELASTIC_NOTIFY, /* all members: leave the world at the next commit */
    ELASTIC_END,    /* the job: e->why; all processes are to be stopped */
};
struct elastic_action {
    enum elastic_act act;
    uint32_t slot, incarnation; /* of START and STOP */
    uint32_t change;            /* of NOTIFY: bits of enum member_change */
};

int elastic_init(struct elastic *e,
                 const struct elastic_config *c,
                 uint64_t now_ns,
                 struct err *err);
void elastic_release(struct elastic *e);

/* A worker can start processes in its first n slots (more than config.slots: in all).
 * Processes in its other slots leave at the next commit; n is 0 if it will be gone soon. */
void elastic_offer_slots(struct elastic *e, uint32_t worker, uint32_t n);
/* So many other workers may come and offer slots. */
void elastic_expect_workers(struct elastic *e, uint32_t n);
/* A worker is gone, with its processes. */
void elastic_lose_worker(struct elastic *e, uint32_t worker, uint64_t now_ns);
/* The bounds change; as in elastic_config. -EINVAL. */
int elastic_resize(struct elastic *e,
                   uint32_t min_ranks,
                   uint32_t max_ranks,
                   struct err *err);
/* The next worlds have this number of ranks at most, and at least as many as the job needs
 * for a world. */
void elastic_set_max(struct elastic *e, uint32_t max_ranks);

/* A process waits for a world later than generation, the last one that it was in (0:
 * none): it has started, its world is broken, or it has left it at a commit. */
void elastic_take_ready(struct elastic *e,
                        uint32_t slot,
                        uint32_t incarnation,
                        uint32_t generation,
                        uint64_t now_ns);
/* A process leaves that world because it has failed: the next one does not wait for its
 * end, of which elastic_take_failure is called. */
void elastic_take_ending(struct elastic *e,
                         uint32_t slot,
                         uint32_t incarnation,
                         uint32_t generation,
                         uint64_t now_ns);
/* A process has ended. cause: a hash of what the failure was; 0: another process failed
 * first, or it was stopped. */
void elastic_take_failure(struct elastic *e,
                          uint32_t slot,
                          uint32_t incarnation,
                          uint64_t cause,
                          uint64_t now_ns);
void elastic_take_done(struct elastic *e,
                       uint32_t slot,
                       uint32_t incarnation,
                       uint64_t now_ns);
/* The members of that world have saved their state. */
void elastic_take_commit(struct elastic *e, uint32_t generation);

/* A new leader takes over a job that may run: call it after elastic_init, then
 * elastic_adopt for each process that a worker reports, and elastic_offer_slots. What has
 * not been reported until until_ns is lost. term: later than that of every leader before,
 * below 65536; or 0, and it follows from what the workers report. The
 * first leader, for which this is not called, has 0. */
void elastic_take_over(struct elastic *e, uint32_t term, uint64_t until_ns);
/* A worker reports how many leaders it has had before this one, and the generation of the
 * last world that it has seen (0: none): the term is later than theirs. */
void elastic_know_leaders(struct elastic *e, uint32_t n_leaders, uint32_t generation);
/* What has not been reported by then is lost: now, if all workers have reported. */
void elastic_end_take_over(struct elastic *e, uint64_t by_ns);
/* All workers are lost, but they may come back with their processes: this leader takes the
 * job over again, until its wait for a world ends. */
void elastic_take_over_again(struct elastic *e);
struct elastic_process { /* as its worker knows it */
    uint32_t incarnation;
    /* In a world, or for one; neither: it starts, or, after a world, it has failed and
     * still exists. */
    bool is_member, is_waiting;
    bool is_done;                       /* it has ended with success */
    uint32_t generation, rank, n_ranks; /* of its last world */
    uint32_t since;
};
void elastic_adopt(struct elastic *e, uint32_t slot, const struct elastic_process *p);

/* The next action; false: there is none until an event, or elastic_next_ns. */
bool elastic_next(struct elastic *e, uint64_t now_ns, struct elastic_action *ret);
uint64_t elastic_next_ns(const struct elastic *e); /* UINT64_MAX: never */
/* Ready processes that the next world needs. */
uint32_t elastic_need(const struct elastic *e);
/* Members of the current world that were in no world before. */
uint32_t elastic_count_new(const struct elastic *e);
/* What the job waits for, as a sentence. */
void elastic_explain(const struct elastic *e, struct strbuf *out);

#endif

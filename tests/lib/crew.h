/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated elastic jobs: a leader (elastic.c), workers and their processes, with messages
 * that take time, and faults: processes that fail or hang, lost and drained workers, all
 * those of a world too, numbers of slots and of ranks that change, a leader that is lost or cut off,
 * several at once and while a world forms.
 *
 * Time is in ticks of 100 ms. All messages between the leader and a worker keep their
 * order, as on a connection; a new connection has a new epoch.
 *
 *   crew_job.c     a job: its bounds, its faults, its end
 *   crew_lead.c    the leader, its messages, and what must be true of its worlds
 *   crew_proc.c    processes and messages */
#ifndef TESTS_LIB_CREW_H
#define TESTS_LIB_CREW_H

#include <stdio.h>

#include "runtime/launch/core/elastic.h"

#define TICK_NS   100000000ull
#define SECONDS   10u /* ticks */
#define W_MAX     8
#define S_MAX     4
#define SLOTS_MAX (W_MAX * S_MAX)
#define MSG_MAX   512
#define WORLD_MAX 512
#define FAULTS_S  200u
#define END_S     2400u
#define PEER_S    30u
#define COMMITS   20

enum bug {
    BUG_NONE,
    BUG_NO_PATIENCE, /* members of a broken world are stopped at once */
    BUG_NOT_ALL,  /* a world forms before all members of the last one have reported */
    BUG_NO_BREAK, /* a world whose member is gone is not broken by the leader */
    BUG_SAME_GENERATION,  /* a new leader gives a generation again */
    BUG_NEW_FIRST,        /* rank 0 is the youngest process */
    BUG_LOST_UNSEEN,      /* a lost worker is not reported */
    BUG_FEW,              /* a world smaller than the minimum is formed */
    BUG_ALL_SLOTS,        /* slots that a worker does not offer are used */
    BUG_READY_AT_THE_END, /* a process that has failed is in the next world */
    BUG_NO_NOTIFY,        /* members in slots that are drained are not notified */
    BUG_NO_HANDOVER,      /* the last process with the state is stopped too early */
    BUG_NO_RETURN,        /* a leader that was cut off adopts nothing */
    BUG_LAST,
};

enum proc_state {
    P_NONE,
    P_STARTING,
    P_WAITING,
    P_JOINING,
    P_RUNNING,
    P_HUNG,
    P_ENDING
};
struct proc {
    enum proc_state state;
    uint32_t incarnation, generation, rank, n_ranks, since, at;
    uint32_t n_commits; /* that its state has */
    int world;          /* index of its world; -1 */
    bool is_notified, has_committed;
    uint32_t hung_at;
    uint64_t cause; /* ENDING */
};
enum msg_kind { M_READY, M_FAILED, M_ENDING, M_DONE, M_COMMIT, M_LOST, M_ACT, M_FORM };
struct msg {
    enum msg_kind kind;
    uint32_t due, worker, epoch, slot, incarnation, generation, rank, since;
    uint64_t cause;
    enum elastic_act act;
    int world;
};
struct sim_world {
    uint32_t generation, n, n_commits;
    uint32_t slot[SLOTS_MAX], incarnation[SLOTS_MAX], since[SLOTS_MAX];
};
struct crew {
    uint64_t seed, random;
    enum bug bug;
    uint32_t now, n_workers, slots, n_commits, leader_back;
    struct elastic_config config;
    struct elastic leader;
    bool has_leader, is_finished;
    bool is_first_world; /* the next one is the leader's first */
    bool is_up[W_MAX], is_connected[W_MAX];
    /* the generation of the last world that a worker has seen, and its leaders */
    uint32_t known[W_MAX], n_leaders[W_MAX];
    uint32_t n_offered[W_MAX]; /* slots; 0: the worker is drained */
    uint32_t epoch[W_MAX], back[W_MAX], last_due[2][W_MAX];
    struct proc procs[SLOTS_MAX];
    struct msg msgs[MSG_MAX];
    size_t n_msgs;
    struct sim_world worlds[WORLD_MAX];
    int n_worlds;
    uint32_t n_faults, n_takeovers;
    uint32_t n_totals; /* worlds of which no process was left */
    char fault[600];   /* an invariant that does not hold */
};

#define CREW_EXPECT(c, holds, ...)                                                     \
    do {                                                                               \
        if (!(holds) && !(c)->fault[0])                                                \
            (void)snprintf((c)->fault, sizeof((c)->fault), __VA_ARGS__);               \
    } while (0)

/* crew_proc.c */
uint32_t crew_random(struct crew *c, uint32_t n); /* below n */
uint64_t crew_ns(const struct crew *c);
uint32_t crew_worker(const struct crew *c, uint32_t slot);
bool crew_offers(const struct crew *c, uint32_t slot);
void crew_send(struct crew *c, struct msg m);
bool proc_is_in(const struct proc *p, int world);
void proc_wait(struct crew *c, uint32_t slot); /* it leaves its world, or has started */
void proc_end(struct crew *c, uint32_t slot, enum msg_kind kind, uint64_t cause);
/* It has failed, which it reports at once where it can, or when it ends. */
void proc_fail(struct crew *c, uint32_t slot, uint64_t cause);
void proc_step(struct crew *c, uint32_t slot); /* in a tick */
/* crew_lead.c */
void crew_lead(struct crew *c);
void crew_connect(struct crew *c, uint32_t worker);
void crew_cut_off(struct crew *c); /* the leader, from all workers */
void crew_offer(struct crew *c, uint32_t worker, uint32_t n); /* slots from now on */
void crew_deliver(struct crew *c); /* the messages that are due */
/* crew_job.c */
void crew_begin(struct crew *c, uint64_t seed, enum bug bug);
void crew_run(struct crew *c); /* sets fault if something is wrong */

#endif

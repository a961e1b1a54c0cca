/* SPDX-License-Identifier: Apache-2.0 */
/* A whole world in one process and one thread: N members, rank 0's table, and links
 * between them, driven event by event in an order that a seed decides.
 *
 * A link keeps the order of messages, as TCP does. Messages of different ranks arrive
 * in any order. An agreement is the AND of all ranks' words. It is complete when all
 * ranks have begun it, and each rank sees this at a time of its own. A rank leaves a
 * batch when all members of its process set, or pair, have entered it. Until then the
 * rank only sends and receives, or begins other transfers if it is in one. A cycle of waits between process sets, or a lost
 * message, is a hang: nothing can happen while operations are open. The dump lists what
 * each rank waits for.
 *
 * Checked at every event: the batches of a process set are the same on all its members;
 * each operation runs once, after all members have submitted it; groups are whole; the
 * counts are those that were submitted for that operation; an act does not change while
 * the rank receives messages. At the end: every operation has the result in the script.
 *
 * What ranks do is a script of steps (sim_load.h). Memory of the simulation itself
 * is libc's, so that mem_fail_after() hits only what is tested. */
#ifndef TESTS_LIB_SIM_H
#define TESTS_LIB_SIM_H

#include "runtime/base/mem.h"
#include "runtime/core/member.h"
#include "runtime/core/negotiate.h"
#include "tests/unit/seeded.h"
#include "tests/unit/unit.h"

enum {
    SIM_RANKS = 9,
    SIM_SETS = 12,
    SIM_PAIRS = SIM_RANKS * (SIM_RANKS - 1) / 2,
    SIM_ALL_SETS = SIM_SETS + SIM_PAIRS,
    SIM_STEP_OPS = 96,
    SIM_STEPS = 160,
    SIM_INSTS = SIM_STEPS * SIM_STEP_OPS,
    SIM_PICKS = 1024,
    SIM_PATIENCE = 400000, /* events without anything submitted or ended */
    SIM_NOBODY = 99,
    SIM_PHASES = 8,
    SIM_TUNINGS = 24,
    SIM_WORDS = 4,      /* of an agreement */
    SIM_TRANSFERS = 128 /* of a rank, that have begun */
};

/* --- the script --- */

enum sim_odd {
    ODD_NONE,
    ODD_SHAPE,
    ODD_NDIM,
    ODD_DTYPE,
    ODD_OP,
    ODD_SCALE,
    ODD_ROOT,
    ODD_COLL,
    ODD_NO_GROUP,
    ODD_CODEC,
    ODD_COUNT
};
enum sim_end { END_RUN, END_FAIL, END_ANY };

struct sim_spec { /* an operation as all ranks of its set submit it */
    enum collective coll;
    enum dtype dtype;
    enum reduce_op op;
    uint32_t set;        /* handle: index of sim.sets; 0 is the world */
    uint32_t makes;      /* SET_ADD, SET_REMOVE: the handle */
    uint32_t root_place; /* of the set */
    uint32_t group, group_n;
    uint32_t rows, cols, uneven; /* uneven > 0: rows differ by rank */
    uint32_t odd_rank;           /* SIM_NOBODY, or the rank that differs */
    enum sim_odd odd;
    enum sim_end end;
    bool by_members; /* SET_ADD: those of the new set submit it, not the world */
    uint32_t inst;   /* all that is one operation; JOINs of several steps share it */
    char name[48];
};

struct sim_step {
    struct sim_spec v[SIM_STEP_OPS];
    uint32_t n;
    uint32_t active; /* bit per rank that does this step */
    bool hurries;    /* begins whatever is open */
    bool waits;      /* begins when all that the rank has submitted before has ended */
};

struct sim_inst { /* one operation across ranks */
    const struct sim_spec *spec;
    uint32_t step;
    uint32_t wanted, submitted, run, failed; /* bit per rank */
    uint64_t rows[SIM_RANKS];
    uint64_t last_joined;
    char text[MESSAGE_TEXT_MAX];
};

struct sim_phase { /* steps [from, to) are to need no message */
    uint32_t from, to;
    uint64_t base;
    bool has_base, is_checked, is_skipped;
};

struct sim_set {
    uint32_t mask, id;
    bool is_doomed;       /* removed some time */
    bool has_id, is_twin; /* twin: its ranks may be those of another set */
    uint32_t in;          /* bit per rank that knows it; a pair: that has met */
};

/* --- the world --- */

struct sim_op {
    struct member_op part; /* first */
    struct sim_op *next;   /* open ones of the rank */
    struct tensor_request req;
    uint8_t set[SIM_RANKS * 4];
    uint32_t inst, step;
};

struct sim_msg {
    struct sim_msg *next;
    size_t n;
    uint8_t bytes[];
};
struct sim_link {
    struct sim_msg *head, *tail;
    uint32_t n_sent, cut_after; /* what is sent after so many is lost */
};

struct sim_batch {
    uint64_t hash;
    uint32_t members, entered;
    uint32_t first_inst;
};
struct sim_batches {
    struct sim_batch *v;
    size_t n, cap;
};

struct sim_agreement {
    uint64_t words[SIM_WORDS];
    uint32_t n_words, begun;
    size_t n_batches; /* of the world, before it */
};

struct sim_tuning {
    uint64_t fusion_bytes;
    size_t n_batches; /* of the world, before it */
};

struct sim_transfer { /* a batch of them */
    uint32_t set;
    size_t batch;
    uint32_t n;
    struct sim_op *ops[SIM_STEP_OPS];
};

struct sim_rank {
    struct member *m;
    struct sim_link up, down;
    uint32_t step, at, pause;
    bool has_begun, is_joined, is_dead;
    uint8_t order[SIM_STEP_OPS];
    uint16_t open_of[SIM_STEPS];
    uint32_t n_open;
    struct sim_op *ops;
    size_t n_batches[SIM_ALL_SETS];
    uint64_t n_agreed; /* agreements that it has begun */
    uint32_t n_tuned;
    uint64_t fusion_bytes; /* since the last of them */
    bool is_running;
    struct member_act act; /* while is_running */
    uint32_t run_set;
    uint64_t run_hash;
    struct sim_transfer transfers[SIM_TRANSFERS]; /* begun, in order */
    uint32_t n_transfers;
    bool is_holding;        /* held waits for the transfers */
    struct member_act held; /* while is_holding */
    uint64_t held_hash;
    uint64_t n_events;
};

struct sim {
    uint64_t seed;
    struct seeded rng;
    bool is_traced;
    /* the script */
    struct negotiate_config cfg;
    struct sim_step *steps; /* [SIM_STEPS] */
    uint32_t n_steps,
        depth; /* a step begins when the depth + 1st before it has ended */
    struct sim_set sets[SIM_ALL_SETS]; /* from SIM_SETS on: pairs that are used */
    uint32_t n_sets, n_pairs;
    struct sim_inst *insts; /* [SIM_INSTS] */
    uint32_t n_insts;
    struct sim_phase phases[SIM_PHASES];
    uint32_t n_phases;
    bool is_last;     /* no other event is possible */
    bool is_lazy;     /* ranks receive and run late, rank 0 does not */
    uint32_t tune_in; /* one of so many answers is new settings; 0: none */
    struct sim_tuning tunings[SIM_TUNINGS];
    uint32_t n_tunings,
        n_reported;    /* that a rank has come to; that rank 0 was asked for */
    uint32_t leave_in; /* one of so many events is a wish to leave the plan; 0: none */
    uint32_t kill_rank;
    uint64_t kill_at; /* the rank stops after so many events */
    /* the state */
    struct negotiate *n;
    struct sim_rank ranks[SIM_RANKS];
    struct sim_batches batches[SIM_ALL_SETS];
    struct sim_agreement *agreements;
    size_t n_agreements, agreements_cap;
    uint32_t last_join;
    uint64_t now, n_since; /* events; since something was submitted or ended */
    uint32_t n_quiet_steps;
    uint16_t picks[SIM_PICKS];
    struct strbuf out;
    int rc; /* the first error of what is tested */
    struct err err;
    char why[2000]; /* the first thing that is wrong */
};

/* --- reports --- */

/* The first thing that is wrong ends the run. */
__attribute__((format(printf, 2, 3))) void
sim_wrong(struct sim *s, const char *fmt, ...);

#define sim_trace(s, ...)                                                              \
    do {                                                                               \
        if ((s)->is_traced)                                                            \
            (void)fprintf(stderr, __VA_ARGS__);                                        \
    } while (0)

bool sim_is_over(const struct sim *s);
/* What is tested returned r. */
void sim_error(struct sim *s, int r);
/* What each rank waits for. */
void sim_dump(struct sim *s);

/* --- links, masks, submitting --- */

void sim_link_push(struct sim_link *l, const void *p, size_t n);
/* The caller frees it; NULL: there is none. */
struct sim_msg *sim_link_pop(struct sim_link *l);
/* A bit per rank that submits it. */
uint32_t sim_spec_mask(const struct sim *s, const struct sim_spec *p);
/* The rank of its i-th bit. */
uint32_t sim_mask_nth(uint32_t mask, uint32_t i);
uint32_t sim_mask_size(uint32_t mask);
void sim_submit(struct sim *s, uint32_t rank, const struct sim_spec *p);

#endif

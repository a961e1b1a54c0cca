/* SPDX-License-Identifier: Apache-2.0 */
/* Carries out agreed batches: makes a batch of the backend from operations, waits for it
 * or posts it as a flight, and ends the operations. In the seat only. */
#ifndef RUNTIME_ENGINE_CARRY_H
#define RUNTIME_ENGINE_CARRY_H

#include "runtime/core/compress/codec.h"
#include "runtime/core/replay.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/flight.h"

struct carry {
    struct engine *e;
    struct flights *flights;
    const struct backend_env *env; /* the world's */
    uint64_t *rows, *ones;         /* [size]: scratch of an alltoall, and ones */
    struct batch_item *items;      /* of the current batch */
    size_t items_cap;
    struct codec_state *codec_state; /* made with the first compressed tensor */
    uint64_t n_evicted;              /* of it, as last logged */
    uint8_t *codec_scratch;
    uint64_t codec_scratch_bytes;
    struct replay replay; /* HVD_REPLAY; replay.c */
    bool is_replay_logged;
    const char *logged_reasons[8]; /* reasons against compression that were logged */
};

/* All that it points to outlives it. 0, -ENOMEM. */
int carry_init(struct carry *c,
               struct engine *e,
               struct flights *f,
               const struct backend_env *env);
void carry_release(struct carry *c); /* accepts a zeroed one */

/* Carries out a MEMBER_RUN. An error is the backend's or the protocol's and must break
 * the world; *ret_is_ours: it is a failure of this rank alone. */
int carry_run(struct carry *c,
              const struct member_act *act,
              bool *ret_is_ours,
              struct err *err);
/* Carries out a MEMBER_PAIR; errors as carry_run's that are not ours. */
int carry_pair(struct carry *c, uint32_t pair, struct err *err);
/* Carries out a MEMBER_SET; as carry_pair. */
int carry_set(struct carry *c, const struct member_act *act, struct err *err);
/* Room for n items of the current batch. 0, -ENOMEM. */
int carry_make_items(struct carry *c, size_t n);
/* post and poll to the end */
int carry_post(struct carry *c,
               struct backend *b,
               const struct batch *batch,
               struct err *err);
/* carry_codec.c: a batch of allreduces that name a codec. items[act->n_items] are
 * filled as for an ordinary one. */
int carry_compressed(struct carry *c,
                     const struct process_set *set,
                     const struct member_act *act,
                     const struct batch *batch,
                     bool *ret_is_ours,
                     struct err *err);
/* How each tensor of such a batch is sent: ret[act->n_items]. Counts it, and logs
 * tensors that are sent uncompressed. */
int carry_codec_plans(struct carry *c,
                      const struct member_act *act,
                      uint32_t n_members,
                      struct codec_plan *ret,
                      struct err *err);
/* carry_device.c: posts a batch of tensors on GPUs whose results have memory; the batch
 * is a flight then. is_dry: the results are the own inputs. Errors as of carry_run. */
int carry_device(struct carry *c,
                 struct process_set *set,
                 const struct member_act *act,
                 bool is_dry,
                 bool *ret_is_ours,
                 struct err *err);
/* A set was added, at this position in the order of all ranks: if the world has a GPU
 * communicator, all ranks split the set's off it. */
int carry_device_set(struct carry *c, uint32_t id, struct err *err);
/* The set's GPU communicator, opened if necessary, for act. */
int carry_open_comm(struct carry *c,
                    struct process_set *set,
                    const struct member_act *act,
                    struct err *err);
/* carry_register.c: registers or deregisters a buffer and ends its operation. An error
 * ends the world. */
int carry_register(struct carry *c,
                   struct process_set *set,
                   const struct member_act *act,
                   struct err *err);
/* Exchanges a record of n bytes among the members of a set: ret has set->n of them, in
 * members' order. All call it at the same position in the common order. */
int carry_gather_records(struct carry *c,
                         const struct process_set *set,
                         const void *mine,
                         size_t n,
                         void *ret,
                         struct err *err);
/* The same of verdicts, whose texts end. */
struct verdict {
    uint8_t how;
    char why[255];
};
int carry_verdicts(struct carry *c,
                   const struct process_set *set,
                   const struct verdict *mine,
                   struct verdict *ret,
                   struct err *err);
/* Deregisters all buffers of a set, when none of its batches is in flight. */
void carry_forget_set(struct carry *c, const struct process_set *set);

#endif

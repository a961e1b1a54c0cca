/* SPDX-License-Identifier: Apache-2.0 */
/* What srun passes to the nodes of one step: the ports of its rendezvous and of its
 * gate, that for the ends of tasks, the generation, and the job token. The text is
 * inside a munge credential that only the step's user can open.
 * Pure. */
#ifndef SPANK_PLUGIN_TICKET_H
#define SPANK_PLUGIN_TICKET_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/token.h"

/* Slurm always passes SLURM_* variables to tasks, even with --export=NONE; task_init
 * removes it. */
#define TICKET_ENV       "SLURM_HVD_STEP"
#define TICKET_MAX_BYTES 160
/* Changes whenever srun and a node of another version could not start a step together:
 * the ticket, the guard and the gate. */
#define TICKET_VERSION   "hvd-step/4"
/* In addition, when tasks are placed by SLURM_HOSTFILE: the node of rank 0, not
 * secret. */
#define FIRST_HOST_ENV   "SLURM_HVD_FIRST_HOST"

/* The settings of the step as one value of --hvd; removed by task_init too. Not
 * secret, and not trusted: each task checks it against the rules of its node. Slurm
 * itself forwards only the last --hvd. */
#define KEYS_ENV         "SLURM_HVD_KEYS"

/* From user_init to task_init: what a container of the tasks must show at the same path,
 * DIR:RUN_DIR of plugstack.conf. For enroot/50-ringmaster.sh. */
#define MOUNTS_ENV       "SLURM_HVD_MOUNTS"

struct ticket {
    struct token token;
    uint16_t port, gate_port;
    uint16_t ends_port;  /* 0: srun awaits no ends */
    uint32_t generation; /* of the job: how often Slurm has requeued it */
};
void ticket_render(const struct ticket *t, char ret[TICKET_MAX_BYTES]);
/* n bytes, not necessarily terminated. -EINVAL: not a ticket of this version. */
int ticket_parse(const char *text, size_t n, struct ticket *ret, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The node's part of a step, in slurmstepd: the directory with its token and
 * hostfile. */
#ifndef SPANK_PLUGIN_NODE_H
#define SPANK_PLUGIN_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/contract/contract.h"
#include "spank_plugin/site.h"
#include "spank_plugin/slurm_io.h"
#include "spank_plugin/ticket.h"

/* What the tasks of this node say about themselves before their programs start: memory
 * that slurmstepd and its copies share, and that exec removes from the task. */
struct node_tasks {
    char srun[CONTRACT_PATH_MAX]; /* address */
    char job_id[JOB_ID_MAX], host[HOST_NAME_MAX_BYTES];
    bool has_started; /* the gate is open */
    uint32_t n;
    uint32_t rank_1[]; /* [n], by Slurm's number of the task on the node: rank + 1 */
};

/* Start with NODE_SIDE_INIT. */
struct node_side {
    char name[64];          /* JOB.STEP.NODE.PID in the base directory */
    uid_t uid;              /* of the step's user */
    int base_fd;            /* -1: there is no directory of ours */
    int token_fd, hosts_fd; /* open for writing until the files are filled */
    char token_file[CONTRACT_PATH_MAX], hostfile[CONTRACT_PATH_MAX];
    struct ticket ticket; /* of tasks too, which are forked copies of slurmstepd */
    bool has_ticket;
    struct node_tasks *tasks; /* NULL: none */
    bool has_reported;        /* the end of a task, and no other one counts */
};
#define NODE_SIDE_INIT                                                                 \
    {                                                                                  \
        .base_fd = -1, .token_fd = -1, .hosts_fd = -1                                  \
    }
/* init_post_opt, as root: creates BASE (0755), BASE/JOB.STEP.NODE.PID and in it the empty
 * files `token` and `hosts`, all of them root's and readable by the user of the step
 * alone, after removing those that a crashed step left. -EPERM when users other than
 * root may write to BASE. */
int node_side_make_dir(struct node_side *n,
                       const char *base,
                       const struct plugin_step *step,
                       struct err *err);
/* user_init, as the user, for whom alone munge decrypts: opens the ticket. */
int node_side_open_ticket(struct node_side *n,
                          struct spank_handle *sp,
                          struct err *err);
/* user_init: writes token and hostfile, together less than 1 MiB. */
int node_side_fill(struct node_side *n, struct spank_handle *sp, struct err *err);
/* user_init: sets MOUNTS_ENV, in case a plugin after this callback starts a container. */
int node_side_offer_mounts(struct spank_handle *sp,
                           const struct plugin_config *cfg,
                           struct err *err);
/* task_init: -ENOENT with the reason if a container of the task does not show the token. */
int node_side_check_visible(const struct node_side *n, struct err *err);
/* task_init, before the gate: notes the place of the task. */
void node_side_note_task(const struct node_side *n,
                         struct spank_handle *sp,
                         const struct contract *c);
/* task_init, after the gate: programs start. And whether they did, for slurmstepd. */
void node_side_note_start(const struct node_side *n);
bool node_side_has_started(const struct node_side *n);
#define END_REPORT_MS 5000u
/* task_exit: reports a task that has failed to srun, which keeps the first. Twice at most
 * for a node, and END_REPORT_MS each. */
void node_side_report_end(struct node_side *n, struct spank_handle *sp);
/* exit, as root: removes the two files and the directory, by three system calls, and
 * the folder with the ranks' pages (pages.h). Accepts any state. */
void node_side_release(struct node_side *n);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* srun's part of a step: its gate, its rendezvous, and the ticket by which the tasks
 * find them. */
#ifndef SPANK_PLUGIN_SRUN_H
#define SPANK_PLUGIN_SRUN_H

#include <stdbool.h>

#include "spank_plugin/options.h"
#include "spank_plugin/comment_text.h"
#include "spank_plugin/ticket.h"

struct comment;
struct gate;
struct rdv_server;
struct spank_handle;

/* Start with SRUN_SIDE_INIT. */
struct srun_side {
    struct ticket ticket;
    int listen_fd, gate_fd, ends_fd; /* -1: none, or owned by what serves there */
    struct rdv_server *server;
    struct gate *gate;
    struct comment *comment; /* NULL: none */
    enum comment_mode mode;
    bool is_verbose;
};
#define SRUN_SIDE_INIT                                                                 \
    {                                                                                  \
        .listen_fd = -1, .gate_fd = -1, .ends_fd = -1                                  \
    }
/* init_post_opt: refuses a command that was meant as the value of --hvd. */
int srun_side_check_command(struct err *err);
/* init_post_opt: binds its ports and puts the sealed ticket and the settings into srun's
 * environment. */
int srun_side_prepare(struct srun_side *s,
                      const struct step_options *o,
                      struct err *err);
/* A step without --hvd: removes what an outer srun has put there. */
void srun_side_clear(void);
/* sbatch, salloc: whether srun could seal a ticket here. */
int srun_side_check_munge(struct err *err);
/* local_user_init: guards the command and serves; the step's size is known now. dir: of
 * the runtime, on this host, if it is installed here.
 * Repeated calls guard only. */
int srun_side_serve(struct srun_side *s,
                    struct spank_handle *sp,
                    const char *dir,
                    struct err *err);
/* exit. Accepts any state; bounded. */
void srun_side_release(struct srun_side *s);

#endif

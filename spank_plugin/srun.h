/* SPDX-License-Identifier: Apache-2.0 */
/* srun's part of a step: its rendezvous, and the ticket by which the tasks find it. */
#ifndef SPANK_PLUGIN_SRUN_H
#define SPANK_PLUGIN_SRUN_H

#include <stdbool.h>

#include "spank_plugin/ticket.h"

struct rdv_server;
struct spank_handle;

/* Start with listen_fd -1 and the rest zero. */
struct srun_side {
    struct ticket ticket;
    int listen_fd; /* -1: none, or owned by the server */
    struct rdv_server *server;
    bool is_verbose;
};
/* init_post_opt: binds a port and puts the sealed ticket into srun's environment. */
int srun_side_prepare(struct srun_side *s, struct err *err);
/* local_user_init: serves; the step's size is known now. Repeated calls do nothing. */
int srun_side_serve(struct srun_side *s, struct spank_handle *sp, struct err *err);
/* exit. Accepts any state; bounded. */
void srun_side_release(struct srun_side *s);

#endif

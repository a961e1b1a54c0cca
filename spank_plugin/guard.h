/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of a command: srun replaces the name of the step's program by a text that
 * cannot be executed, and the plugin on the node puts the name back. A node without the
 * plugin, or with another version, cannot start the program, and Slurm's error there is
 * this text. Pure. */
#ifndef SPANK_PLUGIN_GUARD_H
#define SPANK_PLUGIN_GUARD_H

#include "spank_plugin/ticket.h"

/* An absolute path in /, where only root can create files. */
#define GUARD_MARK "/hvd: spank_hvd.so "
#define GUARD_TEXT                                                                     \
    GUARD_MARK                                                                         \
    "(" TICKET_VERSION ") did not run on this node: it is missing in the node's "      \
    "plugstack.conf or has another version; not started: "

/* The guarded name in new memory (mem_free), or NULL. */
char *guard_put(const char *program);
/* Restores the name in place; a name without guard stays as it is. -EINVAL: the guard
 * of another version. */
int guard_take(char *program, struct err *err);

#endif

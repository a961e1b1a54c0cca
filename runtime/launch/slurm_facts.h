/* SPDX-License-Identifier: Apache-2.0 */
/* What this host has of what srun --hvd needs. */
#ifndef RUNTIME_LAUNCH_SLURM_FACTS_H
#define RUNTIME_LAUNCH_SLURM_FACTS_H

#include "runtime/launch/core/node_facts.h"
#include "runtime/launch/step_srun.h"

#define FACTS_CREDENTIAL "HVD_CREDENTIAL" /* in the commands' environment */

struct facts_question {
    const char *plugstack;  /* PlugStackConfig of Slurm */
    const char *plugin_dir; /* PluginDir of Slurm: folders, by colons */
    const char *auth_info;  /* AuthInfo of Slurm, may name munged's socket; "": none */
    bool has_credential; /* of another host, for munged to open: in FACTS_CREDENTIAL */
};
void slurm_facts_read(struct slurm_commands *s,
                      const struct facts_question *q,
                      struct node_facts *ret);
/* "--socket=PATH " for munge and unmunge, or "". */
void slurm_munge_socket(const char *auth_info, char *ret, size_t size_bytes);

#endif

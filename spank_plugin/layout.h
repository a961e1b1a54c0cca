/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's environment of one task -> the launch contract. Pure. */
#ifndef SPANK_PLUGIN_LAYOUT_H
#define SPANK_PLUGIN_LAYOUT_H

#include "runtime/base/strbuf.h"
#include "runtime/contract/contract.h"
#include "runtime/contract/tf_world.h"

struct layout_paths { /* values that the environment does not contain */
    const char *token_file, *hostfile;
    const char *iface; /* "": none */
    uint16_t rdv_port, master_port;
    uint32_t generation;
};
/* get/arg: the task's environment in task_init. -EINVAL with an error message when a
 * variable is missing or two contradict each other. */
int layout_contract(getenv_fn get,
                    void *arg,
                    const struct layout_paths *paths,
                    struct contract *ret,
                    struct err *err);

/* Appends TF_CONFIG of this task; ports: of port_derive. */
int layout_tf_config(getenv_fn get,
                     void *arg,
                     const struct tf_roles *roles,
                     uint16_t ports,
                     struct strbuf *out,
                     struct err *err);

/* The hostfile of the whole step from SLURM_STEP_NODELIST and
 * SLURM_STEP_TASKS_PER_NODE. */
int layout_hostfile(getenv_fn get, void *arg, struct strbuf *out, struct err *err);

/* "slurm.<job>.<step>", the same in srun and in all tasks, also of heterogeneous
 * steps. */
int layout_job_id(
    getenv_fn get, void *arg, char *ret, size_t size_bytes, struct err *err);

#endif

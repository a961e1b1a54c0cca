/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true before a program starts, judged from values that first_task.c and
 * task.c have read. Each refusal is the sentence that srun prints. Pure. */
#ifndef SPANK_PLUGIN_PREFLIGHT_H
#define SPANK_PLUGIN_PREFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

/* The runtime in dir has the version of this plugin. text: of its _version.py. -EINVAL. */
int preflight_check_version(const char *dir,
                            const char *text,
                            const char *own,
                            struct err *err);

/* The tasks of a node have the GPUs that Slurm binds them to. bind: SLURMD_TRES_BIND,
 * which --gpu-bind, --gpus-per-task and --ntasks-per-gpu set; on_node:
 * SLURM_GPUS_ON_NODE. Where one of them is NULL nothing is asked. -EINVAL. */
int preflight_check_gpus(const char *bind,
                         const char *on_node,
                         uint32_t n_tasks,
                         struct err *err);

/* The program of a Python command line. */
struct python_program {
    const char *text; /* after -c */
    const char *path; /* of a script */
};
/* False: argv is no Python, or what it runs is not seen. argv needs no NULL at its end. */
bool python_program_find(char *const *argv, int argc, struct python_program *ret);
/* A statement of the text that always runs imports a package of ours. */
bool python_program_imports_us(const char *text);

#endif

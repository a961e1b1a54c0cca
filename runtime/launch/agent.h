/* SPDX-License-Identifier: Apache-2.0 */
/* The run and install commands of hvd-agent. Both return the exit code. */
#ifndef RUNTIME_LAUNCH_AGENT_H
#define RUNTIME_LAUNCH_AGENT_H

#include "runtime/base/err.h"

/* Runs this worker's ranks of argv (NULL-terminated). All settings come from the
 * environment (contract/agent_env.h). */
int agent_run(char *const *argv, char *const *env);

/* Copies this program's own tree to dest and prints one line. Returns 0, or 1 with an
 * error message on stderr. */
int agent_install(const char *dest);
/* Copies every regular file, folder and link below from. */
struct install_result {
    unsigned long long files, bytes;
};
int install_tree(const char *from,
                 const char *dest,
                 struct install_result *ret,
                 struct err *err);

#endif

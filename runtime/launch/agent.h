/* SPDX-License-Identifier: Apache-2.0 */
/* The two commands of hvd-agent; both return the program's exit code. */
#ifndef RUNTIME_LAUNCH_AGENT_H
#define RUNTIME_LAUNCH_AGENT_H

#include "runtime/base/err.h"

/* Runs this worker's ranks of argv (NULL-terminated); what else is needed comes from
 * the environment (contract/agent_env.h). */
int agent_run(char *const *argv, char *const *env);

/* Copies this program's own tree to dest; prints one line. 0 or 1 with a sentence on
 * stderr. */
int agent_install(const char *dest);
/* The copying alone: every regular file, folder and link below from. */
struct install_result {
    unsigned long long files, bytes;
};
int install_tree(const char *from,
                 const char *dest,
                 struct install_result *ret,
                 struct err *err);

#endif

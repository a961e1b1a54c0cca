/* SPDX-License-Identifier: Apache-2.0 */
/* TF_CONFIG, which TensorFlow's strategies read the cluster from. Writers: the operator,
 * horovodrun and its agents, the Slurm plugin. Pure. */
#ifndef RUNTIME_CONTRACT_TF_CONFIG_H
#define RUNTIME_CONTRACT_TF_CONFIG_H

#include <stdint.h>

#include "runtime/base/strbuf.h"

/* What Linux allows for one variable, with its name and the NUL. */
#define TF_CONFIG_MAX_BYTES (131072 - sizeof("TF_CONFIG="))

enum tf_role { TF_CHIEF, TF_WORKER, TF_PS, TF_EVALUATOR };
#define TF_ROLE_COUNT 4
const char *tf_role_name(enum tf_role role); /* "chief", as in TF_CONFIG */

struct tf_cluster {
    uint32_t n[TF_ROLE_COUNT];
    /* Appends "HOST:PORT". Called once for each member, in the order of the roles and of
     * their indexes. The text must contain nothing that JSON has to escape. */
    void (*put_address)(void *arg,
                        enum tf_role role,
                        uint32_t index,
                        struct strbuf *out);
    void *arg;
};
/* Appends the value for one task as JSON on one line. */
void tf_config_write(const struct tf_cluster *c,
                     enum tf_role role,
                     uint32_t index,
                     struct strbuf *out);

#endif

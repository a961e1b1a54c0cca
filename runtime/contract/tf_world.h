/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a launcher as the tasks of TensorFlow's strategies: which process has
 * which role, its address, and its TF_CONFIG. For horovodrun, its agents and the Slurm
 * plugin; a HorovodJob names roles and counts itself. Pure. */
#ifndef RUNTIME_CONTRACT_TF_WORLD_H
#define RUNTIME_CONTRACT_TF_WORLD_H

#include <stdbool.h>

#include "runtime/base/err.h"
#include "runtime/contract/hostlist.h"
#include "runtime/contract/places.h"
#include "runtime/contract/tf_config.h"

enum framework { FRAMEWORK_HVD, FRAMEWORK_TF_MULTIWORKER, FRAMEWORK_TF_PS };
#define FRAMEWORK_COUNT 3
const char *framework_name(enum framework f); /* "horovod", "tf-multiworker", "tf-ps" */
/* -EINVAL with an error message that names the allowed ones. */
int framework_parse(const char *text, enum framework *ret, struct err *err);

struct tf_roles {
    enum framework framework;
    uint32_t n_ps; /* 0: the default, one for tf-ps */
    bool has_evaluator;
};
/* The number of tasks of each role among np processes. FRAMEWORK_HVD has none. -EINVAL
 * when the processes are too few, or a role does not belong to the framework. */
int tf_roles_count(const struct tf_roles *roles,
                   uint32_t np,
                   uint32_t ret[TF_ROLE_COUNT],
                   struct err *err);

struct tf_world {
    struct tf_roles roles;
    const struct hostlist *hosts; /* by names or addresses that all hosts reach */
    uint32_t np;                  /* the first np slots */
    uint16_t ports;               /* from port_derive */
};
/* Appends TF_CONFIG of the process with place->local_rank on place->host. Processes are
 * counted host by host, so that Slurm's distribution of ranks does not matter: the first
 * is the chief of tf-ps, then come the workers, the servers and the evaluator. */
int tf_world_config(const struct tf_world *world,
                    const struct place *place,
                    struct strbuf *out,
                    struct err *err);
/* That process is the chief of tf-ps, whose end is the end of the job. */
bool tf_world_ends_with(const struct tf_world *world, const struct place *place);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The errand that all hosts of a job get. */
#ifndef RUNTIME_LAUNCH_REMOTE_ERRAND_H
#define RUNTIME_LAUNCH_REMOTE_ERRAND_H

#include "runtime/launch/core/errand.h"
#include "runtime/launch/remote.h"

/* Reads HVD_SSH, HVD_SSH_FANOUT and HVD_PEER_TIMEOUT too. e is zeroed by the caller,
 * who releases it in every case. */
int remote_errand(const struct remote_job *job,
                  uint64_t start_timeout_s,
                  struct errand *e,
                  struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Builds the JOB message (core/errand.h) for all hosts of a job. */
#ifndef RUNTIME_LAUNCH_ERRAND_MAKE_H
#define RUNTIME_LAUNCH_ERRAND_MAKE_H

#include "runtime/launch/core/errand.h"
#include "runtime/launch/remote.h"

/* Also reads HVD_SSH, HVD_SSH_FANOUT and HVD_PEER_TIMEOUT. The caller zeroes e and
 * releases it in every case. */
int errand_make(const struct remote_job *job,
                uint64_t start_timeout_s,
                struct errand *e,
                struct err *err);

#endif

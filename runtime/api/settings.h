/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables that tune this runtime; who is which rank is contract/'s.
 */
#ifndef RUNTIME_API_SETTINGS_H
#define RUNTIME_API_SETTINGS_H

#include "runtime/base/log.h"
#include "runtime/contract/contract.h"

struct settings {
    uint64_t start_timeout_ns; /* HOROVOD_START_TIMEOUT, 30 s */
    uint64_t peer_timeout_ns;  /* HVD_PEER_TIMEOUT, 30 s */
    uint64_t
        fusion_bytes; /* HOROVOD_FUSION_THRESHOLD, 128 MiB; 0: off; rank 0's counts */
    uint64_t stall_warn_ns;   /* HOROVOD_STALL_CHECK_TIME_SECONDS, 60; 0 by
                                 _STALL_CHECK_DISABLE */
    uint64_t stall_fail_ns;   /* HOROVOD_STALL_SHUTDOWN_TIME_SECONDS, 0: never */
    enum log_level log_level; /* HOROVOD_LOG_LEVEL, warning */
};

/* -EINVAL, -ERANGE with the variable, its value and what is allowed. */
int settings_read(getenv_fn get, void *arg, struct settings *ret, struct err *err);

#endif

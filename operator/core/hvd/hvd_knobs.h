/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of spec.horovod that become environment variables of the ranks. The
 * decoder, the builder of pods and the test use this table. Pure.
 *
 *   X(id, field, variable, kind, lowest, highest)
 *
 * Values are those of horovodrun's flag of that name
 * (runtime/launch/core/option_table.h). */
#ifndef OPERATOR_CORE_HVD_HVD_KNOBS_H
#define OPERATOR_CORE_HVD_HVD_KNOBS_H

#include "operator/doc/node.h"
#include "runtime/base/strbuf.h"

/* clang-format off */
#define HVD_KNOBS(X)                                                                          \
    X(FUSION, "fusionThresholdMB", "HOROVOD_FUSION_THRESHOLD", MIB, 0, 1048576)               \
    X(CYCLE_TIME, "cycleTimeMs", "HOROVOD_CYCLE_TIME", NUMBER, 0, 10000)                      \
    X(CACHE, "cacheCapacity", "HOROVOD_CACHE_CAPACITY", WHOLE, 0, 65536)                      \
    X(ALLREDUCE, "hierarchicalAllreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", SWITCH, 0, 0)     \
    X(ALLGATHER, "hierarchicalAllgather", "HOROVOD_HIERARCHICAL_ALLGATHER", SWITCH, 0, 0)     \
    X(AUTOTUNE, "autotune", "HOROVOD_AUTOTUNE", SWITCH, 0, 0)                                 \
    X(AUTOTUNE_LOG, "autotuneLogFile", "HOROVOD_AUTOTUNE_LOG", TEXT, 0, 0)                    \
    X(TIMELINE, "timelineFilename", "HOROVOD_TIMELINE", TEXT, 0, 0)                           \
    X(TIMELINE_MARK, "timelineMarkCycles", "HOROVOD_TIMELINE_MARK_CYCLES", SWITCH, 0, 0)      \
    X(STALL_DISABLE, "stallCheckDisable", "HOROVOD_STALL_CHECK_DISABLE", SWITCH, 0, 0)        \
    X(STALL_WARNING, "stallCheckWarningTimeSeconds", "HOROVOD_STALL_CHECK_TIME_SECONDS",      \
      WHOLE, 0, 86400)                                                                        \
    X(STALL_SHUTDOWN, "stallCheckShutdownTimeSeconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", \
      WHOLE, 0, 86400)                                                                        \
    X(LOG_LEVEL, "logLevel", "HOROVOD_LOG_LEVEL", LEVEL, 0, 0)                                \
    X(START_TIMEOUT, "startTimeoutSeconds", "HVD_START_TIMEOUT", WHOLE, 1, 86400)             \
    X(PEER_TIMEOUT, "peerTimeoutSeconds", "HVD_PEER_TIMEOUT", WHOLE, 1, 86400)                \
    X(METRICS_PORT, "metricsPort", "HVD_METRICS_PORT", WHOLE, 1, 65535)
/* clang-format on */

enum hvd_knob {
#define ID(id, field, variable, kind, min, max) KNOB_##id,
    HVD_KNOBS(ID)
#undef ID
        KNOB_COUNT
};

const char *hvd_knob_variable(enum hvd_knob k);
/* Decodes spec.horovod (o: an object or NULL) into the values of the variables; NULL for
 * a field that is not set. problems: as in hvd_decode_spec. -ENOMEM. */
int hvd_knobs_decode(const struct node *o,
                     struct arena *a,
                     const char *ret[KNOB_COUNT],
                     struct strbuf *problems);

#endif

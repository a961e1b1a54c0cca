/* SPDX-License-Identifier: Apache-2.0 */
/* --check-build: Horovod's table of what is available, which tools parse. */
#ifndef RUNTIME_LAUNCH_CHECK_BUILD_H
#define RUNTIME_LAUNCH_CHECK_BUILD_H

#include "runtime/launch/capture.h"

#define CHECK_BUILD_VERSION                                                            \
    "0.28.1+ringmaster." HVD_VERSION_STRING /* as horovod.__version__ */

/* Asks the Python of PATH, with the runtime dir before its path ("": as it is), what it
 * can import, and appends the table and below it what Horovod's has no place for. c
 * needs signals, guard, env and timeout_ms; a Python that fails is told in the table.
 */
int check_build_render(struct capture *c,
                       const char *dir,
                       struct strbuf *out,
                       struct err *err);

#endif

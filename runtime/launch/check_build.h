/* SPDX-License-Identifier: Apache-2.0 */
/* --check-build: Horovod's table of available features, which tools parse. */
#ifndef RUNTIME_LAUNCH_CHECK_BUILD_H
#define RUNTIME_LAUNCH_CHECK_BUILD_H

#include "runtime/launch/capture.h"

#define CHECK_BUILD_VERSION                                                            \
    "0.28.1+ringmaster." HVD_VERSION_STRING /* like horovod.__version__ */

/* Queries the Python in PATH, with dir (of the runtime; "": none) before its path, and
 * appends Horovod's table to out, followed by our own lines. c needs signals, guard,
 * env and timeout_ms. A Python that fails is reported in the table. Fails only after a
 * signal or without memory. */
int check_build_render(struct capture *c,
                       const char *dir,
                       struct strbuf *out,
                       struct err *err);

#endif

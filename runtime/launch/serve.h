/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent serve: starts ranks for horovodrun on hosts that know the same token. */
#ifndef RUNTIME_LAUNCH_SERVE_H
#define RUNTIME_LAUNCH_SERVE_H

/* argv: the words after "serve", NULL-terminated. Returns the exit code. */
int agent_serve(char *const *argv);

#endif

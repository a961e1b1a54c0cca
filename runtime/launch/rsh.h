/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent rsh, also called hvd-rsh: a remote shell for MPI's launchers. */
#ifndef RUNTIME_LAUNCH_RSH_H
#define RUNTIME_LAUNCH_RSH_H

#define RSH_NAME     "hvd-rsh"
#define RSH_OWN_CODE 255 /* for failures of rsh itself, as in ssh */

/* argv[0] is the first option. Returns the exit code. */
int agent_rsh(char *const *argv);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun, also called perseusrun: N ranks of one command on this host. */
#ifndef RUNTIME_LAUNCH_HOROVODRUN_H
#define RUNTIME_LAUNCH_HOROVODRUN_H

/* The whole program; returns its exit code. env is environ. */
int horovodrun_main(int argc, char *const *argv, char *const *env);

#endif

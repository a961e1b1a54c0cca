/* SPDX-License-Identifier: Apache-2.0 */
/* The program horovodrun, also called perseusrun. */
#ifndef RUNTIME_LAUNCH_HOROVODRUN_H
#define RUNTIME_LAUNCH_HOROVODRUN_H

/* Returns the exit code. env is environ. */
int horovodrun_main(int argc, char *const *argv, char *const *env);

#endif

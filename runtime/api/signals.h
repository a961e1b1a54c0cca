/* SPDX-License-Identifier: Apache-2.0 */
/* A goodbye before a death by signal. */
#ifndef RUNTIME_API_SIGNALS_H
#define RUNTIME_API_SIGNALS_H

/* Handles those of the signals below that have their default action. Once for the process;
 * does nothing where no thread can be started, and for process 1, which signals do not
 * kill. */
void signals_watch(void);

#endif

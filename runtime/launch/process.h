/* SPDX-License-Identifier: Apache-2.0 */
/* Another process of this host, from /proc. Needs no right but the same user. */
#ifndef RUNTIME_LAUNCH_PROCESS_H
#define RUNTIME_LAUNCH_PROCESS_H

#include "runtime/launch/core/proc_text.h"

/* False: there is no such process. */
bool process_read_stat(uint32_t pid, struct proc_stat *ret);
/* Sets ret->is_gone if there is no such process. */
void process_sample(uint32_t pid, struct hang_sample *ret);
/* Does it descend from this process? */
bool process_is_descendant(uint32_t pid);
/* It handles the signal, so that the signal does not end it. */
bool process_catches(uint32_t pid, int sig);
/* A thread that can run a handler of sig, other than the main one; 0: there is none. */
uint32_t process_find_thread(uint32_t pid, int sig);
/* Whether the main thread blocks the signal. */
bool process_blocks(uint32_t pid, int sig);
/* A variable of its environment; false: it is not set, or too long. */
bool process_variable(uint32_t pid, const char *name, char *ret, size_t size_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of goodbyes and causes: what a rank reports about its own end, and which
 * rank a cause names. Pure. */
#ifndef RUNTIME_CORE_GOODBYE_H
#define RUNTIME_CORE_GOODBYE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a rank failed, as it follows its name in a sentence: "ended: ValueError: bad batch
 * (train.py:40)", "exited with code 3", "ended by SIGSEGV". With the NUL. */
#define GOODBYE_HOW_BYTES 320

/* Copies a text that comes from a program or another rank, as much as fits. Only printable text is left: a run of blanks and control characters becomes one
 * blank, and what is no UTF-8 or changes the direction of text becomes '?'. A character
 * is never cut. */
void goodbye_clean(const char *text, char *ret, size_t size_bytes);

/* The rank whose end a cause or an operation's error text reports ("rank 3 (host b, pid
 * 7) ..."), after the words "Horovod has been shut down: " too; -1: none. */
int64_t goodbye_rank(const char *text);

/* The words between a rank's name and its signal, for a rank that a launcher stops: "was
 * stopped by Slurm: SIGTERM". */
#define GOODBYE_STOPPED "was stopped by "
/* Does this cause report such a rank? The other ranks are stopped, too, and no program has
 * failed. */
bool goodbye_is_stop(const char *text);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Names for the return addresses of another process. */
#ifndef RUNTIME_LAUNCH_SYMBOLS_H
#define RUNTIME_LAUNCH_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

#define SYMBOLS_MAX_ADDRESSES 1024 /* different ones of all dumps; more have no name */

/* Replaces the addresses in dumps of process pid (contract/stacks_file.h):
 *     0x00007f1234567890   ->   "    futex_wait (libc.so.6)", or "    (libc.so.6)"
 * dumps[i] is on the heap, and may be replaced; NULL: there is none. One that does not
 * fit memory stays as it is. May block: it reads the files of programs and libraries,
 * each one once. */
void symbols_name_dumps(uint32_t pid, char **dumps, size_t n);

#endif

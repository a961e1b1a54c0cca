/* SPDX-License-Identifier: Apache-2.0 */
/* Names for the return addresses of another process. */
#ifndef RUNTIME_LAUNCH_SYMBOLS_H
#define RUNTIME_LAUNCH_SYMBOLS_H

#include <stdint.h>

#include "runtime/base/strbuf.h"

/* Copies a dump of process pid (contract/stacks_file.h), with its addresses replaced:
 *     0x00007f1234567890   ->   "    futex_wait (libc.so.6)", or "    (libc.so.6)"
 * May block: it reads the files of programs and libraries. */
void symbols_name_dump(uint32_t pid, const char *text, struct strbuf *out);

#endif

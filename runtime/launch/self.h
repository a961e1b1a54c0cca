/* SPDX-License-Identifier: Apache-2.0 */
/* Where this program lies: .../DIR/bin/program -> DIR. */
#ifndef RUNTIME_LAUNCH_SELF_H
#define RUNTIME_LAUNCH_SELF_H

#include <stddef.h>

#include "runtime/base/err.h"

int self_tree(char *ret_dir, size_t size_bytes, struct err *err);
/* DIR when DIR/python/_hvd is there, so that ranks find this runtime without
 * installation; "" when the program lies elsewhere (a virtual environment's bin). */
void self_runtime(char *ret_dir, size_t size_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of this program: .../DIR/bin/program -> DIR. */
#ifndef RUNTIME_LAUNCH_SELF_H
#define RUNTIME_LAUNCH_SELF_H

#include <stddef.h>

#include "runtime/base/err.h"

int self_tree(char *ret_dir, size_t size_bytes, struct err *err);
/* DIR if DIR/python/_hvd exists, so that ranks find this runtime without installation;
 * otherwise "" (as in the bin folder of a virtual environment). */
void self_runtime(char *ret_dir, size_t size_bytes);

#endif

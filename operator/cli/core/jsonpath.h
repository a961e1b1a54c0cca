/* SPDX-License-Identifier: Apache-2.0 */
/* A part of kubectl's jsonpath, for trees that kubectl does not know. Pure. */
#ifndef OPERATOR_CLI_CORE_JSONPATH_H
#define OPERATOR_CLI_CORE_JSONPATH_H

#include "operator/doc/node.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

/* Text with {PATH} and {"TEXT"}. A path is .NAME, ['NAME'], [N], [-N], [*] in any number,
 * after an optional $ or @. Several values are joined by blanks; containers are printed as
 * JSON, absent ones not at all. -EINVAL with err: anything else, such as range and filters. */
int jsonpath_write(const struct node *root,
                   const char *template,
                   struct strbuf *out,
                   struct err *err);

#endif

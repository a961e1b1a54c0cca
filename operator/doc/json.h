/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text <-> node tree. jansson stays inside json.c. */
#ifndef OPERATOR_DOC_JSON_H
#define OPERATOR_DOC_JSON_H

#include <stddef.h>

#include "operator/doc/node.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

/* One JSON object or array that fills text[0..n). -EINVAL with line and column on bad
 * syntax or more than NODE_MAX_DEPTH levels; -ENOMEM when memory or the arena's limit
 * is exhausted. */
int json_read(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err);
/* Compact, or indented by two spaces. strbuf_status() reports failures. */
void json_write(const struct node *n, struct strbuf *out);
void json_write_pretty(const struct node *n, struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* YAML text -> node tree, for files that people write: kubeconfig and manifests.
 * Scalars follow the JSON schema: a plain true/false/null/number is typed, anything
 * quoted is a string, "no" and "on" are strings. Tags are refused with an error. */
#ifndef OPERATOR_DOC_YAML_H
#define OPERATOR_DOC_YAML_H

#include <stddef.h>

#include "operator/doc/node.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

/* One document without anchors. -EINVAL with the line on bad syntax; -ENOMEM when memory
 * or the arena's limit is exhausted. An empty text gives a null node. */
int yaml_read(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err);
/* The same for a manifest: *ret is an array of its documents, anchors and "<<" are
 * expanded. */
int yaml_read_all(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err);
/* Block style, as kubectl writes it; the document ends with a newline. A text that could
 * be read as anything else is quoted. */
void yaml_write(const struct node *n, struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* YAML text -> node tree, for files that people write: kubeconfig and manifests.
 * Scalars follow the JSON schema: a plain true/false/null/number is typed, anything
 * quoted is a string, "no" and "on" are strings. Anchors, aliases, tags and a second
 * document are refused with an error. */
#ifndef OPERATOR_DOC_YAML_H
#define OPERATOR_DOC_YAML_H

#include <stddef.h>

#include "operator/doc/node.h"
#include "runtime/base/err.h"

/* -EINVAL with the line on bad syntax; -ENOMEM when memory or the arena's limit is
 * exhausted. An empty text gives a null node. */
int yaml_read(
    struct arena *a, const char *text, size_t n, struct node **ret, struct err *err);

#endif

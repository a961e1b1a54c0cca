/* SPDX-License-Identifier: Apache-2.0 */
/* Drops unused parts of JSON text before it is parsed. Pure. */
#ifndef OPERATOR_DOC_PRUNE_H
#define OPERATOR_DOC_PRUNE_H

#include "operator/doc/jsontext.h"

/* A member that is kept. A list of rules ends with PRUNE_END. */
struct prune_rule {
    const char *key; /* as it is written in the text */
    /* For its members, or those of each of its items; NULL: all are kept. */
    const struct prune_rule *inner;
};
#define PRUNE_KEEP(name)                                                               \
    {                                                                                  \
        .key = (name)                                                                  \
    }
#define PRUNE_END                                                                      \
    {                                                                                  \
        .key = NULL                                                                    \
    }

/* Appends text without the members that have no rule. If a rule has inner rules, a value
 * that is not a container is kept. -EINVAL: not an object, or bad syntax; then out is
 * incomplete. -ENOMEM, -E2BIG: strbuf_status(out). */
int json_prune(struct json_span text,
               const struct prune_rule *rules,
               struct strbuf *out);

#endif

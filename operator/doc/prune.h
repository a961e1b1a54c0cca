/* SPDX-License-Identifier: Apache-2.0 */
/* Drops unused parts of JSON text before it is parsed. Pure. */
#ifndef OPERATOR_DOC_PRUNE_H
#define OPERATOR_DOC_PRUNE_H

#include "operator/doc/jsontext.h"

/* What to do with one member of an object. A list of rules ends with key NULL. */
struct prune_rule {
    const char *key; /* as it is written; "": every member that has no rule of its own,
                      * and must come last */
    bool is_dropped;
    const struct prune_rule *inner; /* for its members, or those of each of its items */
};

/* For the member metadata: without managedFields, which only the API server reads. */
extern const struct prune_rule prune_metadata[];
/* For an object: everything except that. */
extern const struct prune_rule prune_object[];

/* Appends text without the members that are dropped or have no rule. If a rule has inner
 * rules, a value that is not a container is kept. -EINVAL: not an object, or bad syntax;
 * then out is incomplete. -ENOMEM, -E2BIG: strbuf_status(out). */
int json_prune(struct json_span text,
               const struct prune_rule *rules,
               struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an object of the API, and of an invalid one as much as possible. Pure. */
#ifndef OPERATOR_DOC_OBJECT_H
#define OPERATOR_DOC_OBJECT_H

#include "operator/doc/jsontext.h"
#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "runtime/base/err.h"

/* Bytes of a member, such as spec, as JSON: the largest argument that Linux takes, and
 * half as much. */
#define OBJECT_MAX_MEMBER (192u << 10)
#define OBJECT_MAX_BYTES  (32u << 20) /* of the tree: more than such members need */

/* The member that an object gets if its spec could not be read unchanged: a string with
 * the cause. The API server never sends a member of this name. */
#define OBJECT_UNREADABLE "unreadable"

/* The members of the object that have rules. If json_read refuses them: with the changes
 * of json_repair, and with OBJECT_UNREADABLE if these or its size concerned spec; a member that is too large, and a spec that is not JSON, are left out. json_read accepts
 * the written result. The arena must be empty and limited to OBJECT_MAX_BYTES. -EINVAL if
 * nothing can be read; -ENOMEM if memory is out, whatever the object. */
int object_read(struct arena *a,
                struct json_span text,
                const struct prune_rule *rules,
                struct node **ret,
                struct err *err);

/* The members of each of metadata.ownerReferences that the next two read. */
extern const struct prune_rule owner_rules[];
/* Uid and kind of the controlling owner; "" if there is none. */
const char *object_owner_uid(const struct node *object);
const char *object_owner_kind(const struct node *object);
/* The label of that key; "" if it is absent. */
const char *object_label(const struct node *object, const char *key);
/* True if `whole` contains `part`. Objects in `whole` may have more members, such as those
 * that the API server adds; arrays and values must be equal. */
bool object_holds(const struct node *whole, const struct node *part);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an object of the API, and of an invalid one as much as possible. Pure. */
#ifndef OPERATOR_DOC_OBJECT_H
#define OPERATOR_DOC_OBJECT_H

#include "operator/doc/jsontext.h"
#include "operator/doc/node.h"
#include "runtime/base/err.h"

#define OBJECT_MAX_VALUES 100000 /* numbers, strings, arrays and objects within it */
#define OBJECT_MAX_BYTES  (32u << 20) /* of the tree: more than so many values need */

/* The member that an object gets if its spec could not be read unchanged: a string with
 * the cause. The API server never sends a member of this name. */
#define OBJECT_UNREADABLE "unreadable"

/* The whole object. If json_read refuses it: without metadata.managedFields, with the
 * changes of json_repair, and with OBJECT_UNREADABLE if these or a size beyond the
 * limits concerned spec; a spec that is too large or is not JSON is left out. json_read
 * accepts the written result. The arena must be empty and limited to OBJECT_MAX_BYTES.
 * -EINVAL if nothing can be read; -ENOMEM if memory is out, whatever the object. */
int object_read(struct arena *a,
                struct json_span text,
                struct node **ret,
                struct err *err);

/* Uid and kind of the controlling owner; "" if there is none. */
const char *object_owner_uid(const struct node *object);
const char *object_owner_kind(const struct node *object);
/* True if `whole` contains `part`. Objects in `whole` may have more members, such as those
 * that the API server adds; arrays and values must be equal. */
bool object_holds(const struct node *whole, const struct node *part);

#endif

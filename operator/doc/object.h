/* SPDX-License-Identifier: Apache-2.0 */
/* One object of the API, read so that as much of it is known as can be. Pure. */
#ifndef OPERATOR_DOC_OBJECT_H
#define OPERATOR_DOC_OBJECT_H

#include "operator/doc/jsontext.h"
#include "operator/doc/node.h"
#include "runtime/base/err.h"

#define OBJECT_MAX_VALUES 100000 /* numbers, strings, arrays and objects within it */
#define OBJECT_MAX_BYTES  (32u << 20) /* of the tree: more than so many values need */

/* The member that an object has when its spec could not be taken as it is: a string,
 * why not. The API server never sends one of this name. */
#define OBJECT_UNREADABLE "unreadable"

/* The whole object, or, when json_read refuses it: without metadata.managedFields, with
 * what json_mend changes, and with OBJECT_UNREADABLE if that or a size beyond the
 * bounds concerned spec; a spec that is too large or is no JSON is left out. What is
 * returned is taken by json_read when it is written. The arena must be empty and
 * bounded by OBJECT_MAX_BYTES. -EINVAL when even so nothing can be known; -ENOMEM when
 * memory is out, which says nothing about the object. */
int object_read(struct arena *a,
                struct json_span text,
                struct node **ret,
                struct err *err);

/* Uid and kind of the controlling owner; "" if there is none. */
const char *object_owner_uid(const struct node *object);
const char *object_owner_kind(const struct node *object);
/* Does whole hold all that part says? Objects may hold more; arrays and values must be
 * equal. What an API server adds by itself does not count so. */
bool object_holds(const struct node *whole, const struct node *part);

#endif

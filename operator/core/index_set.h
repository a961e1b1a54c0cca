/* SPDX-License-Identifier: Apache-2.0 */
/* A set of pod indices, and its text: "0,3-5", as batch Jobs write completedIndexes.
 * Pure. */
#ifndef OPERATOR_CORE_INDEX_SET_H
#define OPERATOR_CORE_INDEX_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"

#define INDEX_SET_MAX 8192

struct index_set { /* zeroed: empty */
    uint64_t bits[INDEX_SET_MAX / 64];
};

/* index < INDEX_SET_MAX. */
void index_set_add(struct index_set *s, uint32_t index);
bool index_set_has(const struct index_set *s, uint32_t index);
/* NULL reads as the empty set. Indices ascend; what does not, or is not an index or a
 * range of them, ends the reading: the indices before it count. */
void index_set_read(const char *text, struct index_set *ret);
/* Appends the text; nothing for the empty set. */
void index_set_write(const struct index_set *s, struct strbuf *out);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A vector of pointers sorted by key, for the store. The first member of an entry is its
 * key, a char *. The caller owns the entries. Pure. */
#ifndef OPERATOR_CORE_KEYED_H
#define OPERATOR_CORE_KEYED_H

#include <stddef.h>

struct keyed { /* zeroed: empty */
    void **v;
    size_t n, cap;
};
void keyed_release(struct keyed *k); /* the vector, not the entries */

const char *keyed_key(const void *entry);
void *keyed_find(const struct keyed *k, const char *key); /* NULL if absent */
/* The index of the first entry whose key is not less than `key`; n if there is none. */
size_t keyed_from(const struct keyed *k, const char *key);
struct keyed_range { /* of indices, for callers that return one entry per call. Zeroed
                        before the first call; valid until the next change */
    size_t next, end;
};
/* The key must not be present. -ENOMEM, or -E2BIG at a million entries. */
int keyed_insert(struct keyed *k, void *entry);
/* Keys are "namespace/name": the index after the last entry of entry i's namespace. */
size_t keyed_namespace_end(const struct keyed *k, size_t i);
void keyed_remove(struct keyed *k, const void *entry); /* must be present */

#endif

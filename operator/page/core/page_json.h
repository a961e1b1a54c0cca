/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of bounded size from texts of users. Pure. */
#ifndef OPERATOR_PAGE_CORE_PAGE_JSON_H
#define OPERATOR_PAGE_CORE_PAGE_JSON_H

#include "operator/doc/json.h"

/* As json_write, on one line. Each byte that is not part of valid UTF-8 becomes a question
 * mark, so that a browser reads the rest. */
void page_json_write(const struct node *n, struct strbuf *out);
/* The member as a string of at most max_bytes; a longer text is cut between characters
 * and ends in "...". NULL and "" add nothing. */
void page_json_set(
    struct build *b, struct node *o, const char *key, const char *s, size_t max_bytes);
/* The same for an item of an array; "" is added, too. */
void page_json_add(struct build *b,
                   struct node *array,
                   const char *s,
                   size_t max_bytes);
/* A copy of an object; adds nothing if it takes more than max_bytes as JSON, or is none. */
void page_json_copy(struct build *b,
                    struct node *o,
                    const char *key,
                    const struct node *object,
                    size_t max_bytes);

#endif

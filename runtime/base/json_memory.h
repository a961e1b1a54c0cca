/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for jansson while it reads a text: wiped when it is freed, and once a request has
 * failed all later ones fail.
 *
 * jansson 2.14 ignores that its buffer could not grow, and continues with a token of which
 * a part is missing. Of a string whose closing quote is missing it reads and writes behind
 * its buffers (load.c, lex_scan_string), unless the allocation of the value fails, too:
 * then it ends the text. A number is not helped: if there are no 32 bytes for one of more
 * than 15 characters, jansson aborts (lex_unget_unsave). */
#ifndef RUNTIME_BASE_JSON_MEMORY_H
#define RUNTIME_BASE_JSON_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Before a text is read, by this thread. */
void json_memory_begin(void);
/* For json_set_alloc_funcs, with wiped_free. */
void *json_memory_alloc(size_t size_bytes);
/* A request has failed since then: what jansson returned is not valid. */
bool json_memory_is_out(void);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is wiped when it is freed or grows, for libraries that see our secrets:
 * they use these instead of malloc and the like. The functions set errno as those do
 * and allocate from mem.h, so that tests can make them fail. */
#ifndef RUNTIME_BASE_WIPED_H
#define RUNTIME_BASE_WIPED_H

#include <stddef.h>

void *wiped_alloc(size_t size_bytes);
void *wiped_calloc(size_t n, size_t size_bytes);
void *wiped_realloc(void *p, size_t size_bytes); /* never in place */
char *wiped_strdup(const char *s);
void wiped_free(void *p); /* accepts NULL; only what one of these has given */

#endif

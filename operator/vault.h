/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the tokens of jobs: outside the heap, locked where the limit allows it, not in
 * core dumps, and wiped when it is returned. One thread. */
#ifndef OPERATOR_VAULT_H
#define OPERATOR_VAULT_H

#include "runtime/contract/token.h"

struct vault;

struct vault *vault_new(void);
void vault_free(struct vault *v);                  /* wipes all; accepts NULL */
struct token *vault_take(struct vault *v);         /* NULL: out of memory */
void vault_give(struct vault *v, struct token *t); /* accepts NULL */

#endif

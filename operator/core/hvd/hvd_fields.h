/* SPDX-License-Identifier: Apache-2.0 */
/* Checked reading of one field of a spec. Each function takes the object with the field
 * (NULL: there is none), the object's path and the field's name. A wrong value adds a
 * line "PATH.NAME: -1 is below 1" to problems and reads as absent. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_FIELDS_H
#define OPERATOR_CORE_HVD_HVD_FIELDS_H

#include "operator/doc/node.h"
#include "runtime/base/strbuf.h"

void field_wrong_type(struct strbuf *problems,
                      const char *path,
                      const char *name,
                      const struct node *n,
                      const char *want);
int64_t field_int(const struct node *o,
                  const char *path,
                  const char *name,
                  int64_t dflt,
                  int64_t min,
                  int64_t max,
                  struct strbuf *problems);
bool field_bool(const struct node *o,
                const char *path,
                const char *name,
                bool dflt,
                struct strbuf *problems);
/* Reads a string that must not be empty. */
const char *field_text(const struct node *o,
                       const char *path,
                       const char *name,
                       const char *dflt,
                       struct strbuf *problems);
/* Returns the index of the value in names, which ends with NULL. */
int field_choice(const struct node *o,
                 const char *path,
                 const char *name,
                 const char *const *names,
                 int dflt,
                 struct strbuf *problems);
/* Reads a quantity, a string or a number, that must not be negative. *ret is its text,
 * in the document or the arena; NULL if absent. -ENOMEM. */
int field_quantity(const struct node *o,
                   const char *path,
                   const char *name,
                   struct arena *a,
                   struct strbuf *problems,
                   const char **ret);
const struct node *field_object(const struct node *o,
                                const char *path,
                                const char *name,
                                bool is_required,
                                struct strbuf *problems);
/* Returns a list of min to max elements; NULL if it is absent or refused. */
const struct node *field_list(const struct node *o,
                              const char *path,
                              const char *name,
                              size_t min,
                              size_t max,
                              struct strbuf *problems);
/* Reports members that are not in known, which ends with NULL. */
void field_refuse_unknown(const struct node *o,
                          const char *path,
                          const char *const *known,
                          struct strbuf *problems);

#endif

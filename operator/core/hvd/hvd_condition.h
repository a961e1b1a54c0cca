/* SPDX-License-Identifier: Apache-2.0 */
/* Conditions and texts of a HorovodJob's status. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_CONDITION_H
#define OPERATOR_CORE_HVD_HVD_CONDITION_H

#include "operator/doc/node.h"

#define CONDITION_TEXT_MAX 1024

/* At most max bytes of s, cut at a character's start. */
void status_set_text(
    struct build *b, struct node *o, const char *key, const char *s, size_t max);
/* now: a timestamp, for lastTransitionTime if the condition of old_status differs. */
struct node *status_condition(struct build *b,
                              const struct node *old_status,
                              const char *type,
                              bool is_true,
                              const char *reason,
                              const char *message,
                              const char *now);

#endif

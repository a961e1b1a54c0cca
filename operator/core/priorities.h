/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster's PriorityClasses, for the order of roles in a PodGroup. Pure. */
#ifndef OPERATOR_CORE_PRIORITIES_H
#define OPERATOR_CORE_PRIORITIES_H

#include <stdint.h>

#include "operator/core/keyed.h"

struct priorities { /* zeroed: empty */
    struct keyed classes;
};
void priorities_release(struct priorities *p);
/* -ENOMEM. */
int priorities_put(struct priorities *p, const char *name, int32_t value);
void priorities_drop(struct priorities *p, const char *name);
/* A relist: begin, put all, end. */
void priorities_begin(struct priorities *p);
void priorities_end(struct priorities *p);
/* 0 for an unknown class, and for NULL. */
int32_t priorities_value(const struct priorities *p, const char *name);

#endif

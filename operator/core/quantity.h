/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities of Kubernetes: "500m", "2", "1.5Gi", "3e2". Sums and multiples are exact.
 * Texts are formatted in the canonical form of the API server. Pure. */
#ifndef OPERATOR_CORE_QUANTITY_H
#define OPERATOR_CORE_QUANTITY_H

#include <stdint.h>

#include "runtime/base/err.h"

#define QUANTITY_SIZE 48 /* text of any quantity, with its NUL */

enum quantity_form {
    QUANTITY_DECIMAL,  /* n u m k M G T P E */
    QUANTITY_BINARY,   /* Ki Mi Gi Ti Pi Ei */
    QUANTITY_EXPONENT, /* e3 */
};

struct quantity { /* units + nano / 10^9; not negative */
    uint64_t units;
    uint32_t nano; /* below 10^9 */
    enum quantity_form form;
};

/* As on the API server, digits below a billionth are rounded up, and a binary quantity
 * above 2^63 - 1 becomes 2^63 - 1. -EINVAL: bad syntax or a negative quantity; -ERANGE:
 * a decimal quantity above 2^64 - 1. */
int quantity_parse(const char *s, struct quantity *ret, struct err *err);
/* a += b. The sum has the form of a unless a is zero. -ERANGE: the sum is above
 * 2^64 - 1; *a is unchanged. */
int quantity_add(struct quantity *a, const struct quantity *b);
int quantity_multiply(struct quantity *q, uint32_t n); /* as quantity_add */
char *quantity_format(const struct quantity *q, char ret[QUANTITY_SIZE]);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Quantities of Kubernetes: "500m", "2", "1.5Gi", "3e2". Sums and multiples are exact;
 * text comes out in the canonical form of the API server. Pure. */
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

/* What is smaller than a billionth is rounded up, a binary one beyond 2^63 - 1 becomes
 * that, as on the API server. -EINVAL on bad syntax or a negative one, -ERANGE beyond
 * 2^64 - 1 (a decimal one). */
int quantity_parse(const char *s, struct quantity *ret, struct err *err);
/* a += b, in the form of a unless that is zero. -ERANGE beyond 2^64 - 1; *a is then as
 * it was. */
int quantity_add(struct quantity *a, const struct quantity *b);
int quantity_multiply(struct quantity *q, uint32_t n); /* as quantity_add */
char *quantity_format(const struct quantity *q, char ret[QUANTITY_SIZE]);

#endif

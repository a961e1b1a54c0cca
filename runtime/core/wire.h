/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian primitives of all messages between ranks. Pure. */
#ifndef RUNTIME_CORE_WIRE_H
#define RUNTIME_CORE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"

void wire_put(struct strbuf *b, uint64_t v, size_t n_bytes); /* n_bytes 1 to 8 */
void wire_put_f64(struct strbuf *b, double v);
/* u16 length and the bytes without NUL; at most max - 1 of them. */
void wire_put_text(struct strbuf *b, const char *s, size_t max);

struct wire_reader {
    const uint8_t *p;
    size_t n, at; /* at <= n always */
};
/* All return false, with *ret undefined, when the input ends too early. */
bool wire_get(struct wire_reader *r, size_t n_bytes, uint64_t *ret);
bool wire_get_f64(struct wire_reader *r, double *ret);
/* Also false if the text needs more than max bytes with its NUL, or contains a NUL. */
bool wire_get_text(struct wire_reader *r, char *ret, size_t max);
bool wire_get_bytes(struct wire_reader *r, size_t n, const uint8_t **ret);

#endif

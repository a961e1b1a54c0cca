/* SPDX-License-Identifier: Apache-2.0 */
/* Integers, numbers and texts in the messages of all our protocols. Integers are
 * little-endian. A reader checks every length against the remaining bytes. Pure. */
#ifndef RUNTIME_WIRE_BYTES_H
#define RUNTIME_WIRE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

/* At a fixed place; n_bytes 1 to 8. */
void bytes_store(uint8_t *p, uint64_t v, size_t n_bytes);
uint64_t bytes_load(const uint8_t *p, size_t n_bytes);
void bytes_store_u32(uint8_t *p, uint32_t v);
uint32_t bytes_load_u32(const uint8_t *p);

/* Appended to a buffer, whose status has failures. */
void bytes_put(struct strbuf *out, uint64_t v, size_t n_bytes);
void bytes_put_u32(struct strbuf *out, uint32_t v);
void bytes_put_f64(struct strbuf *out, double v);
/* u16 length and the bytes without NUL; at most max - 1 of them. */
void bytes_put_name(struct strbuf *out, const char *s, size_t max);
void bytes_put_str(struct strbuf *out, const char *s); /* u32 length and the bytes */

/* After the first read that does not fit nothing more is read and is_bad is set, so that
 * callers may check once, at the end. */
struct bytes_reader {
    const uint8_t *p; /* the bytes that remain */
    size_t left;
    bool is_bad;
};
/* False, with *ret undefined, when it does not fit. */
bool bytes_get(struct bytes_reader *r, size_t n_bytes, uint64_t *ret);
bool bytes_get_f64(struct bytes_reader *r, double *ret);
/* Also false if it needs more than max bytes with its NUL, or contains a NUL. */
bool bytes_get_name(struct bytes_reader *r, char *ret, size_t max);
bool bytes_get_raw(struct bytes_reader *r, size_t n, const uint8_t **ret);

uint32_t bytes_u32(struct bytes_reader *r);                 /* 0: is_bad */
const uint8_t *bytes_raw(struct bytes_reader *r, size_t n); /* NULL: is_bad */
/* Reads text without NUL; "" and is_bad if it does not fit. */
void bytes_str(struct bytes_reader *r, char *ret, size_t size_bytes);
/* The same for any length; the caller frees. NULL: is_bad. */
char *bytes_text(struct bytes_reader *r);
/* Reads a host's name or address: not empty, only characters that are valid in a
 * hostfile. */
void bytes_host(struct bytes_reader *r, char *ret, size_t size_bytes);
/* -EPROTO if a read failed or bytes remain. what: for the error message, as in
 * "hello". */
int bytes_end(const struct bytes_reader *r, const char *what, struct err *err);

#endif

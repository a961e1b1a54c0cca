/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding of messages: integers are big-endian, str is length:4 and bytes. A reader
 * checks every length against the remaining bytes and sets is_bad if one does not fit.
 * Pure. */
#ifndef RUNTIME_LAUNCH_CORE_BYTES_H
#define RUNTIME_LAUNCH_CORE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

void bytes_put_u32(struct strbuf *out, uint32_t v);
void bytes_put_str(struct strbuf *out, const char *s);

struct bytes_reader {
    const uint8_t *p;
    size_t left;
    bool is_bad;
};
uint32_t bytes_u32(struct bytes_reader *r);
const uint8_t *bytes_raw(struct bytes_reader *r, size_t n); /* NULL: not enough bytes */
/* Reads text without NUL; "" and is_bad if it does not fit. */
void bytes_str(struct bytes_reader *r, char *ret, size_t size_bytes);
/* The same for any length; the caller frees. NULL: is_bad. */
char *bytes_text(struct bytes_reader *r);
/* Reads a host's name or address: not empty, only characters that are valid in a
 * hostfile. */
void bytes_name(struct bytes_reader *r, char *ret, size_t size_bytes);
/* -EPROTO if a read failed or bytes remain. what: for the error message, as in
 * "hello". */
int bytes_end(const struct bytes_reader *r, const char *what, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* How the messages of this folder are written and read: integers are big-endian, str is
 * length:4 and bytes. A reader checks every length against what is left and is marked
 * bad, once, when one does not fit. Pure. */
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
const uint8_t *bytes_raw(struct bytes_reader *r, size_t n); /* NULL: not there */
/* Text without NUL; "" and bad when it does not fit. */
void bytes_str(struct bytes_reader *r, char *ret, size_t size_bytes);
/* The same of any length; the caller frees. NULL: bad. */
char *bytes_text(struct bytes_reader *r);
/* A host's name or address: not empty, nothing that a hostfile or a log cannot hold. */
void bytes_name(struct bytes_reader *r, char *ret, size_t size_bytes);
/* -EPROTO when something did not fit or bytes remain. what: "hello" */
int bytes_end(const struct bytes_reader *r, const char *what, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, in texts from outside. Pure. */
#ifndef RUNTIME_BASE_UTF8_H
#define RUNTIME_BASE_UTF8_H

#include <stddef.h>

#include "runtime/base/strbuf.h"

/* Length of the sequence at s, which ends with a NUL; 0: invalid. Overlong forms,
 * surrogates and what is beyond U+10FFFF are invalid. The NUL has length 1. */
size_t utf8_length(const unsigned char *s);
/* Appends the inside of a JSON string; invalid UTF-8 becomes a question mark. */
void utf8_put_json(const char *s, struct strbuf *out);
/* Copies text to ret, at most size_bytes with the NUL, cut between characters. Control
 * characters and what is invalid become '?'. */
void utf8_clean(const char *text, char *ret, size_t size_bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, in texts from outside. Pure. */
#ifndef RUNTIME_CORE_UTF8_H
#define RUNTIME_CORE_UTF8_H

#include <stddef.h>

/* Length of the sequence at s, which ends with a NUL; 0: invalid. Overlong forms,
 * surrogates and what is beyond U+10FFFF are invalid. The NUL has length 1. */
size_t utf8_length(const unsigned char *s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Whole-string, ranged parsers. Each takes the name of the field for the error message:
 *     HOROVOD_RANK: "abc" is not a number from 0 to 65535
 * 0, or -EINVAL (syntax) / -ERANGE with err set; *ret unchanged on failure. */
#ifndef RUNTIME_BASE_PARSE_H
#define RUNTIME_BASE_PARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

int parse_u32(const char *field,
              const char *s,
              uint32_t min,
              uint32_t max,
              uint32_t *ret,
              struct err *err);
int parse_u64(const char *field,
              const char *s,
              uint64_t min,
              uint64_t max,
              uint64_t *ret,
              struct err *err);
int parse_i64(const char *field,
              const char *s,
              int64_t min,
              int64_t max,
              int64_t *ret,
              struct err *err);
/* 1/0/true/false/yes/no/on/off in any case. */
int parse_bool(const char *field, const char *s, bool *ret, struct err *err);
/* Seconds as a decimal number ("30", "0.5") with optional unit ms, s, m, h ->
 * milliseconds. */
int parse_duration_ms(const char *field,
                      const char *s,
                      uint64_t min_ms,
                      uint64_t max_ms,
                      uint64_t *ret,
                      struct err *err);

#endif

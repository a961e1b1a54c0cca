/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 3339 as Kubernetes writes it: UTC, whole seconds or microseconds. Pure, no
 * tzdata. */
#ifndef OPERATOR_CORE_TIMESTAMP_H
#define OPERATOR_CORE_TIMESTAMP_H

#include <stdbool.h>
#include <stdint.h>

#define TIMESTAMP_SIZE 32

/* "2026-11-21T11:22:33Z" or with 1 to 9 digits of fraction. -EINVAL otherwise. */
int timestamp_parse_us(const char *s, uint64_t *ret_wall_us);
char *timestamp_format_s(uint64_t wall_s, char ret[TIMESTAMP_SIZE]);
char *timestamp_format_us(uint64_t wall_us, char ret[TIMESTAMP_SIZE]); /* six digits */

/* True at the wall time at_s, the end of a wait of at most longest_s. Also true if that
 * time is more than CLOCKS_APART_S further away: the clock was set back, and the wait
 * would take as long. Small steps, and another operator's clock, cost their seconds. */
#define CLOCKS_APART_S 60
bool wall_wait_is_over(uint64_t now_s, uint64_t at_s, uint64_t longest_s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the PMI-1 wire protocol: "cmd=NAME KEY=VALUE ...\n". Pure. */
#ifndef RUNTIME_BOOTSTRAP_PMI_LINE_H
#define RUNTIME_BOOTSTRAP_PMI_LINE_H

#include <stdbool.h>
#include <stddef.h>

#define PMI_LINE_BYTES 4096 /* more than any launcher sends */

/* The value of a key, up to the next blank. false: missing, or longer than the buffer.
 * line has no newline. */
bool pmi_value(const char *line, const char *key, char *ret, size_t size_bytes);
bool pmi_is(const char *line, const char *cmd); /* whether its cmd is this one */
/* The number of a key, or or_else where it is missing or not a number. */
long pmi_number(const char *line, const char *key, long or_else);

#endif

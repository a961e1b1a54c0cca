/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that all hosts of a job derive from its token, for programs of the user that
 * listen: 20000 to 29999, below the ephemeral range. Nobody holds them, so two jobs on
 * one host may get the same one; the later one's program then fails to listen. Pure. */
#ifndef RUNTIME_CONTRACT_PORT_H
#define RUNTIME_CONTRACT_PORT_H

#include <stdint.h>

#include "runtime/contract/token.h"

/* use: what it is for ("master port"); each use gets another port. */
uint16_t port_derive(const struct token *t, const char *use);
/* The k-th port from first on, in the range; all of 10,000 are different. */
uint16_t port_after(uint16_t first, uint32_t k);

#endif

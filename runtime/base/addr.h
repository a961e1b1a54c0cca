/* SPDX-License-Identifier: Apache-2.0 */
/* Which of our addresses the other ranks should use. */
#ifndef RUNTIME_BASE_ADDR_H
#define RUNTIME_BASE_ADDR_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/err.h"

bool addr_is_loopback(const char *addr);
/* Our address on the route to peer (numeric). Sends nothing. */
int addr_towards(const char *peer, char *ret, size_t size, struct err *err);
/* The address of a network interface; IPv4 before IPv6. -ENODEV names those that exist.
 */
int addr_of_iface(const char *name, char *ret, size_t size, struct err *err);
/* All addresses by which other hosts may reach this one, IPv4 first, with commas
 * between; of the interface when name is not "". As many as there is room for; "" when
 * there is none. */
int addr_list(const char *name, char *ret, size_t size, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of the use and the token: the port shows nothing of the token. Called by
 * spank_plugin/ticket.c for MASTER_PORT, and by the launchers for TF_CONFIG. */
#include "runtime/contract/port.h"

#include <string.h>

#include "runtime/base/sha256.h"

#define PORT_FIRST 20000u
#define PORT_COUNT 10000u

uint16_t port_derive(const struct token *t, const char *use)
{
    uint8_t sum[SHA256_BYTES];
    struct sha256 s;

    sha256_init(&s);
    sha256_add(&s, use, strlen(use));
    sha256_add(&s, t->key, sizeof(t->key));
    sha256_end(&s, sum);
    return (uint16_t)(PORT_FIRST + ((uint32_t)sum[0] << 8 | sum[1]) % PORT_COUNT);
}

uint16_t port_after(uint16_t first, uint32_t k)
{
    return (uint16_t)(PORT_FIRST + (first - PORT_FIRST + k % PORT_COUNT) % PORT_COUNT);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the children of a rank find it: its hello. Pure. */
#ifndef RUNTIME_CONTROL_ADDRESS_H
#define RUNTIME_CONTROL_ADDRESS_H

#include <stdint.h>

#include "runtime/base/unix.h"
#include "runtime/wire/bytes.h"

/* A rank without children has no address and no port. */
struct control_address {
    char addr[64], unix_name[UNIX_NAME_BYTES]; /* "": none */
    uint16_t port;                             /* 0: none */
};
/* addr:name port:2 unix_name:name */
void address_write(const struct control_address *a, struct strbuf *out);
/* -EPROTO with the rank in the error message. */
int address_read(const uint8_t *p,
                 size_t n,
                 uint32_t rank,
                 struct control_address *ret,
                 struct err *err);

#endif

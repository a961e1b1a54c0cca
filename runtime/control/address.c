/* SPDX-License-Identifier: Apache-2.0 */
/* See address.h. Another rank has sent the bytes, by the rendezvous server. A text is
 * printable, because it enters messages. Called by join.c. */
#include "runtime/control/address.h"

#include <errno.h>
#include <string.h>

void address_write(const struct control_address *a, struct strbuf *out)
{
    bytes_put_name(out, a->addr, sizeof(a->addr));
    bytes_put(out, a->port, 2);
    bytes_put_name(out, a->unix_name, sizeof(a->unix_name));
}

static bool text_is_printable(const char *s)
{
    while (*s > ' ' && *s <= '~')
        s++;
    return *s == '\0';
}

int address_read(const uint8_t *p,
                 size_t n,
                 uint32_t rank,
                 struct control_address *ret,
                 struct err *err)
{
    struct bytes_reader in = {.p = p, .left = n};
    struct control_address a = {.port = 0};
    uint64_t port = 0;

    if (!bytes_get_name(&in, a.addr, sizeof(a.addr)) || !bytes_get(&in, 2, &port)
        || !bytes_get_name(&in, a.unix_name, sizeof(a.unix_name)) || in.left > 0
        || !text_is_printable(a.addr) || !text_is_printable(a.unix_name)
        || (port > 0) != (a.addr[0] != '\0'))
        return err_set(err, -EPROTO, "rank %u sent a malformed greeting", rank);
    a.port = (uint16_t)port;
    *ret = a;
    return 0;
}

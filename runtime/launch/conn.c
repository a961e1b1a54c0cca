/* SPDX-License-Identifier: Apache-2.0 */
/* Called by hub.c. */
#include "runtime/launch/conn.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

struct conn *conn_new(const struct admitted *m, size_t max_payload_bytes)
{
    struct conn *c = mem_zalloc(sizeof(*c));
    int fd = m->fd;

    if (!c) {
        fd_close(&fd);
        return NULL;
    }
    c->worker = -1;
    (void)snprintf(c->address, sizeof(c->address), "%s", m->address);
    channel_init(&c->channel, fd, &m->session, max_payload_bytes, clock_now_ns());
    return c;
}

void conn_free(struct conn *c)
{
    channel_release(&c->channel);
    mem_free(c);
}

void conn_own_address(const struct conn *c, char *ret, size_t size_bytes)
{
    char own[DOOR_ADDRESS_BYTES];

    if (tcp_local_addr(c->channel.conn.fd, own, sizeof(own)) < 0)
        return;
    if (strncmp(own, "127.", 4) != 0 && strcmp(own, "::1") != 0)
        (void)snprintf(ret, size_bytes, "%s", own);
}

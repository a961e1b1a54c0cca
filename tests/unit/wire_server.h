/* SPDX-License-Identifier: Apache-2.0 */
/* A server for tests: admits the first client that proves to have the token. */
#ifndef TESTS_UNIT_WIRE_SERVER_H
#define TESTS_UNIT_WIRE_SERVER_H

#include <poll.h>

#include "runtime/base/fd.h"
#include "runtime/wire/accept.h"

static inline void admit_first(void *arg, const struct admitted *m)
{
    struct admitted *first = arg;
    int fd = m->fd;

    if (first->fd < 0)
        *first = *m;
    else
        fd_close(&fd);
}

/* 0, or -ETIMEDOUT. */
static inline int admit_one(int listen_fd,
                            enum auth_role mine,
                            enum auth_role theirs,
                            const struct auth_id *id,
                            uint64_t deadline_ns,
                            struct admitted *ret)
{
    struct accept_kind kind = {.name = "test", .mine = mine, .theirs = theirs};
    struct acceptor a = {0};
    int rc = acceptor_open(&a, &kind, NULL);

    ret->fd = -1;
    if (rc == 0)
        rc = door_listen(a.door, listen_fd, false, NULL);
    while (rc == 0 && ret->fd < 0) {
        rc = clock_now_ns() < deadline_ns ? 0 : -ETIMEDOUT;
        (void)fd_wait(door_fd(a.door), POLLIN,
                      earlier_ns(deadline_ns, door_next_ns(a.door)));
        acceptor_serve(&a, id, admit_first, ret);
    }
    acceptor_close(&a);
    return ret->fd >= 0 ? 0 : rc;
}

#endif

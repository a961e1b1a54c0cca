/* SPDX-License-Identifier: Apache-2.0 */
/* To preload: listen() returns 0.4 s late, so that strangers find the socket before its
 * peers do. With SLOW_LISTEN_MS it first waits until somebody has connected, at most for
 * that time: on a busy machine strangers need longer. */
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

__attribute__((visibility("default"))) int listen(int fd, int backlog)
{
    const char *limit_ms = getenv("SLOW_LISTEN_MS");
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int (*next)(int, int);
    void *f = dlsym(RTLD_NEXT, "listen");
    int rc;

    memcpy(&next, &f, sizeof(next));
    rc = next(fd, backlog);
    if (limit_ms)
        (void)poll(&p, 1, atoi(limit_ms));
    (void)usleep(400000);
    return rc;
}

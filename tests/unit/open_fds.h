/* SPDX-License-Identifier: Apache-2.0 */
/* The number of open descriptors: the lowest free one does not show a leak behind another
 * descriptor that was closed. */
#ifndef TESTS_UNIT_OPEN_FDS_H
#define TESTS_UNIT_OPEN_FDS_H

#include <fcntl.h>

static inline int open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a peer without the keys sends them: no frame is accepted, and memory is
 * allocated for no more than the largest payload. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/wire/frame.h"
#include "tests/fuzz/fuzz.h"

enum { PAYLOAD_MAX = 5000, INPUT_MAX = 60000 /* fits a socket's buffer */ };

FUZZ_TARGET(frame)
{
    static const struct auth_session session = {{1, 2, 3}, {4, 5, 6}};
    struct frame_conn c;
    struct frame f;
    int fd[2], rc;

    if (n > INPUT_MAX || socketpair(AF_UNIX, SOCK_STREAM, 0, fd) < 0)
        return 0;
    MUST(n == 0 || write(fd[1], data, n) == (ssize_t)n);
    fd_close(&fd[1]);
    frame_open(&c, fd[0], &session, PAYLOAD_MAX);
    while ((rc = frame_recv(&c, &f)) == 0)
        frame_readable(&c);
    MUST(rc == -EBADMSG || rc == -EPIPE);
    MUST(c.in_cap <= 2 * (PAYLOAD_MAX + FRAME_HEADER_BYTES + FRAME_TAG_BYTES));
    frame_release(&c);
    return 0;
}

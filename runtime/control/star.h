/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the star, shared by star.c (traffic) and join.c (connecting) and nobody
 * else. */
#ifndef RUNTIME_CONTROL_STAR_H
#define RUNTIME_CONTROL_STAR_H

#include "runtime/control/control.h"
#include "runtime/control/frame.h"

#define UNIX_NAME_BYTES 40 /* "hvd-" and 32 hex digits */

struct star_peer {
    struct frame_conn conn;
    uint64_t heard_ns;
    bool has_left, is_unix, wants_out;
};

struct control {
    struct control_config cfg;
    int epoll_fd, wake_fd, tcp_fd, unix_fd;
    char addr[64], unix_name[UNIX_NAME_BYTES];
    uint16_t port;
    struct star_peer *peers; /* rank 0: by rank, [0] unused; others: [0] is rank 0 */
    uint32_t n_peers;
    uint64_t pumped_ns, beat_ns, beat_every_ns;
    uint64_t suspect_until_ns; /* 0: no suspicion */
    uint32_t suspect_rank;     /* who has it */
    char suspicion[480], who_ended[480];
    bool has_left, is_ended, is_broken;
    bool is_fresh; /* just joined: frames may wait in the buffers already */
    struct err cause;
};

static inline bool star_is_root(const struct control *c)
{
    return c->cfg.rank == 0;
}
/* Takes the connection over and watches it. */
int star_adopt(struct control *c,
               uint32_t index,
               struct frame_conn *conn,
               bool is_unix,
               struct err *err);

#endif

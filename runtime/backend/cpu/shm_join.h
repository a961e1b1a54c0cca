/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of one host get one segment: the handshake that defines "same host". */
#ifndef RUNTIME_BACKEND_CPU_SHM_JOIN_H
#define RUNTIME_BACKEND_CPU_SHM_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/cpu/wait.h"
#include "runtime/wire/auth.h"

/* A mapped segment and the descriptor that carries our liveness lock. */
struct shm_map {
    int fd;
    void *mem;
    size_t n_bytes;
};
void shm_map_release(struct shm_map *m); /* accepts {-1, NULL, 0} */

struct shm_join {
    const struct auth_id *id;
    const struct waiter *w; /* checked while waiting */
    uint64_t deadline_ns;
    uint32_t max_bytes;    /* of all slots together, see shm_size() */
    uint32_t rank;         /* ours; all ranks here are global */
    uint32_t n;            /* candidates */
    uint32_t line;         /* our index among them */
    const uint32_t *ranks; /* [n] their global ranks, ascending */
};

/* Lowest rank: creates the segment and passes it to each candidate that proves to be a
 * member, until all have it or the deadline has passed. ret_ok[n]: which ranks have it
 * (ours: true). */
int shm_join_lead(const struct shm_join *j,
                  int listen_fd,
                  struct shm_map *ret,
                  bool *ret_ok,
                  struct err *err);
/* The other ranks. */
int shm_join_follow(const struct shm_join *j,
                    const char *name,
                    struct shm_map *ret,
                    struct err *err);
/* Whether the process that holds line is alive. The kernel drops the lock when the
 * process exits in any way, and forked children do not inherit it. Not for lines of our
 * own process. */
bool shm_is_alive(const struct shm_map *m, uint32_t line);

#endif

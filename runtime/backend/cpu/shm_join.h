/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of one host come to one segment: the handshake that defines "same
 * host". */
#ifndef RUNTIME_BACKEND_CPU_SHM_JOIN_H
#define RUNTIME_BACKEND_CPU_SHM_JOIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/cpu/wait.h"
#include "runtime/rendezvous/auth.h"

struct shm_map { /* a mapped segment and the descriptor that carries our liveness lock
                  */
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
    uint32_t rank;         /* ours, global as they all */
    uint32_t n;            /* candidates */
    uint32_t line;         /* our index among them */
    const uint32_t *ranks; /* [n] their global ranks, ascending */
};

/* Listens on an abstract Unix socket with a random name; ret_name as in struct peer. */
int shm_listen(int *ret_fd, char *ret_name, size_t name_bytes, struct err *err);
/* Lowest rank: makes the segment, passes it to whoever of the others proves to be one
 * of us until all have it or the deadline is over. ret_ok[n]: who has it (we: true). */
int shm_join_lead(const struct shm_join *j,
                  int listen_fd,
                  struct shm_map *ret,
                  bool *ret_ok,
                  struct err *err);
/* The others. */
int shm_join_follow(const struct shm_join *j,
                    const char *name,
                    struct shm_map *ret,
                    struct err *err);
/* Does the process that holds line still live? The lock is the kernel's: it goes with
 * the process, however it ends, and forked children do not keep it. Not for lines of
 * our own process. */
bool shm_is_alive(const struct shm_map *m, uint32_t line);

#endif

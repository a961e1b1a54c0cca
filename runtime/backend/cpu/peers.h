/* SPDX-License-Identifier: Apache-2.0 */
/* The data that ranks exchange at the start (the describe blob), and what follows from
 * it: which ranks may share memory. */
#ifndef RUNTIME_BACKEND_CPU_PEERS_H
#define RUNTIME_BACKEND_CPU_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define PEER_HOST_BYTES 64
#define PEER_ADDR_BYTES 64
#define PEER_SOCK_BYTES 48

/* One rank's blob; sent as raw bytes (all ranks of a world have one byte order). */
struct peer {
    uint32_t magic, version;
    uint8_t host_key[32];       /* equal keys: worth trying to share memory */
    char host[PEER_HOST_BYTES]; /* for messages; printable, NUL-terminated */
    char sock[PEER_SOCK_BYTES]; /* abstract Unix socket, without the leading NUL; "":
                                   none */
    char addr[PEER_ADDR_BYTES]; /* TCP, with port; "" and 0 in a world of one */
    uint64_t pid, pid_ns;       /* equal in both: threads of one process (tests) */
    uint16_t port;
    uint8_t wants_shm;
    uint8_t data_check; /* enum data_check */
    uint8_t pad[4];
};

/* Fills all but sock, addr, port and data_check. Reads HVD_TRANSPORT, HVD_HOST_ID and
 * HOROVOD_HOSTNAME. */
int peer_describe(struct peer *ret, struct err *err);
/* Checks a blob from outside; the error message names the rank. */
int peer_parse(
    const uint8_t *blob, uint32_t n, uint32_t rank, struct peer *ret, struct err *err);
/* -EINVAL: one of all[n] has another data_check than the first; the error message is the
 * same on all ranks. global: as in struct backend_env. */
int peers_check_data(const struct peer *all,
                     uint32_t n,
                     const uint32_t *global,
                     struct err *err);
bool peer_may_share(const struct peer *a, const struct peer *b);
bool peer_same_process(const struct peer *a, const struct peer *b);

#endif

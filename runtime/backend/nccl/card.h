/* SPDX-License-Identifier: Apache-2.0 */
/* Before NCCL is called, each member of a communicator sends a card to all members. All
 * of them compare all cards and get the same result: equal terms, or one error message.
 * Pure. */
#ifndef RUNTIME_BACKEND_NCCL_CARD_H
#define RUNTIME_BACKEND_NCCL_CARD_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"

#define GPU_CARD_BYTES      512
#define GPU_CARD_VERSION    4
#define GPU_CARD_MAX_PARKED (1u << 20) /* members of a parked communicator */

/* First NCCL whose ncclCommRevoke keeps a communicator usable for ncclCommShrink. */
#define NCCL_PARKS          22807

struct gpu_card {
    uint32_t version; /* GPU_CARD_VERSION; with another version nothing else is read */
    int32_t nccl, driver; /* version codes; 0: not loaded */
    uint8_t uuid[16];     /* of the GPU or MIG instance; zeros: unknown */
    uint64_t host_hash;   /* equal: one host for NCCL */
    /* Member 0's count. */
    uint64_t direct_bytes;
    bool uses_graphs, registers, is_deterministic;
    /* All members must have it. */
    bool may_share_gpu, has_graphs;
    uint8_t n_streams; /* at most; the minimum is used */
    /* Size of its fusion buffer; 0: it has none; UINT64_MAX: it will grow. The minimum
     * is used. */
    uint64_t fusion_bytes;
    /* The communicator that this member kept over a failure; size 0: none. */
    uint8_t parked_id[16];
    uint32_t parked_rank, parked_size;
    char gpu[48];      /* its name */
    char problem[256]; /* "": this member can move GPU tensors */
};

void gpu_card_write(const struct gpu_card *c, uint8_t ret[GPU_CARD_BYTES]);
/* -EPROTO: not a card. A card of another version is read as that number and zeros, so
 * that gpu_cards_judge reports it on all members alike. */
int gpu_card_read(const uint8_t p[GPU_CARD_BYTES],
                  struct gpu_card *ret,
                  struct err *err);

enum comm_how { COMM_FRESH, COMM_SHRINK };

struct comm_terms {
    enum comm_how how;
    uint64_t direct_bytes;
    bool registers, is_deterministic;
    bool uses_graphs; /* requested by member 0, and supported by every driver */
    uint32_t n_streams;
    uint64_t fusion_bytes; /* more is packed only if it must be; UINT64_MAX: no limit */
    uint32_t fusion_member; /* that has the smallest buffer */
    uint32_t *excluded;     /* missing members of the parked one, ascending; NULL */
    uint32_t n_excluded;
};
void comm_terms_release(struct comm_terms *t);

/* Of members v[n]; ranks[n]: their global ranks, for messages; hosts[n]: names of
 * their hosts, or NULL. -EPROTO, -ENODEV, -ENOTSUP, -EBUSY with an error message that
 * is the same on every member; -ENOMEM. */
int gpu_cards_judge(const struct gpu_card *v,
                    const uint32_t *ranks,
                    const char *const *hosts,
                    uint32_t n,
                    struct comm_terms *ret,
                    struct err *err);

/* "2.27.5" of 22705; returns buf. */
const char *nccl_version_text(int code, char buf[24]);
/* "GPU-01234567-89ab-cdef-0123-456789abcdef"; returns buf. */
const char *gpu_uuid_text(const uint8_t uuid[16], char buf[48]);

#endif

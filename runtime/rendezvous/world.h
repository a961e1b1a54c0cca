/* SPDX-License-Identifier: Apache-2.0 */
/* The blobs of the current round of one world. Pure: connections are opaque owners,
 * time is an argument. Used by the server's thread only. */
#ifndef RUNTIME_RENDEZVOUS_WORLD_H
#define RUNTIME_RENDEZVOUS_WORLD_H

#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/rendezvous/route.h"

/* A payload that is sent on several connections; hashed once. */
struct rdv_msg {
    uint32_t n_refs, n;
    uint8_t digest[SHA256_BYTES];
    uint8_t data[];
};
struct rdv_msg *rdv_msg_new(uint32_t n); /* with one reference; NULL: out of memory */
void rdv_msg_seal(struct rdv_msg *m);    /* after data is complete */
void rdv_msg_unref(struct rdv_msg *m);   /* accepts NULL */

struct rdv_member {
    void *owner;   /* its connection, or that of its relay; NULL while disconnected */
    uint32_t pass; /* of its last JOIN; 0: none */
    uint8_t *blob; /* of the current round, valid when has_put */
    uint32_t n;
    bool has_put, was_seen;
    bool is_blamed;       /* it was missing when `blame` was written */
    uint64_t deadline_ns; /* of its PUT; UINT64_MAX: none */
    uint32_t wait_ms;
};
struct rdv_world {
    struct rdv_world *next; /* list of the worlds of a job: parts.h */
    uint32_t *ranks;        /* ranks of the members in the job; NULL: 0 to size - 1 */
    struct rdv_member *v;
    struct rdv_route route;
    uint32_t size, round, n_put, n_seen, n_passes;
    uint64_t n_bytes; /* sum of the blobs of this round */
    /* while n_put > 0: the time of the first blob, and of the next line about ranks that
     * are missing */
    uint64_t since_ns, line_ns;
    char blame[400]; /* "": none */
};

int rdv_world_init(struct rdv_world *w, uint32_t size, struct err *err);
uint32_t rdv_world_rank(const struct rdv_world *w, uint32_t i); /* rank in the job */
void rdv_world_release(struct rdv_world *w);
/* A JOIN of this member: its earlier connection counts no longer, and its blob of this
 * round is withdrawn. *ret_old is its owner, or NULL. Returns the pass. */
uint32_t rdv_world_admit(struct rdv_world *w, uint32_t rank, void **ret_old);
/* The member is connected, after rdv_world_admit. */
void rdv_world_join(struct rdv_world *w, uint32_t rank, void *owner);
/* Its connection is closed: its blob of this round is withdrawn. */
void rdv_world_leave(struct rdv_world *w, uint32_t rank, const void *owner);
/* -EPROTO (second put of a round), -ESTALE (round is complete), -E2BIG, -ENOMEM. */
int rdv_world_put(struct rdv_world *w,
                  uint32_t rank,
                  const struct rdv_put *put,
                  uint64_t now_ns,
                  struct err *err);
void rdv_world_withdraw(struct rdv_world *w, uint32_t rank);
bool rdv_world_is_full(const struct rdv_world *w);
/* The ALL payload of the full round; starts the next round. NULL: out of memory,
 * nothing changed. */
struct rdv_msg *rdv_world_finish(struct rdv_world *w);
/* "ranks 1, 3-5 of 8", of a part "of [0, 1, 3-5]", and, where useful, which of them
 * were lost or are late. Members whose relay is late are counted, not named. */
void rdv_world_missing(const struct rdv_world *w, char *ret, size_t size_bytes);
/* The same for a member whose deadline has passed. Until a rank that is in it puts, it is
 * the list of the first member that gave up: those after it must not blame it for that. */
const char *rdv_world_blame(struct rdv_world *w);
/* true: a line that names the missing ranks is due now (contract/waiting.h); the next
 * one is due at line_ns. */
bool rdv_world_needs_line(struct rdv_world *w, uint64_t now_ns);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the members of a world meet: an all-gather of small blobs, in numbered rounds,
 * through one server that any launcher embeds (hvd-agent of worker 0, horovodrun,
 * srun's plugin, or rank 0 itself under a foreign launcher). Every member sends its
 * blob; when all have, everyone gets all. Connections are authenticated (auth.h,
 * ROLE_RENDEZVOUS_*). */
#ifndef RUNTIME_RENDEZVOUS_RENDEZVOUS_H
#define RUNTIME_RENDEZVOUS_RENDEZVOUS_H

#include "runtime/rendezvous/auth.h"

#define RDV_MAX_BLOB_BYTES 65536

/* --- server: one background thread, made by start and joined by stop
 * ------------------------- */
struct rdv_server;

/* Serves worlds of `size` members of this job and generation on listen_fd (taken over
 * on success). Members may come late; the server waits as long as it lives. A member
 * that connects again (restarted before its round ended) replaces its earlier self; a
 * member whose rank is out of range or whose size differs is refused with a sentence.
 * All threads and descriptors are CLOEXEC and signal-blocked, so that it can live in
 * srun or Python. */
int rdv_server_start(int listen_fd,
                     const struct auth_id *id,
                     uint32_t size,
                     struct rdv_server **ret,
                     struct err *err);
/* How many distinct members have checked in to round 0 so far; any thread. */
uint32_t rdv_server_joined(const struct rdv_server *s);
/* Ends the current and all later rounds with this cause: every waiting member gets it
 * as its error. For a launcher that saw a rank die before the world was formed. Any
 * thread. */
void rdv_server_fail(struct rdv_server *s, const char *cause);
/* Bounded; joins the thread. Accepts NULL, and does nothing in a forked child, which
 * has no such thread. */
void rdv_server_stop(struct rdv_server *s);

/* --- client
 * -----------------------------------------------------------------------------------
 */
struct rdv_client;

/* Connects (with retry until the deadline) and authenticates. host: a name, an address,
 * or several of the same server with commas between. */
int rdv_client_connect(const char *host,
                       uint16_t port,
                       const struct auth_id *id,
                       uint32_t rank,
                       uint32_t size,
                       uint64_t deadline_ns,
                       struct rdv_client **ret,
                       struct err *err);
/* As above for a world of a part of the members: part has n_part ranks, in the order of
 * their places in that world, rank among them (NULL, 0: all). Parts may meet at the
 * same time, each in rounds of its own. The server refuses two members that wait for
 * each other with different lists. part is used until this returns. */
int rdv_client_connect_part(const char *host,
                            uint16_t port,
                            const struct auth_id *id,
                            uint32_t rank,
                            uint32_t size,
                            const uint32_t *part,
                            uint32_t n_part,
                            uint64_t deadline_ns,
                            struct rdv_client **ret,
                            struct err *err);
/* One round: gives blob (n <= RDV_MAX_BLOB_BYTES), gets everyone's in rank order.
 * ret_blobs is an array of size pointers into one allocation, ret_sizes the lengths;
 * free *ret_blobs with mem_free (one call frees both arrays and all blobs). -ETIMEDOUT
 * with "waited 30 s for ranks 1, 3, 5 (of 8)": the server tells who is missing;
 * -ECANCELED with the cause given to rdv_server_fail. */
int rdv_client_exchange(struct rdv_client *c,
                        const void *blob,
                        uint32_t n,
                        uint64_t deadline_ns,
                        uint8_t ***ret_blobs,
                        uint32_t **ret_sizes,
                        struct err *err);
/* A server counts its rounds on over worlds, so that a member that was restarted after
 * the others had met is told so. A process that forms another world with the same
 * server therefore starts where its last one ended. */
uint32_t rdv_client_round(const struct rdv_client *c); /* the next one */
void rdv_client_start_at(struct rdv_client *c,
                         uint32_t round); /* before any exchange */
/* Address of our end of the connection: the interface is the route to the peer. */
const char *rdv_client_local_addr(const struct rdv_client *c);
void rdv_client_close(struct rdv_client *c); /* accepts NULL */

#endif

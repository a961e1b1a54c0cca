/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous of the members of a world: an all-gather of small blobs in numbered
 * rounds, through one server. The server is embedded in the launcher: hvd-agent of
 * worker 0, horovodrun, srun's plugin, or rank 0 itself under a foreign launcher. Every
 * member sends its blob; when all have sent theirs, each receives all. Connections are
 * authenticated (auth.h, ROLE_RENDEZVOUS_*). */
#ifndef RUNTIME_RENDEZVOUS_RENDEZVOUS_H
#define RUNTIME_RENDEZVOUS_RENDEZVOUS_H

#include "runtime/wire/auth.h"

#define RDV_MAX_BLOB_BYTES 65536

/* --- server: one background thread, started by start and joined by stop --- */
struct rdv_server;

/* "waiting for rank 1 of 2", with all ranks that are missing; valid during the call. */
typedef void (*rdv_report_fn)(const char *text, uint64_t waited_s);
/* Logs text as a warning. */
void rdv_log_waiting(const char *text, uint64_t waited_s);

/* Serves worlds of `size` members of this job and generation on listen_fd (taken over
 * on success). There is no deadline for members to join. A member that connects again
 * (restarted before its round was complete) replaces its earlier connection; a member
 * whose rank is out of range or whose size differs is refused with an error message.
 * All descriptors are CLOEXEC and the thread blocks all signals, so that the server can
 * run in srun or Python. The thread calls report (NULL: none) while members
 * wait for other ones, after 10 s and then once a minute: one call for a world, whatever
 * its size. */
int rdv_server_start(int listen_fd,
                     const struct auth_id *id,
                     uint32_t size,
                     rdv_report_fn report,
                     struct rdv_server **ret,
                     struct err *err);
/* The number of distinct members that have joined round 0 so far; any thread. */
uint32_t rdv_server_joined(const struct rdv_server *s);
/* Fails the current and all later rounds: every waiting member receives this cause as
 * its error. For a launcher that saw a rank exit before the world was formed. Any
 * thread. */
void rdv_server_fail(struct rdv_server *s, const char *cause);
/* Bounded; joins the thread. Accepts NULL; does nothing in a forked child, which has no
 * such thread. */
void rdv_server_stop(struct rdv_server *s);

/* --- client --- */
struct rdv_client;

/* What a member looks for. The caller keeps what the pointers name until the call
 * returns. */
struct rdv_seek {
    /* a name, an address, or several addresses of the same server separated by commas */
    const char *host;
    uint16_t port;
    const struct auth_id *id;
    uint32_t rank, size; /* in the job */
    /* The ranks of the world in the order of their places in it, including rank; NULL, 0:
     * all. Parts may meet at the same time, each in its own rounds. The server refuses
     * two members that wait for each other with different lists. */
    const uint32_t *part;
    uint32_t n_part;
    /* The first round. The server continues to count over successive worlds, so that a
     * member that was restarted after the other ranks have met is refused. A process that
     * forms another world with the same server therefore starts at the round after its
     * last one. */
    uint32_t round;
    bool is_leaf; /* does not relay: this process serves, and has connections enough */
};
/* Connects (with retry until the deadline) and authenticates. In a world of more than 16
 * the connection may lead to another member, and others may be connected to this one; so
 * all members of such a world should begin their first exchange soon. */
int rdv_client_open(const struct rdv_seek *seek,
                    uint64_t deadline_ns,
                    struct rdv_client **ret,
                    struct err *err);
/* The same for a world of all ranks, from round 0 on. */
int rdv_client_connect(const char *host,
                       uint16_t port,
                       const struct auth_id *id,
                       uint32_t rank,
                       uint32_t size,
                       uint64_t deadline_ns,
                       struct rdv_client **ret,
                       struct err *err);
/* One round: sends blob (n <= RDV_MAX_BLOB_BYTES), receives all blobs in rank order.
 * ret_blobs is an array of size pointers into one allocation, ret_sizes the lengths;
 * free *ret_blobs with mem_free (one call frees both arrays and all blobs). -ETIMEDOUT
 * with "waited 600 s for ranks 1, 3, 5 of 8", the server's list of missing ranks;
 * -ECANCELED with the cause given to rdv_server_fail. */
int rdv_client_exchange(struct rdv_client *c,
                        const void *blob,
                        uint32_t n,
                        uint64_t deadline_ns,
                        uint8_t ***ret_blobs,
                        uint32_t **ret_sizes,
                        struct err *err);
uint32_t rdv_client_round(const struct rdv_client *c); /* the next one */
/* Our address on the route to the server. */
const char *rdv_client_local_addr(const struct rdv_client *c);
void rdv_client_close(struct rdv_client *c); /* accepts NULL */

#endif

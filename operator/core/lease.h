/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election on one coordination.k8s.io/v1 Lease, as a state machine. Time is
 * that of the local monotonic clock. The caller sends what lease_next() returns and
 * passes the answer to lease_answered(). Pure, one thread. */
#ifndef OPERATOR_CORE_LEASE_H
#define OPERATOR_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"

#define LEASE_IDENTITY_SIZE 128

struct lease_config {
    const char *identity; /* unique for each process; lives as long as the lease */
    uint64_t duration_ns; /* others wait this long after its last change */
    uint64_t renew_ns;    /* the holder leads this long after sending a renewal */
    uint64_t retry_ns;    /* between two renewals; a quarter of it between reads */
};

/* The fields of a Lease object. Wrong or missing fields read as empty. */
struct lease_record {
    char holder[LEASE_IDENTITY_SIZE]; /* "": free */
    char version[64];                 /* metadata.resourceVersion */
    char acquired[40];                /* spec.acquireTime, kept when renewing */
    uint64_t duration_ns;             /* 0: not set */
    uint32_t n_transitions;
};

enum lease_verb { LEASE_WAIT, LEASE_GET, LEASE_CREATE, LEASE_UPDATE };
/* FAILED: no usable answer; whether the request was carried out is not known. */
enum lease_answer { LEASE_OK, LEASE_ABSENT, LEASE_CONFLICT, LEASE_FAILED };

struct lease {
    struct lease_config config;
    struct lease_record seen; /* the last one read or written */
    uint64_t changed_ns;      /* when "seen" was first read; 0: nothing yet */
    uint64_t lead_until_ns;   /* 0: this process does not lead */
    uint64_t sent_ns, due_ns;
    enum lease_verb next; /* what is due at due_ns */
    bool is_open;         /* sent, not yet answered */
    bool is_giving_up;    /* releasing; this process does not lead any more */
    bool is_done;         /* released, or nothing to release */
};

void lease_init(struct lease *l, const struct lease_config *config);
/* The request to send now. WAIT: none before lease_next_ns. */
enum lease_verb lease_next(const struct lease *l, uint64_t now_ns);
uint64_t lease_next_ns(const struct lease *l); /* UINT64_MAX while a request is open */
void lease_sent(struct lease *l, uint64_t now_ns); /* just before the request is sent */
/* record: the object of an OK. random32 spreads the tries of several processes. */
void lease_answered(struct lease *l,
                    enum lease_answer answer,
                    const struct lease_record *record,
                    uint64_t now_ns,
                    uint32_t random32);
/* May this process act now? Never true for two processes at the same time, provided
 * that the rates of their clocks differ by less than duration / renew and nobody
 * deletes the Lease.
 *
 * If the Lease is deleted: the holder notices at its next renewal and does not lead
 * until it has recreated the Lease. A process that has seen the Lease waits until
 * duration_ns after the last change that it saw, as if the Lease existed. A process
 * that starts just then has not seen it and creates it at once, as at a first start. It
 * and the former holder may both lead until that one's next renewal, at most until
 * renew_ns after its last renewal was sent. */
bool lease_leads(const struct lease *l, uint64_t now_ns);
void lease_give_up(struct lease *l, uint64_t now_ns); /* continue until is_done */

void lease_read(const struct node *object, struct lease_record *ret);
/* Writes the Lease of a CREATE or UPDATE into object, which is the one last read (its
 * other fields stay) or an empty one. */
void lease_write(const struct lease *l,
                 uint64_t wall_us,
                 struct build *b,
                 struct node *object);

#endif

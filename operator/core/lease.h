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
#define LEASE_MAX_BYTES     (1u << 20) /* with fields of other clients */
#define LEASE_ARENA_BYTES   (16u << 20)

struct lease_config {
    const char *identity; /* unique for each process; must outlive the struct lease */
    uint64_t duration_ns; /* other processes wait this long after the last change */
    uint64_t renew_ns;    /* the holder leads this long after it has sent a renewal */
    uint64_t retry_ns;    /* time between two renewals; reads: a quarter of it */
};

/* The fields of a Lease object. Wrong or missing fields read as empty. */
struct lease_record {
    char holder[LEASE_IDENTITY_SIZE]; /* "": no process holds the Lease */
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
    struct lease_record seen; /* the record that was last read or written */
    uint64_t changed_ns;      /* when `seen` was first read; 0: nothing was read */
    uint64_t lead_until_ns;   /* 0: this process does not lead */
    uint64_t sent_ns, due_ns; /* the last request; the next one */
    enum lease_verb next;     /* the next request */
    bool is_open;             /* a request was sent and is not answered yet */
    bool is_giving_up;        /* releasing the Lease; this process does not lead */
    bool is_done;             /* released, or nothing to release */
};

void lease_init(struct lease *l, const struct lease_config *config);
/* The request to send now. LEASE_WAIT: send none before lease_next_ns. */
enum lease_verb lease_next(const struct lease *l, uint64_t now_ns);
uint64_t lease_next_ns(const struct lease *l); /* UINT64_MAX while a request is open */
void lease_sent(struct lease *l, uint64_t now_ns); /* just before the request is sent */
/* record: the object of LEASE_OK. random32 spreads the requests of several processes. */
void lease_answered(struct lease *l,
                    enum lease_answer answer,
                    const struct lease_record *record,
                    uint64_t now_ns,
                    uint32_t random32);
/* True if this process may act now. It is never true in two processes at the same time,
 * provided that the rates of their clocks differ by less than duration / renew and the
 * Lease is not deleted.
 *
 * If the Lease is deleted: the holder notices at its next renewal and does not lead
 * until it has recreated the Lease. A process that has seen the Lease waits until
 * duration_ns after the last change that it saw, as if the Lease existed. A process
 * that starts after the deletion has not seen the Lease and creates it at once. It and
 * the former holder may both lead until the former holder's next renewal, at most until
 * renew_ns after that one's last renewal was sent. */
bool lease_leads(const struct lease *l, uint64_t now_ns);
void lease_give_up(struct lease *l, uint64_t now_ns); /* continue until is_done */

void lease_read(const struct node *object, struct lease_record *ret);
/* The same from its JSON. -E2BIG above LEASE_MAX_BYTES, or an error of json_read;
 * -EINVAL: not an object. *ret is then empty. */
int lease_parse(const char *text, size_t n, struct lease_record *ret);
/* Writes the Lease of a CREATE or UPDATE into object, which is the object last read (its
 * other fields are kept) or an empty one. */
void lease_write(const struct lease *l,
                 uint64_t wall_us,
                 struct build *b,
                 struct node *object);

#endif

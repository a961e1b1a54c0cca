/* SPDX-License-Identifier: Apache-2.0 */
/* Leader election on one coordination.k8s.io/v1 Lease, as a state machine. Time comes
 * in from the local monotonic clock; the caller sends what lease_next() says and tells
 * what came back. Pure, one thread. */
#ifndef OPERATOR_CORE_LEASE_H
#define OPERATOR_CORE_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"

#define LEASE_IDENTITY_SIZE 128

struct lease_config {
    const char *identity; /* unique for each process; lives as long as the lease */
    uint64_t duration_ns; /* for so long after its last change nobody else takes it */
    uint64_t renew_ns;    /* we lead for so long after the last renewal was sent */
    uint64_t retry_ns;    /* between two renewals; a quarter of it between looks */
};

/* What of a Lease object matters. Wrong or missing fields read as empty. */
struct lease_record {
    char holder[LEASE_IDENTITY_SIZE]; /* "": free */
    char version[64];                 /* metadata.resourceVersion */
    char acquired[40];                /* spec.acquireTime, kept when renewing */
    uint64_t duration_ns;             /* 0: not said */
    uint32_t n_transitions;
};

enum lease_verb { LEASE_WAIT, LEASE_GET, LEASE_CREATE, LEASE_UPDATE };
/* FAILED: no answer, or one that says nothing; whether it was done is not known. */
enum lease_answer { LEASE_OK, LEASE_ABSENT, LEASE_CONFLICT, LEASE_FAILED };

struct lease {
    struct lease_config config;
    struct lease_record seen; /* the last one read or written */
    uint64_t changed_ns;      /* when we first saw seen as it is; 0: nothing seen yet */
    uint64_t lead_until_ns;   /* 0: we do not lead */
    uint64_t sent_ns, due_ns;
    enum lease_verb next; /* what is due at due_ns */
    bool is_open;         /* it was sent, its answer is awaited */
    bool is_giving_up;    /* asked to release; we do not lead from then on */
    bool is_done;         /* released, or nothing to release */
};

void lease_init(struct lease *l, const struct lease_config *config);
/* What is to be sent now. WAIT: nothing before lease_next_ns. */
enum lease_verb lease_next(const struct lease *l, uint64_t now_ns);
uint64_t lease_next_ns(const struct lease *l); /* UINT64_MAX while an answer is due */
void lease_sent(struct lease *l, uint64_t now_ns); /* just before it goes out */
/* record: the object of an OK. random32 spreads the tries of several processes. */
void lease_answered(struct lease *l,
                    enum lease_answer answer,
                    const struct lease_record *record,
                    uint64_t now_ns,
                    uint32_t random32);
/* May we act now? Never true for two processes at once, as long as their clocks run at
 * rates that differ by less than duration / renew, and nobody deletes the Lease.
 *
 * When somebody does: the holder finds out when it renews next, and does not lead until
 * it has made the Lease anew. Who had seen the Lease waits until duration_ns after the
 * last change that it saw, as if it were there. But a process that has not seen it, one
 * that starts just then, makes it at once, since a first start looks the same: it and
 * the former holder may both lead until that one renews next, at most until renew_ns
 * after its last renewal was sent. */
bool lease_leads(const struct lease *l, uint64_t now_ns);
void lease_give_up(struct lease *l, uint64_t now_ns); /* then go on until is_done */

void lease_read(const struct node *object, struct lease_record *ret);
/* The Lease to be sent for CREATE or UPDATE: changes object, which is the one last read
 * (its other fields stay) or an empty one. */
void lease_write(const struct lease *l,
                 uint64_t wall_us,
                 struct build *b,
                 struct node *object);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher of an elastic job that does what its test says: it listens for processes,
 * serves the rendezvous of each world, and forms, breaks and announces. All processes are
 * on one host. Of hvd_membership_test and hvd_elastic_test, and of the program
 * elastic-leader for the Python tests. One thread. */
#ifndef TESTS_LIB_ELASTIC_LEADER_H
#define TESTS_LIB_ELASTIC_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/contract/token.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/wire/member_message.h"

enum { LEADER_MAX = 16, LEADER_WORLDS = 64 };
#define LEADER_JOB "unit/test"

struct leader {
    int listen_fd;
    char name[UNIX_NAME_BYTES];
    struct token token;
    struct leader_member {
        int fd; /* -1: none */
        bool is_known;
        uint32_t slot;
    } v[LEADER_MAX];
    struct rdv_server *servers[LEADER_WORLDS]; /* until the end: members may be late */
    uint32_t n_servers;
};

enum leader_event_type { LEADER_NOTHING, LEADER_MESSAGE, LEADER_GONE };
struct leader_event {
    enum leader_event_type type;
    uint32_t slot;
    struct member_message message;
};

int leader_open(struct leader *l, const char *token_file, struct err *err);
/* also_fd: -1, or a descriptor whose input ends the wait, too. A first message that is
 * not READY, and whatever is malformed, counts as the end of the process. */
struct leader_event leader_next(struct leader *l, int also_fd, uint64_t deadline_ns);
/* Only: starts the rendezvous, and returns its port. */
int leader_serve(struct leader *l,
                 uint32_t generation,
                 uint32_t size,
                 uint16_t *ret_port);
void leader_send(struct leader *l, uint32_t slot, const struct member_message *m);
/* The world of these slots, in the order of their ranks. */
int leader_form(struct leader *l,
                uint32_t generation,
                const uint32_t *slots,
                uint32_t n);
/* Says so to all, and fails the rendezvous of the last world. */
void leader_break(struct leader *l, uint32_t generation, const char *why);
void leader_notify(struct leader *l, uint32_t generation, uint32_t change);
void leader_close(struct leader *l);

#endif

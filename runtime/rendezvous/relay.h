/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a large world relays for those below it: it listens, passes their frames
 * to its own connection to the rendezvous, and what comes down to them. It has no thread:
 * it works during relay_turn. Used by client.c. */
#ifndef RUNTIME_RENDEZVOUS_RELAY_H
#define RUNTIME_RENDEZVOUS_RELAY_H

#include "runtime/rendezvous/rdv_wire.h"
#include "runtime/wire/frame.h"

struct rdv_relay;

/* Listens, on all addresses; size: of the world. id stays valid until relay_free. */
int relay_new(const struct auth_id *id,
              uint32_t size,
              struct rdv_relay **ret,
              struct err *err);
uint16_t relay_port(const struct rdv_relay *r);
/* This member is connected by `up`, until relay_detach. 0 or -errno. */
int relay_attach(struct rdv_relay *r, struct frame_conn *up);
/* Before `up` is closed. Closes the connections of all members below, which come back by
 * another way. */
void relay_detach(struct rdv_relay *r);
/* Passes frames up; returns when something has happened or at until_ns. Negative: the
 * connection has lost a frame. */
int relay_turn(struct rdv_relay *r, uint64_t until_ns);
/* A round's answer, for all members below. -ENOMEM. */
int relay_send_all(struct rdv_relay *r, const struct frame *f);
/* A refusal of another member. */
void relay_refuse(struct rdv_relay *r, const struct rdv_refused *refused);
/* The connection does not answer: all members below fail by this text. */
void relay_refuse_all(struct rdv_relay *r, const char *text);
/* Sends what is unsent to the members below. */
void relay_flush(struct rdv_relay *r, uint64_t until_ns);
void relay_free(struct rdv_relay *r); /* accepts NULL */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of a host's agent to horovodrun, and the messages that the agent sends
 * (core/errand.h). Sending never blocks and never fails. One thread. */
#ifndef RUNTIME_LAUNCH_UPLINK_H
#define RUNTIME_LAUNCH_UPLINK_H

#include "runtime/launch/channel.h"
#include "runtime/launch/core/errand.h"
#include "runtime/launch/core/verdict.h"

#define UPLINK_NOTE_MAX_BYTES (64u << 10)

struct uplink {
    struct channel channel;
    bool is_open, has_job;
    uint32_t host;        /* whose messages these are */
    const char *name;     /* of the host; "-" until it is known */
    int64_t credit_bytes; /* of output that may be sent */
};

void uplink_open(struct uplink *u, const struct channel *channel); /* takes it over */
/* Another connection, with the same name and host, of an uplink that is closed. Takes
 * ownership of the channel. */
void uplink_replace(struct uplink *u, const struct channel *channel);
void uplink_close(struct uplink *u); /* idempotent */
void uplink_set_host(struct uplink *u, uint32_t host);
/* A valid JOB has come: the host's name is known, and output may be sent. Borrows name. */
void uplink_begin_job(struct uplink *u, const char *name);
/* Sends a message of another host unchanged. */
void uplink_forward(struct uplink *u, uint8_t type, const void *p, size_t n);
void uplink_send(struct uplink *u, enum errand_type type, const struct strbuf *b);
void uplink_report(struct uplink *u, const struct report *r);
/* Reports a failure that no rank caused. */
void uplink_fail(struct uplink *u, int code, int sig, const char *why);
void uplink_fail_signal(struct uplink *u, int sig); /* that this agent received */
void uplink_note(struct uplink *u, const char *text);
/* For struct output_forward; arg: the uplink. */
void uplink_put_output(void *arg, uint32_t rank, int which, const char *p, size_t n);
bool uplink_output_is_held(const void *arg);
void uplink_add_credit(struct uplink *u, uint32_t n_bytes);

#endif

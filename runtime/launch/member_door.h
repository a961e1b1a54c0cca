/* SPDX-License-Identifier: Apache-2.0 */
/* Where the processes of an elastic job on this host connect (wire/member_message.h).
 * One thread; never blocks. */
#ifndef RUNTIME_LAUNCH_MEMBER_DOOR_H
#define RUNTIME_LAUNCH_MEMBER_DOOR_H

#include "runtime/base/err.h"
#include "runtime/base/unix.h"
#include "runtime/wire/member_message.h"

/* A message of the i-th process. p is the message, m its content. */
typedef void (*member_door_fn)(
    void *arg, uint32_t i, const struct member_message *m, const uint8_t *p, size_t n);
struct member_door;

/* For n processes. */
int member_door_open(uint32_t n,
                     member_door_fn on_message,
                     void *arg,
                     struct member_door **ret,
                     struct err *err);
void member_door_close(struct member_door *d); /* accepts NULL */
const char *member_door_name(const struct member_door *d);
/* The i-th process is now this one, by its HVD_ELASTIC. */
void member_door_expect(struct member_door *d,
                        uint32_t i,
                        uint32_t slot,
                        uint32_t incarnation);
/* Nothing is sent if the process is not connected. */
void member_door_send(struct member_door *d, uint32_t i, const void *p, size_t n);
int member_door_fd(const struct member_door *d); /* to poll for POLLIN */
void member_door_serve(struct member_door *d);

#endif

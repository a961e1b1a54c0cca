/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a process of an elastic job and the launcher of its host (horovodrun or
 * hvd-agent). Pure. Each is one packet of a Unix socket (SOCK_SEQPACKET, abstract name),
 * at which the launcher listens and to which the process connects in its first hvd_init.
 * Only processes of the launcher's user may connect (SO_PEERCRED).
 *
 *   READY    to launcher   slot:4 incarnation:4 generation:4
 *                          the process waits for a world later than generation, the last
 *                          one that it was in (0: none). The first message, and again
 *                          each time that it waits
 *   COMMIT   to launcher   generation:4          the members of that world have saved
 *                                                their state
 *   ENDING   to launcher   generation:4 why:str  the process leaves that world because it
 *                                                has failed; its exit may take a while
 *   FORM     to process    generation:4 rank:4 size:4 local_rank:4 local_size:4
 *                          cross_rank:4 cross_size:4 n_new:4 rdv_port:4 rdv_host:str
 *                          the process is in this world
 *   BREAK    to process    generation:4 why:str  that world is broken
 *   NOTIFY   to process    generation:4 change:4 leave that world at the next commit
 *
 * A message starts with its type, 1 byte. A process that gets FORM while it still forms an
 * earlier world gives that one up. The connection ends when the process or its launcher
 * does: a process whose launcher has gone cannot get another world.
 *
 * HVD_ELASTIC=NAME:SLOT.INCARNATION in the environment of the process says where to
 * connect and what it is. */
#ifndef RUNTIME_WIRE_MEMBER_MESSAGE_H
#define RUNTIME_WIRE_MEMBER_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/base/unix.h"
#include "runtime/contract/hostlist.h"
#include "runtime/contract/places.h"

#define MEMBER_MESSAGE_MAX_BYTES 1024
#define MEMBER_WHY_BYTES         400

enum member_message_type {
    MEMBER_READY = 1,
    MEMBER_COMMIT,
    MEMBER_FORM,
    MEMBER_BREAK,
    MEMBER_NOTIFY,
    MEMBER_ENDING
};
enum member_change { /* bits, as Horovod's HostUpdateResult */
                     MEMBER_CHANGE_REMOVED = 1,
                     MEMBER_CHANGE_ADDED = 2
};

struct member_message {
    enum member_message_type type;
    uint32_t generation;        /* all */
    uint32_t slot, incarnation; /* READY */
    /* FORM */
    struct place place; /* host is 0 */
    uint32_t n_new;     /* members that were in no world before */
    uint16_t rdv_port;
    char rdv_host[HOST_NAME_MAX_BYTES];
    uint32_t change;            /* NOTIFY: bits of enum member_change */
    char why[MEMBER_WHY_BYTES]; /* BREAK, ENDING */
};

void member_message_write(const struct member_message *m, struct strbuf *out);
/* -EPROTO with a sentence: unknown type, wrong length, or a place that contradicts
 * itself. Control characters in why are replaced. */
int member_message_read(const uint8_t *p,
                        size_t n,
                        struct member_message *ret,
                        struct err *err);

struct member_address { /* HVD_ELASTIC */
    char name[UNIX_NAME_BYTES];
    uint32_t slot, incarnation;
};
void member_address_write(const struct member_address *a, char *ret, size_t size_bytes);
/* -EINVAL with a sentence that has the value. */
int member_address_read(const char *text, struct member_address *ret, struct err *err);

#endif

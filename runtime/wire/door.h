/* SPDX-License-Identifier: Apache-2.0 */
/* How all our listeners admit connections. A stranger is an accepted connection that has
 * not proved anything yet. Strangers cost little, and cannot keep members out:
 *
 *   - Nothing blocks: each stranger advances when its bytes arrive.
 *   - Their number is limited. When it is reached, or the process has no descriptor
 *     left, the oldest stranger of the address with the most strangers is closed, once it
 *     had DOOR_GRACE_NS and its last bytes have been read. Members do not count.
 *   - door_set_room limits them further, so that a crowd of honest clients waits in the
 *     kernel's queue. This limit counts on progress: when none was taken for
 *     DOOR_STUCK_NS, it is doubled, until the strangers are fewer than it again. So
 *     strangers that stay, or that come and go, end it within two seconds.
 *   - The first byte must arrive within DOOR_FIRST_BYTE_NS, and all within DOOR_TOTAL_NS.
 *   - Without a descriptor and without strangers, listening pauses (no busy loop).
 *   - At most DOOR_LOGS refusals are logged in DOOR_LOG_NS; the rest is counted.
 *
 * One thread. The caller polls door_fd() and calls door_serve(). */
#ifndef RUNTIME_WIRE_DOOR_H
#define RUNTIME_WIRE_DOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/clock.h"
#include "runtime/base/err.h"

#define DOOR_FIRST_BYTE_NS (3 * NS_PER_S)
#define DOOR_TOTAL_NS      (10 * NS_PER_S)
#define DOOR_GRACE_NS      (200 * NS_PER_MS)
#define DOOR_PAUSE_NS      (100 * NS_PER_MS)
#define DOOR_STUCK_NS      (250 * NS_PER_MS)
#define DOOR_LOG_NS        (10 * NS_PER_S)
#define DOOR_LOGS          8
#define DOOR_MAX_STRANGERS 512
#define DOOR_MAX_LISTENERS 2
#define DOOR_ADDRESS_BYTES 64

struct door;
struct stranger {
    int fd;         /* non-blocking; -1: taken or closed */
    bool is_unix;   /* the listener is a Unix socket */
    bool has_sent;  /* set by step when a byte arrived */
    bool wants_out; /* set by step: it waits until the socket accepts bytes */
    char address[DOOR_ADDRESS_BYTES]; /* "this host" for a Unix socket */
    void *data;                       /* data_bytes, zeroed at first */
    /* of door.c */
    struct door *door;
    uint64_t since_ns;
    uint8_t bucket; /* of the address */
    bool was_out;   /* the events in epoll include writing */
};

struct door_kind {
    const char *name;  /* of the listener, for logs: "hub" */
    size_t data_bytes; /* of struct stranger.data */
    size_t max;        /* strangers at most; 0: DOOR_MAX_STRANGERS */
    /* Advances a stranger that is readable or writable. 0: it stays, or step has taken it
     * (stranger_take). Negative: it is closed, and logged if err is set. */
    int (*step)(void *arg, struct stranger *s, struct err *err);
    void (*release)(struct stranger *s); /* of what data owns; may be NULL */
};

/* For step: the stranger is one no longer, and the caller owns its descriptor. */
int stranger_take(struct stranger *s);

int door_open(const struct door_kind *kind, struct door **ret, struct err *err);
/* Watches a listening socket, which stays the caller's and must be non-blocking. */
int door_listen(struct door *d, int listen_fd, bool is_unix, struct err *err);
/* At most n strangers from now on, unless they are stuck; 0, as at first: no such
 * limit. */
void door_set_room(struct door *d, size_t n);
/* Readable when door_serve() has something to do. */
int door_fd(const struct door *d);
/* When door_serve() must be called at the latest; UINT64_MAX: no time. */
uint64_t door_next_ns(const struct door *d);
/* Why the last stranger was refused; "" if none was. */
const char *door_last_refusal(const struct door *d);
/* arg: for step. */
void door_serve(struct door *d, void *arg, uint64_t now_ns);
/* Closes all strangers; NULL is accepted. In a forked child it leaves those of the
 * parent alone. */
void door_close(struct door *d);

#endif

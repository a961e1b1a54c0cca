/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement among all ranks of a communicator without blocking, and the sleep between
 * two looks at it; only for the files of this folder. The rows of backend.h say what
 * each function promises. */
#ifndef RUNTIME_BACKEND_CPU_AGREE_H
#define RUNTIME_BACKEND_CPU_AGREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/backend.h"

struct cpu;

/* What one member says in one agreement. The number and the first words share a cache
 * line. */
struct agree_slot {
    _Atomic uint32_t seq; /* of the agreement whose words lie here */
    uint32_t n;           /* words */
    uint64_t words[AGREE_MAX_WORDS];
    uint8_t pad[640 - 8 - 8 * AGREE_MAX_WORDS];
};
struct agree_line { /* one member's, in the segment */
    struct agree_slot
        says[2];             /* agreement k is in says[k % 2]; written by its member */
    _Atomic uint32_t bell;   /* futex word; who wakes the member adds 1 */
    _Atomic uint32_t awaits; /* enum agree_awaits, or the index of a member */
    /* call.c */
    _Atomic uint32_t called; /* the agreement for which the member calls */
    _Atomic uint32_t begun;  /* a leader of several hosts: the one that it has begun */
    _Atomic uint32_t away;   /* enum agree_call: for what it is to be rung, or rung */
    uint32_t ear_bytes;      /* of its ear's name */
    uint8_t ear[24];
    _Atomic uint64_t proxy; /* call.c: up to which agreement others have counted it */
    uint32_t stand_tag, stand_n;
    uint8_t pad[128 - 64];
    uint64_t stand[AGREE_MAX_WORDS]; /* its words while it is away */
};
_Static_assert(sizeof(struct agree_slot) == 640, "lines do not share, in pairs either");
_Static_assert(sizeof(struct agree_line) == 15 * 128, "nor do members");

/* In the segment: what the leader has heard from the other hosts, then a line a member.
 * Zeroed memory is ready for use. */
struct agree_area {
    struct agree_slot result[2];
    struct agree_line lines[];
};
size_t agree_area_bytes(uint32_t n);

struct agree_message { /* between leaders */
    uint32_t seq, n;
    uint64_t words[AGREE_MAX_WORDS + 7]; /* the last ones round the message up */
};

enum agree_phase { AGREE_NONE, AGREE_LOCAL, AGREE_HOSTS, AGREE_RESULT };

struct agree { /* the driving thread's, but for the atomics */
    enum agree_phase phase;
    uint32_t seq; /* agreements begun */
    uint32_t n;
    uint64_t words[AGREE_MAX_WORDS]; /* AND of what has been heard */
    uint32_t at;                     /* members before it have been heard */
    uint32_t distance;               /* to the leader that we send to in this round */
    size_t n_sent, n_got;            /* bytes of this round's messages */
    struct agree_message out, in;
    uint32_t n_idle, n_checks;
    uint64_t checked_ns;
    bool has_dozed; /* since the last look */
    struct agree_area *area;
    struct agree_line *line;          /* ours: in the area, or alone */
    struct agree_line alone;          /* of who shares no memory */
    int event_fd;                     /* ends a sleep on sockets; -1: none */
    _Atomic(struct agree_line *) ear; /* line, for nudge() from any thread */
    atomic_bool is_nudged;
};

void agree_init(struct agree *a);
/* A local one's words of the agreement at hand have come, by others' hand: wakes who
 * sleeps for them. */
void agree_count_arrival(struct cpu *c, uint32_t member);
/* An agreement that others began for us: its words are in a->words. */
void agree_enter(struct cpu *c, uint32_t seq, uint32_t n);
int agree_open(struct cpu *c, struct err *err); /* once the transports are connected */
void agree_close(struct agree *a);              /* before the segment is unmapped */

int agree_begin(struct backend *b, const uint64_t *words, uint32_t n, struct err *err);
int agree_poll(struct backend *b, uint64_t *ret_words, bool *ret_done, struct err *err);
void agree_doze(struct backend *b, uint64_t ns);
void agree_nudge(struct backend *b);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement among all ranks of a communicator without blocking, and the sleep between
 * two polls of it; only for the files of this folder. backend.h documents each
 * function. */
#ifndef RUNTIME_BACKEND_CPU_AGREE_H
#define RUNTIME_BACKEND_CPU_AGREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/backend/backend.h"
#include "runtime/backend/cpu/agree_area.h"
#include "runtime/backend/cpu/net_block.h"
#include "runtime/backend/cpu/wait.h"

struct cpu;

struct agree_message { /* between leaders: a block */
    uint8_t header[BLOCK_HEADER_BYTES];
    uint32_t seq, n;
    uint64_t words[AGREE_MAX_WORDS + 7]; /* the last ones round the message up */
};

enum agree_phase { AGREE_NONE, AGREE_LOCAL, AGREE_HOSTS, AGREE_RESULT };

struct agree { /* owned by the driving thread, except the atomics */
    enum agree_phase phase;
    uint32_t seq; /* number of the current agreement */
    uint32_t n;
    uint64_t words[AGREE_MAX_WORDS]; /* AND of the words received so far */
    uint32_t at;                     /* members before it have been collected */
    uint32_t distance;               /* to the leader that we send to in this round */
    size_t n_sent, n_got;            /* bytes of this round's messages */
    struct agree_message out, in;
    struct patience partial; /* since a part of `in` arrived */
    uint32_t n_idle, n_checks;
    uint64_t checked_ns;
    bool has_dozed; /* since the last poll */
    struct agree_area *area;
    struct agree_line *line;                  /* ours: in the area, or alone */
    struct agree_line alone;                  /* for a member that shares no memory */
    int event_fd;                             /* ends a sleep on sockets; -1: none */
    _Atomic(struct agree_line *) nudged_line; /* line, for nudge() from any thread */
    atomic_bool is_nudged;
};

void agree_init(struct agree *a);
int agree_open(struct cpu *c, struct err *err); /* once the transports are connected */
void agree_close(struct agree *a);              /* before the segment is unmapped */

int agree_begin(struct backend *b, const uint64_t *words, uint32_t n, struct err *err);
int agree_poll(struct backend *b, uint64_t *ret_words, bool *ret_done, struct err *err);
void agree_doze(struct backend *b, uint64_t ns);
void agree_nudge(struct backend *b);

#endif

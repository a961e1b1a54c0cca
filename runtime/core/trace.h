/* SPDX-License-Identifier: Apache-2.0 */
/* The timeline: events of tensors, and their form in Chrome's trace format with
 * Horovod's names (chrome://tracing, Perfetto). A "process" in the file is a tensor, a
 * "thread" of it a rank. Pure; events carry their time. */
#ifndef RUNTIME_CORE_TRACE_H
#define RUNTIME_CORE_TRACE_H

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"
#include "runtime/core/types.h"
#include "runtime/wire/bytes.h"

enum trace_kind {
    TRACE_NEGOTIATE, /* this rank has submitted it: NEGOTIATE_<coll> starts */
    TRACE_TICK,      /* rank 0: `rank` has submitted it; starts NEGOTIATE too */
    TRACE_START,     /* all ranks have: <coll> starts */
    TRACE_ACTIVITY,  /* a phase within <coll>; ends the phase before */
    TRACE_END,       /* <coll> ends, or the tensor failed */
    TRACE_KIND_OF_TENSOR,
    TRACE_CYCLE = TRACE_KIND_OF_TENSOR, /* CYCLE_START; no tensor */
    TRACE_KIND_COUNT
};

enum trace_activity {
    TRACE_ALLOCATE_OUTPUT, /* memory for the result */
    TRACE_TRANSFER,        /* CPU_<coll>: in the backend, packing included */
    TRACE_DEVICE,          /* NCCL_<coll>: posted to the GPU, until it is done */
    TRACE_INIT_DEVICE,     /* INIT_NCCL: the members of a set meet on the GPUs */
    TRACE_ACTIVITY_COUNT
};

#define TRACE_NAME_MAX 160

struct trace_event {
    uint64_t ns;    /* clock of the rank that recorded it */
    uint64_t bytes; /* END: of this rank's input */
    uint32_t rank;  /* TICK */
    uint8_t kind;   /* enum trace_kind */
    uint8_t coll;   /* enum collective */
    /* ACTIVITY: enum trace_activity. END: TRACE_DEVICE if the GPU finished it, whose name
     * may be in use again. */
    uint8_t activity;
    uint8_t dtype; /* END: enum dtype */
    char name[TRACE_NAME_MAX];
};

/* Sets the tensor's name as the timeline shows it: with the number of its process set
 * unless that is 0; a long name is cut and made unique by a hash. */
void trace_name(struct trace_event *ev, uint32_t process_set, const char *name);

/* --- as JSON --- */

/* Tensors times ranks. Bounds the memory for programs that never repeat a name. */
#define TRACE_MAX_TRACKS (1u << 17)

struct trace;

/* begin_ns: rank 0's clock, 0 on the time axis. NULL: out of memory. */
struct trace *trace_new(uint64_t begin_ns);
void trace_free(struct trace *t); /* accepts NULL */

/* Writes "[\n" and the first record. The file ends with TRACE_TAIL, which the next
 * record overwrites, so that the file is valid JSON at any time. */
void trace_head(uint64_t begin_wall_us, struct strbuf *out);
#define TRACE_TAIL "\n]\n"
/* Appends the records of ev, recorded by rank, whose clock is ahead of rank 0's by
 * ahead_ns. Spans are always balanced: an event whose predecessor was dropped closes
 * open spans or is left out. -ENOMEM (also beyond TRACE_MAX_TRACKS), -E2BIG: ev is left
 * out. */
int trace_put(struct trace *t,
              uint32_t rank,
              const struct trace_event *ev,
              int64_t ahead_ns,
              struct strbuf *out);
/* n events were lost on rank. */
void trace_put_dropped(
    struct trace *t, uint32_t rank, uint64_t ns, uint64_t n, struct strbuf *out);
/* Ends all open spans. */
void trace_close(struct trace *t, uint64_t now_ns, struct strbuf *out);

/* --- between ranks --- */

enum trace_order {                        /* of a message down */
                   TRACE_ORDER_CLOCK = 1, /* start recording if not started; answer */
                   TRACE_ORDER_STOP,
                   TRACE_ORDER_END
};
struct trace_down {
    enum trace_order order;
    uint64_t sent_ns; /* rank 0's clock */
};
struct trace_up {          /* followed by events until the end of the message */
    uint64_t sent_ns;      /* the sender's clock */
    int64_t least_down_ns; /* minimum over all downs of: clock at arrival - sent_ns */
    uint64_t n_dropped;    /* events lost since the last message */
    bool is_last;          /* nothing follows */
};

/* Is this one of these two messages? */
bool trace_is_message(const void *p, size_t n);
void trace_write_down(const struct trace_down *m, struct strbuf *out);
void trace_write_up(const struct trace_up *m, struct strbuf *out);
void trace_write_event(const struct trace_event *ev, struct strbuf *out);
/* -EBADMSG. `in` is at the first byte of the message. */
int trace_read_down(struct bytes_reader *in, struct trace_down *ret, struct err *err);
int trace_read_up(struct bytes_reader *in, struct trace_up *ret, struct err *err);
/* 1: *ret is filled; 0: end of the message; -EBADMSG. */
int trace_read_event(struct bytes_reader *in, struct trace_event *ret, struct err *err);

/* The difference of two clocks, from the least delays in both directions, as in NTP.
 * The delay that both directions have in common cancels out; messages that were read
 * late do not count. */
struct trace_clock { /* zeroed: nothing known */
    int64_t least_down_ns, least_up_ns;
    uint32_t n; /* samples */
};
void trace_clock_add(struct trace_clock *c, int64_t down_ns, int64_t up_ns);
int64_t trace_clock_ahead_ns(const struct trace_clock *c);

#endif

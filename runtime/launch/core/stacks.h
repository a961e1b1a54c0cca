/* SPDX-License-Identifier: Apache-2.0 */
/* The stacks of a rank, as its signal handlers write them (contract/stacks_file.h), and
 * equal stacks of many ranks as one text. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_STACKS_H
#define RUNTIME_LAUNCH_CORE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/arena.h"
#include "runtime/base/strbuf.h"

#define STACK_THREADS_MAX 128 /* Python's faulthandler writes 100 */
#define STACK_FRAMES_MAX  128
#define STACK_SHOWN_MAX   32 /* frames of a thread in a text for people */

/* Of Python: all fields. Native: function is the symbol, file the module, line 0. */
struct stack_frame {
    const char *file, *function;
    uint32_t line;
};

struct stack_thread {
    uint64_t ident;  /* pthread_self(); 0: unknown */
    bool is_current; /* it has written the dump */
    uint32_t n;
    struct stack_frame *frames; /* the innermost one first */
};

struct stack_dump {
    uint32_t n_threads; /* of Python */
    struct stack_thread threads[STACK_THREADS_MAX];
    struct stack_thread native; /* of the main thread */
    bool is_by_other;           /* another thread than the main one has written it */
    bool is_whole;              /* it ends as it should */
};

/* Reads what a rank has written; what it does not know it skips. Memory is the
 * arena's. 0, -ENOMEM. */
int stacks_parse(const char *text, struct arena *a, struct stack_dump *ret);

/* The thread that began the program; NULL: no Python thread. */
const struct stack_thread *stacks_main(const struct stack_dump *d);
/* Same functions and lines. */
bool stack_thread_is_same(const struct stack_thread *a, const struct stack_thread *b);
/* It belongs to Python or to an installed package, not to the user's program. */
bool stack_frame_is_library(const struct stack_frame *f);
/* It belongs to the runtime, so the thread is in one of its functions. */
bool stack_frame_is_runtime(const struct stack_frame *f);
/* "step (train.py:42)", "epoll_wait (libc.so.6)" */
void stack_frame_put(const struct stack_frame *f, struct strbuf *out);
/* Where a thread is, for a sentence: "in acquire (threading.py:1133) called by step
 * (train.py:42)". Nothing without frames. */
void stack_thread_put_place(const struct stack_thread *t, struct strbuf *out);

/* All threads, the main thread first, a frame a line, without what differs between
 * ranks (addresses, numbers of threads): equal texts are equal stacks. The native stack
 * of a thread that waits in the runtime is left out: it is the runtime's own affair, and
 * differs from moment to moment. */
void stacks_put(const struct stack_dump *d, struct strbuf *out);

/* Texts of ranks, equal ones once:
 *   ranks 0, 2-7:
 *     main thread
 *       ...
 * In the order of the lowest rank. v need not be sorted; it is sorted here. */
struct stack_text {
    uint32_t rank;
    const char *text;
};
void stacks_group(struct stack_text *v, size_t n, struct strbuf *out);

/* Appends "0, 2-7" for sorted ranks. */
void ranks_put(const uint32_t *ranks, size_t n, struct strbuf *out);

#endif

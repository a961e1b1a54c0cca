/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the questions:
 *
 *   the process is gone, or a zombie                        ABSENT
 *   stopped, traced, or frozen by its cgroup                STOPPED
 *   it waits in a function of the runtime                   SLEEPING, is_in_collective
 *   many major page faults                                  SWAPPING
 *   it uses the processor: at one place                     LOOP
 *                          at changing places               BUSY
 *   it waits: for a lock, as other Python threads           DEADLOCK
 *             for a lock                                    LOCK
 *             for a file system                             STORAGE
 *             for something else                            SLEEPING
 *
 * "It" is the main thread, or where that waits for another Python thread to end, that
 * thread. Faults come before the processor, since a process that swaps also computes.
 *
 * Threads of Python and of the kernel: faulthandler prints pthread_self(), which glibc
 * and musl keep at the upper end of the thread's stack, and the kernel shows the stack
 * pointer of a thread that waits. So the thread with the nearest stack pointer below
 * is the same one. A thread that runs has none.
 *
 * Called by launch/examine.c. hang_text.c has the sentences of the hub. */
#include "runtime/launch/core/hang.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/hang_wait.h"

/* Major faults a second that explain a hang: each is a read of a disk, which takes 0.1 to
 * 10 ms; fewer only if the thread was seen waiting for one. */
enum { FAULTS_PER_S = 100, FEW_FAULTS_PER_S = 10 };
/* Of stack pointer and pthread_self(): less than the smallest usual size of a stack,
 * behind which another thread's may lie. */
#define STACK_DISTANCE_MAX ((2u << 20) - 65536u)

struct hang {
    const struct hang_input *in;
    double s;                 /* between the samples */
    struct stack_dump *dumps; /* n_dumps */
    uint32_t n_dumps;
    const struct stack_dump *last; /* empty: no dump */
    /* The thread in question, with its stacks; NULL: unknown. */
    const struct hang_thread *a, *b;
    const struct stack_thread *python;
    const char *who; /* "its main thread" */
    struct hang_finding *ret;
    struct strbuf does;
};

/* --- threads --- */

static const struct hang_thread *sample_find(const struct hang_sample *s, uint32_t tid)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->v[i].tid == tid)
            return &s->v[i];
    return NULL;
}

/* The kernel's thread of a Python thread; NULL: it runs, or is unknown. */
static const struct hang_thread *hang_thread_of(const struct hang *h, uint64_t ident)
{
    const struct hang_thread *best = NULL;

    for (uint32_t i = 1; i < h->in->b->n; i++) {
        const struct hang_thread *t = &h->in->b->v[i];

        if (t->sp == 0 || t->sp >= ident || ident - t->sp > STACK_DISTANCE_MAX)
            continue;
        if (!best || t->sp > best->sp)
            best = t;
    }
    if (!best) /* another thread may be nearer to it: then it is that one's */
        return NULL;
    for (uint32_t i = 0; i < h->last->n_threads; i++) {
        uint64_t other = h->last->threads[i].ident;

        if (other > best->sp && other < ident)
            return NULL;
    }
    return best;
}

static const struct stack_thread *dump_find(const struct stack_dump *d, uint64_t ident)
{
    for (uint32_t i = 0; i < d->n_threads; i++)
        if (d->threads[i].ident == ident)
            return &d->threads[i];
    return NULL;
}

static bool
frame_is(const struct stack_frame *f, const char *file_end, const char *name)
{
    size_t n = strlen(f->file), k = strlen(file_end);

    return n >= k && strcmp(f->file + n - k, file_end) == 0
           && (!name || strcmp(f->function, name) == 0);
}

/* It waits for another thread to end. */
static bool stack_is_joining(const struct stack_thread *t)
{
    return t->n > 0
           && (frame_is(&t->frames[0], "/threading.py", "_wait_for_tstate_lock")
               || frame_is(&t->frames[0], "/threading.py", "join")
               || frame_is(&t->frames[0], "/threading.py", "_shutdown"));
}

/* A thread other than the main one that waits for work. */
static bool stack_is_idle(const struct stack_thread *t)
{
    static const struct {
        const char *file, *function;
    } rows[] = {
        {"/queue.py", "get"},
        {"/concurrent/futures/thread.py", "_worker"},
        {"/multiprocessing/pool.py", NULL},
        {"/multiprocessing/queues.py", NULL},
        {"/multiprocessing/connection.py", NULL},
        {"/threading.py", "wait"},
        {"/selectors.py", "select"},
        {"/socketserver.py", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows) && t->n > 0; i++)
        if (frame_is(&t->frames[0], rows[i].file, rows[i].function))
            return true;
    return t->n == 0;
}

/* The main thread may only wait for the thread that works. */
static void hang_select_thread(struct hang *h)
{
    h->a = &h->in->a->v[0];
    h->b = &h->in->b->v[0];
    h->who = "its main thread";
    h->python = stacks_main(h->last);
    if (h->python && stack_is_joining(h->python))
        for (uint32_t i = 0; i < h->last->n_threads; i++) {
            const struct stack_thread *t = &h->last->threads[i];

            if (t == h->python || stack_is_idle(t) || stack_is_joining(t))
                continue;
            h->python = t;
            h->who = "a thread";
            h->b = hang_thread_of(h, t->ident);
            h->a = h->b ? sample_find(h->in->a, h->b->tid) : NULL;
            break;
        }
}

/* --- places --- */

static bool hang_is_main(const struct hang *h)
{
    return h->b == &h->in->b->v[0];
}

/* Native frames belong to the main thread. */
static const struct stack_thread *hang_native(const struct hang *h)
{
    return hang_is_main(h) && h->last->native.n > 0 ? &h->last->native : NULL;
}

static void hang_put_place(struct hang *h)
{
    const struct stack_thread *native = hang_native(h);

    if (h->python && h->python->n > 0) {
        strbuf_puts(&h->does, ", ");
        stack_thread_put_place(h->python, &h->does);
    } else if (native) {
        strbuf_puts(&h->does, ", ");
        stack_thread_put_place(native, &h->does);
    } else if (h->in->why_no_dump[0]) {
        strbuf_printf(&h->does, "; its stacks are unknown: %s", h->in->why_no_dump);
    }
}

static void hang_set_place(struct hang *h)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    const struct stack_thread *t = h->python;
    uint32_t n_shown = 0; /* the caller too: the place may be a function that all use */

    strbuf_init(&out, sizeof(h->ret->place) - 1);
    for (uint32_t i = 0; t && i < t->n && n_shown < 2; i++)
        if (!stack_frame_is_library(&t->frames[i])) {
            strbuf_puts(&out, n_shown++ ? " called by " : "");
            stack_frame_put(&t->frames[i], &out);
        }
    (void)snprintf(h->ret->place, sizeof(h->ret->place), "%s", strbuf_str(&out));
}

/* The kinds of a runtime's frame: libhvd's code, or Python's code around it. */
static bool hang_is_in_runtime(const struct hang *h)
{
    const struct stack_thread *native = hang_native(h);

    if (h->python && h->python->n > 0)
        return stack_frame_is_runtime(&h->python->frames[0]);
    for (uint32_t i = 0; native && i < native->n && i < 12; i++)
        if (stack_frame_is_runtime(&native->frames[i]))
            return true;
    return false;
}

/* --- causes --- */

static bool hang_is_absent(struct hang *h)
{
    const struct hang_sample *b = h->in->b;

    if (b->is_gone || b->start_ticks != h->in->a->start_ticks) {
        strbuf_puts(&h->does, "its process does not exist any more");
    } else if (b->n == 0) {
        strbuf_puts(&h->does, "its process could not be examined");
        h->ret->cause = LIVE_CAUSE_UNKNOWN;
        return true;
    } else if (b->v[0].state == 'Z' || b->v[0].state == 'X') {
        strbuf_puts(&h->does, "its process has ended");
    } else {
        return false;
    }
    h->ret->cause = LIVE_CAUSE_ABSENT;
    return true;
}

static bool hang_is_stopped(struct hang *h)
{
    const struct hang_thread *t = &h->in->b->v[0];

    if (strcmp(t->wchan, "__refrigerator") == 0
        || strcmp(t->wchan, "do_freezer_trap") == 0)
        strbuf_puts(&h->does, "its process is frozen, since its container is paused");
    else if (t->state == 't')
        strbuf_printf(&h->does, "its process is stopped by a debugger (process %u)",
                      h->in->b->tracer_pid);
    else if (t->state == 'T')
        strbuf_puts(
            &h->does,
            "its process is stopped by a signal, as SIGSTOP; SIGCONT resumes it");
    else
        return false;
    h->ret->cause = LIVE_CAUSE_STOPPED;
    return true;
}

static double hang_rate(const struct hang *h, uint64_t a, uint64_t b)
{
    return b > a && h->s > 0 ? (double)(b - a) / h->s : 0;
}

static bool hang_is_swapping(struct hang *h)
{
    const struct hang_sample *a = h->in->a, *b = h->in->b;
    double rate = hang_rate(h, a->n_major_faults, b->n_major_faults);
    bool was_seen =
        h->a && h->b
        && ((h->a->state == 'D' && h->a->syscall == HANG_NOT_IN_SYSCALL)
            || (h->b->state == 'D' && h->b->syscall == HANG_NOT_IN_SYSCALL));

    if (rate < (was_seen ? FEW_FAULTS_PER_S : FAULTS_PER_S))
        return false;
    strbuf_printf(&h->does,
                  "its process waits for memory that is read from disk, %.0f times a "
                  "second (major page faults; %llu MiB of its memory are swapped out)",
                  rate, (unsigned long long)(b->swap_kib / 1024));
    hang_put_place(h);
    h->ret->cause = LIVE_CAUSE_SWAPPING;
    return true;
}

static bool hang_thread_computes(const struct hang *h,
                                 const struct hang_thread *a,
                                 const struct hang_thread *b)
{
    double share =
        hang_rate(h, a->cpu_ticks, b->cpu_ticks) / (double)h->in->ticks_per_s;

    /* Where processors are short it only waits for one, and never sleeps. */
    return share >= 0.5
           || (a->state == 'R' && b->state == 'R' && b->n_sleeps <= a->n_sleeps + 1);
}

static const struct hang_thread *hang_find_worker(const struct hang *h)
{
    for (uint32_t i = 1; i < h->in->b->n; i++) {
        const struct hang_thread *b = &h->in->b->v[i];
        const struct hang_thread *a = sample_find(h->in->a, b->tid);

        if (a && hang_thread_computes(h, a, b))
            return b;
    }
    return NULL;
}

/* Lines may differ: a loop has several. */
static bool stack_is_at_same(const struct stack_thread *a, const struct stack_thread *b)
{
    return a && a->n > 0 && a->n == b->n
           && strcmp(a->frames[0].function, b->frames[0].function) == 0
           && strcmp(a->frames[0].file, b->frames[0].file) == 0;
}

/* Without Python: all functions but the innermost one, which a loop may call. */
static bool native_is_at_same(const struct stack_thread *a,
                              const struct stack_thread *b)
{
    for (uint32_t i = 1; i <= a->n && i <= b->n; i++) {
        const struct stack_frame *x = &a->frames[a->n - i], *y = &b->frames[b->n - i];

        if (strcmp(x->function, y->function) != 0 || strcmp(x->file, y->file) != 0)
            return i > a->n - 1 || i > b->n - 1;
    }
    return a->n > 0 && b->n > 0;
}

/* Is it in the same function in all dumps? t: of the last one; NULL: native code. */
static bool hang_is_at_same(const struct hang *h, const struct stack_thread *t)
{
    for (uint32_t i = 0; i + 1 < h->n_dumps; i++) {
        const struct stack_dump *d = &h->dumps[i];

        if (t && t->n > 0 ? !stack_is_at_same(dump_find(d, t->ident), t)
                          : !native_is_at_same(&d->native, &h->last->native))
            return false;
    }
    return h->n_dumps > 1;
}

/* The one Python thread that runs, besides the one in question; NULL: none or several. */
static const struct stack_thread *hang_find_running(const struct hang *h)
{
    const struct stack_thread *found = NULL;

    for (uint32_t i = 0; i < h->last->n_threads; i++) {
        const struct stack_thread *t = &h->last->threads[i];

        if (t == h->python || t == stacks_main(h->last) || stack_is_idle(t)
            || hang_thread_of(h, t->ident))
            continue;
        if (found)
            return NULL;
        found = t;
    }
    return found;
}

static void hang_describe_loop(struct hang *h, bool is_same)
{
    strbuf_printf(&h->does, "%s computes, %s", h->who,
                  is_same ? "always at the same place" : "at changing places");
    hang_put_place(h);
    h->ret->cause = is_same ? LIVE_CAUSE_LOOP : LIVE_CAUSE_BUSY;
}

/* Another thread computes while the one in question waits: for Python's lock, or for a
 * pool of threads. */
static void hang_describe_worker(struct hang *h, const struct hang_thread *worker)
{
    const struct stack_thread *t = hang_find_running(h);
    bool is_same = hang_is_at_same(h, t ? t : h->python);

    strbuf_printf(&h->does, "%s waits for another one, which computes, %s", h->who,
                  is_same ? "always at the same place" : "at changing places");
    if (t) {
        h->python = t;
        hang_set_place(h);
        hang_put_place(h);
    } else {
        strbuf_printf(&h->does, " (thread %u)", worker->tid);
        hang_put_place(h);
    }
    h->ret->cause = is_same ? LIVE_CAUSE_LOOP : LIVE_CAUSE_BUSY;
}

static bool hang_computes(struct hang *h)
{
    const struct hang_thread *worker;

    /* A Python thread whose kernel's thread is not known runs. */
    if (!h->b || (h->a && hang_thread_computes(h, h->a, h->b))) {
        hang_describe_loop(h, hang_is_at_same(h, h->python));
        return true;
    }
    if (!hang_wait_is_lock(h->b) && h->b->state != 'R')
        return false; /* a thread that computes is no reason to wait for a file */
    worker = hang_find_worker(h);
    if (worker)
        hang_describe_worker(h, worker);
    return worker != NULL;
}

/* A Python thread that waits for a lock without a time limit, in all dumps. */
static bool hang_is_locked(const struct hang *h, const struct stack_thread *t)
{
    const struct stack_thread *first = dump_find(&h->dumps[0], t->ident);
    const struct hang_thread *k =
        t == stacks_main(h->last) ? &h->in->b->v[0] : hang_thread_of(h, t->ident);

    return k && hang_wait_is_lock(k) && !hang_wait_is_timed(k) && first
           && stack_thread_is_same(first, t);
}

/* All Python threads that have work wait for locks, and at least two do. */
static bool hang_is_deadlock(struct hang *h)
{
    const struct stack_thread *other = NULL;
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->last->n_threads; i++) {
        const struct stack_thread *t = &h->last->threads[i];
        bool is_main = t == stacks_main(h->last);

        if (stack_is_joining(t) || (!is_main && stack_is_idle(t)))
            continue;
        if (!hang_is_locked(h, t))
            return false;
        n++;
        if (t != h->python)
            other = t;
    }
    if (n < 2 || !other)
        return false;
    strbuf_printf(&h->does, "its Python threads wait for locks of each other: %s",
                  hang_is_main(h) ? "the main thread" : "one");
    hang_put_place(h);
    strbuf_puts(&h->does, "; another ");
    stack_thread_put_place(other, &h->does);
    h->ret->cause = LIVE_CAUSE_DEADLOCK;
    return true;
}

/* A thread that sleeps in turns may be seen while it is awake. */
static void hang_waits(struct hang *h)
{
    const struct hang_thread *t = h->b->state == 'R' && h->a ? h->a : h->b;

    if (t->state != 'R') {
        h->ret->cause = hang_wait_describe(t, h->who, &h->does);
    } else {
        h->ret->cause = LIVE_CAUSE_BUSY;
        strbuf_printf(&h->does, "%s runs now and then", h->who);
    }
    hang_put_place(h);
}

static void hang_decide(struct hang *h)
{
    if (hang_is_absent(h) || hang_is_stopped(h))
        return;
    hang_select_thread(h);
    hang_set_place(h);
    if (hang_is_in_runtime(h)) {
        h->ret->is_in_collective = true;
        h->ret->cause = LIVE_CAUSE_SLEEPING;
        strbuf_printf(&h->does, "%s waits in a collective", h->who);
        hang_put_place(h);
        return;
    }
    if (hang_is_swapping(h) || hang_computes(h) || hang_is_deadlock(h))
        return;
    hang_waits(h);
}

static void hang_put_stacks(const struct hang *h)
{
    const struct hang_input *in = h->in;
    CLEANUP(strbuf_release) struct strbuf out = {0};

    strbuf_init(&out, HANG_STACKS_MAX - 1);
    if (in->gpu[0])
        strbuf_printf(&out, "  %s\n", in->gpu);
    if (in->why_no_dump[0])
        strbuf_printf(&out, "  no stacks: %s\n", in->why_no_dump);
    stacks_put(h->last, &out); /* what does not fit is left out */
    (void)snprintf(h->ret->stacks, sizeof(h->ret->stacks), "%s", strbuf_str(&out));
}

int hang_find(const struct hang_input *in, struct hang_finding *ret)
{
    CLEANUP(arena_release) struct arena arena = {0};
    AUTOFREE struct stack_dump *dumps = mem_calloc(HANG_DUMPS_MAX, sizeof(*dumps));
    struct hang h = {.in = in, .ret = ret, .dumps = dumps, .last = dumps};

    if (!dumps)
        return -ENOMEM;
    arena_init(&arena, 4u << 20);
    for (int i = 0; i < HANG_DUMPS_MAX; i++)
        if (in->dumps[i]) {
            h.last = &dumps[h.n_dumps++];
            (void)stacks_parse(in->dumps[i], &arena, &dumps[h.n_dumps - 1]);
        }
    h.s = in->b->at_ns > in->a->at_ns ? (double)(in->b->at_ns - in->a->at_ns) / 1e9 : 0;
    strbuf_init(&h.does, sizeof(ret->does) - 1);
    ret->cause = LIVE_CAUSE_UNKNOWN;
    ret->is_in_collective = false;
    ret->place[0] = '\0';
    hang_decide(&h);
    (void)snprintf(ret->does, sizeof(ret->does), "%s", strbuf_str(&h.does));
    strbuf_release(&h.does);
    hang_put_stacks(&h);
    return 0;
}

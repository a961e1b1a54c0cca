/* SPDX-License-Identifier: Apache-2.0 */
/* All processes at once:
 *
 *   sample -- 1 s -- sample -- signal, dumps -- pause -- signal, dumps .. -- hang_find()
 *                                |
 *                                '-> DUMP_NS later: another thread of the process is
 *                                    asked; ANSWER_NS later: no dump
 *
 * The samples come first, because a signal interrupts what the process waits for. The
 * later dumps show whether it moves. A process gets the signal only if it has a handler
 * for it (otherwise it would die), if it is the process that was sampled, and under an
 * agent only if it descends from the agent.
 *
 * The caller and the thread hold a reference each. The thread writes `v` until it sets
 * is_done (release), the caller reads it after that (acquire). Called by the agent and
 * by examine_command.c. */
#include "runtime/launch/examine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/contract/stacks_file.h"
#include "runtime/launch/process.h"
#include "runtime/launch/symbols.h"

#define SAMPLE_NS (NS_PER_S)
#define PAUSE_NS  (200 * NS_PER_MS) /* before the second dump; twice before the third */
#define POLL_NS   (10 * NS_PER_MS)
#define DUMP_NS   (700 * NS_PER_MS)
#define ANSWER_NS (1800 * NS_PER_MS)

struct examined {
    struct examined_process process;
    struct hang_sample a, b;
    char *dumps[HANG_DUMPS_MAX];
    const char *why_no_dump;
    int fd;          /* of its file of stacks, locked; -1: it is not asked */
    bool is_asked;   /* a dump is expected */
    bool uses_other; /* another thread answers for the main one */
    struct hang_finding finding;
};

struct examination {
    _Atomic int refs;
    _Atomic bool is_done;
    int done_fd;
    bool only_ours;
    char stats_dir[1100];
    size_t n;
    struct examined *v;
    const struct hang_finding **findings;
};

static void examination_unref(struct examination *e)
{
    /* acq_rel: the last holder sees what the other one has done */
    if (!e || atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < e->n && e->v; i++) {
        fd_close(&e->v[i].fd);
        for (int round = 0; round < HANG_DUMPS_MAX; round++)
            mem_free(e->v[i].dumps[round]);
    }
    fd_close(&e->done_fd);
    mem_free(e->v);
    mem_free(e->findings);
    mem_free(e);
}

static void examination_nap(uint64_t ns)
{
    struct timespec t = clock_timespec(ns);

    (void)nanosleep(&t, NULL);
}

/* --- dumps --- */

/* It is emptied: a link may not make it another file. -1: there is none. */
static int stacks_open(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1))
        fd_close(&fd);
    return fd;
}

/* Opens the file of the process, or sets why_no_dump. */
static void examined_open(const struct examination *e, struct examined *x)
{
    uint32_t pid = x->process.pid;
    char path[1200];

    (void)snprintf(path, sizeof(path), "%s/%s%u", e->stats_dir, STACKS_FILE, pid);
    if (x->b.is_gone || x->b.n == 0)
        x->why_no_dump = "the process has ended";
    else if (x->b.v[0].state == 'T' || x->b.v[0].state == 't')
        x->why_no_dump = "the process is stopped";
    else if (x->b.v[0].state == 'Z')
        x->why_no_dump = "the process has ended";
    else if (!process_catches(pid, STACKS_SIGNAL))
        x->why_no_dump = "the process has no handler for them (HVD_STACKS=0?)";
    else
        x->fd = stacks_open(path);
    if (x->fd < 0 && !x->why_no_dump[0])
        x->why_no_dump = "the process has no file of them in HVD_STATS_DIR";
    if (x->fd >= 0 && flock(x->fd, LOCK_EX | LOCK_NB) < 0) {
        x->why_no_dump = "another program examines the process";
        fd_close(&x->fd);
    }
}

static void examined_signal(const struct examined *x, uint32_t tid)
{
    /* Fails if it has ended meanwhile: then no dump comes. */
    (void)syscall(SYS_tgkill, x->process.pid, tid, STACKS_SIGNAL);
}

static void examined_ask_other(struct examined *x)
{
    uint32_t tid = process_find_thread(x->process.pid, STACKS_SIGNAL);

    x->uses_other = true;
    if (tid > 0)
        examined_signal(x, tid);
}

static void examined_ask(struct examined *x)
{
    uint32_t pid = x->process.pid;

    if (x->fd < 0 || ftruncate(x->fd, 0) < 0)
        return;
    x->is_asked = true;
    if (x->uses_other || process_blocks(pid, STACKS_SIGNAL))
        examined_ask_other(x);
    else
        examined_signal(x, pid);
}

/* The text of a dump that is complete; NULL: it is not yet. The caller frees it. */
static char *dump_read(int fd)
{
    AUTOFREE char *text = mem_alloc(STACKS_MAX_BYTES + 1);
    static const char end[] = "\n" STACKS_END "\n";
    ssize_t n = text ? pread(fd, text, STACKS_MAX_BYTES, 0) : -1;

    if (n <= 0)
        return NULL;
    text[n] = '\0';
    return strstr(text, end) ? mem_strdup(text) : NULL;
}

static bool examination_collect(struct examination *e, int round)
{
    bool is_waiting = false;

    for (size_t i = 0; i < e->n; i++) {
        struct examined *x = &e->v[i];

        if (!x->is_asked)
            continue;
        x->dumps[round] = dump_read(x->fd);
        x->is_asked = !x->dumps[round];
        is_waiting = is_waiting || x->is_asked;
    }
    return is_waiting;
}

static void examination_dump(struct examination *e, int round)
{
    uint64_t begin_ns = clock_now_ns();

    for (size_t i = 0; i < e->n; i++)
        examined_ask(&e->v[i]);
    while (examination_collect(e, round) && clock_now_ns() < begin_ns + ANSWER_NS) {
        examination_nap(POLL_NS);
        for (size_t i = 0; i < e->n && clock_now_ns() >= begin_ns + DUMP_NS; i++)
            if (e->v[i].is_asked && !e->v[i].uses_other)
                examined_ask_other(&e->v[i]);
    }
    for (size_t i = 0; i < e->n; i++) {
        struct examined *x = &e->v[i];

        if (!x->is_asked)
            continue;
        x->is_asked = false;
        fd_close(&x->fd);
        if (!x->dumps[0])
            x->why_no_dump = "no thread of the process answers";
    }
}

/* --- the thread --- */

static void examined_find(struct examined *x)
{
    const struct hang_input in = {.a = &x->a,
                                  .b = &x->b,
                                  .ticks_per_s = (uint32_t)sysconf(_SC_CLK_TCK),
                                  .dumps = {x->dumps[0], x->dumps[1], x->dumps[2]},
                                  .why_no_dump = x->why_no_dump,
                                  .gpu = x->process.gpu};

    x->finding.rank = x->process.rank;
    x->finding.pid = x->process.pid;
    if (hang_find(&in, &x->finding) < 0)
        x->finding.cause = LIVE_CAUSE_UNKNOWN;
}

/* The pid may be a page's of long ago. */
static void examination_sample(struct examination *e)
{
    for (size_t i = 0; i < e->n; i++) {
        struct examined *x = &e->v[i];

        process_sample(x->process.pid, &x->a);
        if (e->only_ours && !process_is_descendant(x->process.pid))
            x->a.is_gone = true;
    }
    examination_nap(SAMPLE_NS);
    for (size_t i = 0; i < e->n; i++) {
        struct examined *x = &e->v[i];

        process_sample(x->process.pid, &x->b);
        x->b.is_gone =
            x->b.is_gone || x->a.is_gone || x->b.start_ticks != x->a.start_ticks;
        examined_open(e, x);
    }
}

static void *examination_main(void *arg)
{
    struct examination *e = arg;
    const uint64_t one = 1;

    (void)pthread_setname_np(pthread_self(), "hvd-examine");
    examination_sample(e);
    for (int round = 0; round < HANG_DUMPS_MAX; round++) {
        if (round > 0)
            examination_nap(round * PAUSE_NS);
        examination_dump(e, round);
    }
    for (size_t i = 0; i < e->n; i++) {
        fd_close(&e->v[i].fd);
        symbols_name_dumps(e->v[i].process.pid, e->v[i].dumps, HANG_DUMPS_MAX);
        examined_find(&e->v[i]);
    }
    atomic_store_explicit(&e->is_done, true, memory_order_release);
    (void)!write(e->done_fd, &one, sizeof(one)); /* its counter is 0: cannot fail */
    examination_unref(e);
    return NULL;
}

/* --- the caller --- */

static int examination_new(const struct examined_process *v,
                           size_t n,
                           const char *stats_dir,
                           struct examination **ret)
{
    struct examination *e = mem_zalloc(sizeof(*e));

    if (!e)
        return -ENOMEM;
    atomic_init(&e->refs, 1);
    e->done_fd = -1;
    e->v = mem_calloc(n + 1, sizeof(*e->v));
    e->findings = mem_calloc(n + 1, sizeof(struct hang_finding *));
    if (!e->v || !e->findings) {
        examination_unref(e);
        return -ENOMEM;
    }
    (void)snprintf(e->stats_dir, sizeof(e->stats_dir), "%s", stats_dir);
    e->n = n;
    for (size_t i = 0; i < n; i++) {
        e->v[i].process = v[i];
        e->v[i].why_no_dump = "";
        e->v[i].fd = -1;
        e->findings[i] = &e->v[i].finding;
    }
    *ret = e;
    return 0;
}

int examination_start(const struct examined_process *v,
                      size_t n,
                      const char *stats_dir,
                      bool only_ours,
                      struct examination **ret,
                      struct err *err)
{
    struct examination *e;
    pthread_t thread;
    int rc = examination_new(v, n, stats_dir, &e);

    if (rc < 0)
        return err_set(err, rc, "out of memory for an examination");
    e->only_ours = only_ours;
    e->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (e->done_fd < 0) {
        rc = err_errno(err, errno, "cannot create an eventfd");
        examination_unref(e);
        return rc;
    }
    atomic_store(&e->refs, 2);
    rc = thread_start(&thread, examination_main, e);
    if (rc != 0) {
        atomic_store(&e->refs, 1);
        examination_unref(e);
        return err_errno(err, rc, "cannot start a thread");
    }
    (void)pthread_detach(thread);
    *ret = e;
    return 0;
}

int examination_fd(const struct examination *e)
{
    return e->done_fd;
}

bool examination_is_done(const struct examination *e)
{
    return atomic_load_explicit(&e->is_done, memory_order_acquire);
}

const struct hang_finding *const *examination_findings(const struct examination *e,
                                                       size_t *ret_n)
{
    *ret_n = e->n;
    return e->findings;
}

void examination_free(struct examination *e)
{
    examination_unref(e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's file and the thread that writes it.
 *
 * The thread reads the ring every LOOK_NS (the seat never wakes it, so that recording
 * costs only the slot), and at once when another rank's message arrives. Records are
 * written over the closing bracket at the end of the file, which is written again in
 * the same pwrite: the file is valid JSON at any time, also after a crash. The clock
 * offset of a rank is measured until its first events arrive and is then fixed, so that
 * time does not go back. A file that cannot be written ends the timeline with one
 * warning.
 *
 * Lock: f->lock guards the received messages and the two conditions; a leaf. */
#include "runtime/observe/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "hvd.h"

static const uint64_t LOOK_NS = 50 * NS_PER_MS;
static const size_t TEXT_AIM = 1u << 20;         /* written when there is this much */
static const size_t RECEIVED_LIMIT = 256u << 20; /* bytes that wait for the disk */

struct received {
    struct received *next;
    uint32_t rank;
    uint64_t now_ns; /* of arrival */
    struct trace_up head;
    size_t n;
    uint8_t events[];
};

struct rank_clock {
    struct trace_clock clock;
    bool is_fixed;
    int64_t ahead_ns;
};

struct timeline_file {
    struct timeline *t;
    /* lock */
    pthread_mutex_t lock;
    pthread_cond_t work, last; /* there is work for the thread; n_last has grown */
    struct received *head, **tail;
    size_t received_bytes;
    uint32_t n_last;
    bool must_end;
    /* Used by the thread; before and after it by open and close. */
    struct trace *trace;
    struct rank_clock *clocks; /* by rank */
    struct strbuf text;
    uint64_t at; /* offset in the file of the next record */
    int fd;
    bool is_broken;
    char path[1024];
    pthread_t thread;
};

/* --- writing --- */

static void file_give_up(struct timeline_file *f, int errnum)
{
    f->is_broken = true;
    atomic_store(&f->t->is_on, false);
    log_warn("cannot write the timeline, continuing without it", "file=%s cause=\"%s\"",
             f->path, strerror(errnum));
}

static int file_write_at(int fd, const char *p, size_t n, uint64_t at)
{
    while (n > 0) {
        ssize_t k = pwrite(fd, p, n, (off_t)at);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        p += k;
        n -= (size_t)k;
        at += (size_t)k;
    }
    return 0;
}

static void file_flush(struct timeline_file *f)
{
    size_t n = f->text.n;
    int rc;

    if (n == 0 || f->is_broken)
        return;
    strbuf_puts(&f->text, TRACE_TAIL);
    rc = strbuf_status(&f->text);
    rc = rc < 0 ? rc : file_write_at(f->fd, f->text.p, f->text.n, f->at);
    if (rc < 0)
        file_give_up(f, -rc);
    f->at += n;
    strbuf_clear(&f->text);
}

static void file_put_event(struct timeline_file *f,
                           uint32_t rank,
                           const struct trace_event *ev,
                           int64_t ahead_ns)
{
    size_t n = f->text.n;

    if (trace_put(f->trace, rank, ev, ahead_ns, &f->text) < 0) {
        f->text.n = n; /* no half record */
        f->text.status = 0;
        atomic_fetch_add(&f->t->n_dropped, 1);
    }
    if (f->text.n >= TEXT_AIM)
        file_flush(f);
}

static void file_drain_ring(struct timeline_file *f)
{
    struct timeline *t = f->t;
    uint64_t at = atomic_load_explicit(&t->read, memory_order_relaxed);
    /* acquire: the slots before it are whole */
    uint64_t end = atomic_load_explicit(&t->written, memory_order_acquire);
    uint64_t n_dropped;

    for (; at < end; at++) {
        file_put_event(f, 0, &t->slots[at % TIMELINE_SLOTS], 0);
        /* release: the slot is free */
        atomic_store_explicit(&t->read, at + 1, memory_order_release);
    }
    n_dropped = atomic_exchange(&t->n_dropped, 0);
    if (n_dropped > 0)
        trace_put_dropped(f->trace, 0, clock_now_ns(), n_dropped, &f->text);
}

static void file_put_received(struct timeline_file *f, const struct received *p)
{
    struct rank_clock *c = &f->clocks[p->rank];
    struct bytes_reader in = {.p = p->events, .left = p->n};
    struct trace_event ev;

    if (!c->is_fixed) {
        trace_clock_add(&c->clock, p->head.least_down_ns,
                        (int64_t)(p->now_ns - p->head.sent_ns));
        c->ahead_ns = trace_clock_ahead_ns(&c->clock);
        c->is_fixed = p->n > 0;
    }
    while (trace_read_event(&in, &ev, NULL) > 0)
        file_put_event(f, p->rank, &ev, c->ahead_ns);
    if (p->head.n_dropped > 0)
        trace_put_dropped(f->trace, p->rank, p->now_ns, p->head.n_dropped, &f->text);
}

/* --- the thread --- */

static void file_write_pending(struct timeline_file *f, struct received *p)
{
    struct received *next;

    file_drain_ring(f);
    for (; p; p = next) {
        next = p->next;
        file_put_received(f, p);
        mem_free(p);
    }
    file_flush(f);
}

/* With the lock: the messages received since the last call. */
static struct received *file_take_received(struct timeline_file *f)
{
    struct received *p = f->head;

    f->head = NULL;
    f->tail = &f->head;
    f->received_bytes = 0;
    return p;
}

static void *file_thread_main(void *arg)
{
    struct timeline_file *f = arg;
    bool is_over = false;

    while (!is_over) {
        uint64_t until = clock_now_ns() + LOOK_NS;
        struct timespec ts = clock_timespec(until);
        struct received *p;

        (void)pthread_mutex_lock(&f->lock);
        if (!f->must_end && !f->head)
            (void)pthread_cond_timedwait(&f->work, &f->lock, &ts); /* early is fine */
        is_over = f->must_end;
        p = file_take_received(f);
        (void)pthread_mutex_unlock(&f->lock);
        file_write_pending(f, p);
    }
    return NULL;
}

static int file_start_thread(struct timeline_file *f, struct err *err)
{
    int rc = thread_start(&f->thread, file_thread_main, f);

    if (rc != 0)
        return err_set(err, HVD_NO_MEMORY, "cannot start the timeline's thread: %s",
                       strerror(rc));
    (void)pthread_setname_np(f->thread, "hvd-timeline");
    return 0;
}

/* --- life --- */

static void file_free(struct timeline_file *f)
{
    fd_close(&f->fd);
    trace_free(f->trace);
    strbuf_release(&f->text);
    mem_free(f->clocks);
    (void)pthread_cond_destroy(&f->work);
    (void)pthread_cond_destroy(&f->last);
    (void)pthread_mutex_destroy(&f->lock);
    mem_free(f);
}

static int file_begin(struct timeline_file *f, struct err *err)
{
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (f->fd < 0)
        return err_set(err, HVD_INVALID_ARGUMENT, "timeline: cannot create %.300s: %s",
                       f->path, strerror(errno));
    trace_head(clock_wall_us(), &f->text);
    file_flush(f);
    if (f->is_broken)
        return err_set(err, HVD_INVALID_ARGUMENT, "timeline: cannot write %.300s",
                       f->path);
    return file_start_thread(f, err);
}

int timeline_file_open(struct timeline *t,
                       const char *path,
                       struct timeline_file **ret,
                       struct err *err)
{
    struct timeline_file *f;
    int rc;

    if (strlen(path) >= sizeof(f->path))
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "timeline: path longer than %zu characters",
                       sizeof(f->path) - 1);
    f = mem_zalloc(sizeof(*f));
    if (!f)
        return err_set(err, HVD_NO_MEMORY, "out of memory for the timeline");
    f->t = t;
    f->fd = -1;
    f->tail = &f->head;
    memcpy(f->path, path, strlen(path) + 1);
    (void)pthread_mutex_init(&f->lock, NULL);
    clock_init_cond(&f->work);
    clock_init_cond(&f->last);
    strbuf_init(&f->text, 16u << 20);
    f->trace = trace_new(clock_now_ns());
    f->clocks = mem_calloc(t->size, sizeof(*f->clocks));
    rc = !f->trace || !f->clocks
             ? err_set(err, HVD_NO_MEMORY, "out of memory for the timeline")
             : file_begin(f, err);
    if (rc < 0)
        file_free(f);
    else
        *ret = f;
    return rc;
}

void timeline_file_wait(struct timeline_file *f, uint32_t n, uint64_t deadline_ns)
{
    struct timespec ts = clock_timespec(deadline_ns);
    int rc = 0;

    (void)pthread_mutex_lock(&f->lock);
    while (rc == 0 && f->n_last < n)
        rc = pthread_cond_timedwait(&f->last, &f->lock, &ts);
    (void)pthread_mutex_unlock(&f->lock);
}

uint32_t timeline_file_n_last(struct timeline_file *f)
{
    uint32_t n;

    (void)pthread_mutex_lock(&f->lock);
    n = f->n_last;
    (void)pthread_mutex_unlock(&f->lock);
    return n;
}

void timeline_file_close(struct timeline_file *f)
{
    (void)pthread_mutex_lock(&f->lock);
    f->must_end = true;
    (void)pthread_cond_signal(&f->work);
    (void)pthread_mutex_unlock(&f->lock);
    (void)pthread_join(f->thread, NULL);
    file_write_pending(
        f, file_take_received(f)); /* what arrived while the thread stopped */
    trace_close(f->trace, clock_now_ns(), &f->text);
    file_flush(f);
    file_free(f);
}

int timeline_file_receive(struct timeline_file *f,
                          uint32_t rank,
                          uint64_t now_ns,
                          const struct trace_up *head,
                          const uint8_t *p,
                          size_t n)
{
    struct received *new = mem_alloc(sizeof(*new) + n);
    uint64_t n_lost = 0;

    if (!new)
        return -ENOMEM;
    *new = (struct received){.rank = rank, .now_ns = now_ns, .head = *head, .n = n};
    if (n > 0)
        memcpy(new->events, p, n);
    (void)pthread_mutex_lock(&f->lock);
    if (f->received_bytes + n > RECEIVED_LIMIT) { /* the disk does not keep up */
        new->n = 0;
        n_lost = n;
    }
    f->received_bytes += new->n;
    *f->tail = new;
    f->tail = &new->next;
    if (head->is_last)
        f->n_last++;
    (void)pthread_cond_signal(&f->work);
    (void)pthread_cond_broadcast(&f->last);
    (void)pthread_mutex_unlock(&f->lock);
    if (n_lost > 0)
        atomic_fetch_add(&f->t->n_dropped, 1); /* at least one */
    return 0;
}

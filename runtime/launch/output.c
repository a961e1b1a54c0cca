/* SPDX-License-Identifier: Apache-2.0 */
/* Rank pipes -> lines -> prefix -> our stdout or stderr, and the last lines for
 * failure reports:
 *
 *   rank pipe --64 KiB--> lines --line-+-> tail (last 20)
 *                  |                   '-> sink queue --POLLOUT--> our stdout
 *                  '--> output_files.c: DIR/rank.N/stdout, unchanged
 *
 * The launcher must react to Ctrl-C and to the exit of ranks even if the reader of
 * its output is slow. O_NONBLOCK would also change the descriptor of the shell that
 * shares it. Therefore pipes are written in pieces of PIPE_BUF after poll has
 * reported that such a piece fits, and rank pipes are not read while the queue is
 * long. If the reader is gone, output is dropped and the training continues. Every
 * other loss, at the end of a stopped job, is counted and reported for each rank.
 * Called by local_ranks.c, remote.c and remote_output.c. */
#include "runtime/launch/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define QUEUE_HIGH_BYTES (256u << 10) /* beyond this, ranks that run are not read */
#define QUEUE_END_BYTES  (32u << 20)  /* beyond this, no rank is read */
#define READ_BYTES       65536
/* Prefixes let a read of empty lines grow by at most this factor; and as much again may
 * be written but not yet removed. */
#define QUEUE_MAX_BYTES  (2 * (QUEUE_END_BYTES + 64u * READ_BYTES))
/* of a pipe whose rank has exited: another process may write to it forever */
#define END_READ_BYTES   (1u << 20)

static void sink_init(struct sink *s, int fd)
{
    struct stat st;
    memset(s, 0, sizeof(*s));
    s->fd = fd;
    s->is_pipe = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode);
    strbuf_init(&s->queue, QUEUE_MAX_BYTES);
}

static size_t sink_waiting(const struct sink *s)
{
    return s->queue.n - s->n_sent;
}

/* Removes written lines. Only whole lines, so that the queue starts with a prefix, and
 * many at once, because the rest is moved. */
static void sink_forget(struct sink *s)
{
    struct strbuf *q = &s->queue;
    size_t n = s->n_sent;
    if (n < q->n) {
        const char *end = n > q->n / 2 ? memrchr(q->p, '\n', n) : NULL;
        n = end ? (size_t)(end - q->p) + 1 : 0;
    }
    if (!n)
        return;
    memmove(q->p, q->p + n, q->n - n);
    q->n -= n;
    q->p[q->n] = '\0';
    s->n_sent -= n;
}

static bool sink_ready(const struct sink *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    return !s->is_pipe || poll(&p, 1, 0) > 0;
}

static void sink_flush(struct sink *s)
{
    while (sink_waiting(s) && !s->is_broken && sink_ready(s)) {
        size_t n = sink_waiting(s);
        if (s->is_pipe && n > PIPE_BUF)
            n = PIPE_BUF;
        ssize_t w = write(s->fd, s->queue.p + s->n_sent, n);
        if (w > 0)
            s->n_sent += (size_t)w;
        else if (w < 0 && errno == EAGAIN)
            break;
        else if (w < 0 && errno != EINTR)
            s->is_broken = true;
    }
    if (s->is_broken)
        s->n_sent = s->queue.n;
    sink_forget(s);
}

static void stream_put_line(void *arg, const char *text, size_t n)
{
    struct rank_stream *s = arg;
    struct rank_output *r = s->rank;
    int which = s == &r->stream[1];
    struct sink *sink = &r->output->sink[which];
    size_t n_before = sink->queue.n;
    tail_add(&r->tail, text, n);
    if (sink->is_broken || r->output->forward.put)
        return;
    if (r->output->with_timestamp) {
        time_t now = time(NULL);
        struct tm tm;
        char when[32] = "";
        if (localtime_r(&now, &tm))
            (void)strftime(when, sizeof(when), "%a %b %e %H:%M:%S %Y", &tm);
        strbuf_puts(&sink->queue, when);
    }
    strbuf_printf(&sink->queue, "[%u]<%s>:", r->rank, which ? "stderr" : "stdout");
    strbuf_add(&sink->queue, text, n);
    strbuf_putc(&sink->queue, '\n');
    if (strbuf_status(&sink->queue) < 0) { /* out of memory: lose lines, not the job */
        sink->queue.status = 0;
        sink->queue.n = n_before; /* no partial line */
        s->n_lost += n;
    }
}

int output_init(struct output *o, const struct output_config *c, struct err *err)
{
    memset(o, 0, sizeof(*o));
    o->ranks = mem_calloc(c->n ? c->n : 1, sizeof(*o->ranks));
    if (!o->ranks)
        return err_set(err, -ENOMEM, "out of memory for the output of %u ranks", c->n);
    o->n = c->n;
    o->with_timestamp = c->with_timestamp;
    o->forward = c->forward;
    sink_init(&o->sink[0], c->out_fd);
    sink_init(&o->sink[1], c->err_fd);
    for (uint32_t i = 0; i < c->n; i++) {
        struct rank_output *r = &o->ranks[i];
        r->rank = c->ranks[i];
        r->output = o;
        for (int k = 0; k < 2; k++) {
            lines_init(&r->stream[k].lines);
            r->stream[k].fd = -1;
            r->stream[k].rank = r;
        }
    }
    int rc =
        c->dir ? output_files_new(c->dir, c->n, c->ranks, c->size, &o->files, err) : 0;
    if (rc < 0)
        output_release(o);
    return rc;
}

void output_release(struct output *o)
{
    for (uint32_t i = 0; i < o->n; i++) {
        for (int k = 0; k < 2; k++) {
            fd_close(&o->ranks[i].stream[k].fd);
            lines_release(&o->ranks[i].stream[k].lines);
        }
    }
    output_files_free(o->files);
    mem_free(o->ranks);
    strbuf_release(&o->sink[0].queue);
    strbuf_release(&o->sink[1].queue);
    memset(o, 0, sizeof(*o));
}

void output_attach(struct output *o, uint32_t i, int stdout_fd, int stderr_fd)
{
    (void)fd_nonblock(stdout_fd, true); /* cannot fail for a pipe */
    (void)fd_nonblock(stderr_fd, true);
    o->ranks[i].stream[0].fd = stdout_fd;
    o->ranks[i].stream[1].fd = stderr_fd;
}

static bool output_is_held_up(const struct output *o, int which, size_t n_high)
{
    if (o->forward.put)
        return o->forward.is_full(o->forward.arg);
    return sink_waiting(&o->sink[which]) > n_high
           || (n_high == QUEUE_HIGH_BYTES && output_files_is_full(o->files));
}

bool output_is_full(const struct output *o)
{
    return output_is_held_up(o, 0, QUEUE_HIGH_BYTES)
           || output_is_held_up(o, 1, QUEUE_HIGH_BYTES);
}

uint64_t output_due_ns(const struct output *o, uint64_t deadline_ns)
{
    uint64_t due_ns = output_files_due_ns(o->files);
    return due_ns < deadline_ns ? due_ns : deadline_ns;
}

nfds_t output_pollfds(const struct output *o, struct pollfd *p)
{
    nfds_t n = 0;
    for (int k = 0; k < 2; k++) {
        int fd = sink_waiting(&o->sink[k]) ? o->sink[k].fd : -1;
        p[n++] = (struct pollfd){.fd = fd, .events = POLLOUT};
    }
    for (uint32_t i = 0; i < o->n; i++)
        for (int k = 0; k < 2; k++) {
            bool is_left = output_is_held_up(o, k, QUEUE_HIGH_BYTES);
            int fd = is_left ? -1 : o->ranks[i].stream[k].fd;
            p[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
        }
    p[n++] = output_files_pollfd(o->files);
    return n;
}

static void stream_end(struct rank_stream *s)
{
    lines_end(&s->lines, stream_put_line, s);
    fd_close(&s->fd);
}

static void stream_take_bytes(struct rank_stream *s, const char *p, size_t n)
{
    struct output *o = s->rank->output;
    int which = s == &s->rank->stream[1];
    if (o->forward.put)
        o->forward.put(o->forward.arg, s->rank->rank, which, p, n);
    output_files_put(o->files, (uint32_t)(s->rank - o->ranks), which, p, n);
    (void)lines_feed(&s->lines, p, n, stream_put_line, s);
}

/* Reads once. Returns the bytes, or 0 if there is no data or the pipe has ended. */
static size_t stream_read(struct rank_stream *s)
{
    char buf[READ_BYTES];
    ssize_t n = read(s->fd, buf, sizeof(buf));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        stream_end(s);
        return 0;
    }
    stream_take_bytes(s, buf, (size_t)n);
    return (size_t)n;
}

/* Reads until there is no data, the budget is spent or the queue exceeds n_high. True
 * if there is no more data. */
static bool stream_empty(struct rank_stream *s, size_t *budget, size_t n_high)
{
    const struct output *o = s->rank->output;
    while (s->fd >= 0 && *budget
           && !output_is_held_up(o, s == &s->rank->stream[1], n_high)) {
        size_t n = stream_read(s);
        if (!n)
            return true;
        *budget -= n < *budget ? n : *budget;
    }
    return s->fd < 0 || !*budget;
}

static void output_flush(struct output *o)
{
    sink_flush(&o->sink[0]);
    sink_flush(&o->sink[1]);
    output_files_serve(o->files, sink_ready(&o->sink[1]));
}

void output_feed(struct output *o, uint32_t i, int which, const void *p, size_t n)
{
    struct rank_stream *s = &o->ranks[i].stream[which];
    if (n)
        stream_take_bytes(s, p, n);
    else
        lines_end(&s->lines, stream_put_line, s);
    output_flush(o);
}

void output_detach(struct output *o, uint32_t i)
{
    for (int k = 0; k < 2; k++)
        stream_end(&o->ranks[i].stream[k]);
    memset(&o->ranks[i].tail, 0, sizeof(o->ranks[i].tail));
}

void output_set_rank(struct output *o, uint32_t i, uint32_t rank)
{
    o->ranks[i].rank = rank;
}

void output_serve(struct output *o, const struct pollfd *p, nfds_t n)
{
    for (nfds_t j = 2; j + 1 < n; j++)
        if (p[j].fd >= 0 && p[j].revents
            && !output_is_held_up(o, j % 2, QUEUE_HIGH_BYTES))
            (void)stream_read(&o->ranks[(j - 2) / 2].stream[j % 2]);
    output_flush(o);
}

void output_rank_ended(struct output *o, uint32_t i)
{
    for (int k = 0; k < 2; k++) {
        struct rank_stream *s = &o->ranks[i].stream[k];
        size_t budget = END_READ_BYTES;
        if (stream_empty(s, &budget, QUEUE_END_BYTES))
            lines_end(&s->lines, stream_put_line, s);
    }
    output_flush(o);
}

bool output_drain(struct output *o)
{
    bool is_empty = true;
    for (uint32_t i = 0; i < o->n; i++)
        for (int k = 0; k < 2; k++) {
            struct rank_stream *s = &o->ranks[i].stream[k];
            if (!o->is_draining)
                s->n_left = END_READ_BYTES;
            if (stream_empty(s, &s->n_left, QUEUE_HIGH_BYTES))
                stream_end(s);
            else
                is_empty = false;
        }
    o->is_draining = true;
    output_flush(o);
    return is_empty && output_files_end(o->files) && !sink_waiting(&o->sink[0])
           && !sink_waiting(&o->sink[1]);
}

static struct rank_stream *output_stream_of(struct output *o, uint32_t rank, int which)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (o->ranks[i].rank == rank)
            return &o->ranks[i].stream[which];
    return NULL;
}

/* Adds the unwritten part of a sink, prefixes included, to the losses of its ranks. */
static void output_count_queue(struct output *o, int which)
{
    struct sink *sink = &o->sink[which];
    for (size_t at = 0, n; at < sink->queue.n; at += n) {
        const char *line = sink->queue.p + at;
        const char *end = memchr(line, '\n', sink->queue.n - at);
        /* a timestamp has no '[' */
        const char *rank = memchr(line, '[', sink->queue.n - at);
        n = end ? (size_t)(end - line) + 1 : sink->queue.n - at;
        size_t n_sent = sink->n_sent > at ? sink->n_sent - at : 0;
        struct rank_stream *s =
            rank ? output_stream_of(o, (uint32_t)strtoul(rank + 1, NULL, 10), which)
                 : NULL;
        if (s && n_sent < n)
            s->n_lost += n - n_sent;
    }
}

void output_report_lost(struct output *o)
{
    for (int k = 0; k < 2; k++)
        output_count_queue(o, k);
    for (uint32_t i = 0; i < o->n; i++)
        for (int k = 0; k < 2; k++) {
            struct rank_stream *s = &o->ranks[i].stream[k];
            int unread = 0;
            if (s->fd >= 0 && ioctl(s->fd, FIONREAD, &unread) == 0 && unread > 0)
                s->n_lost += (size_t)unread;
            /* no warning if stderr is not read either */
            if (s->n_lost && sink_ready(&o->sink[1]))
                log_warn("output dropped, its reader is too slow",
                         "rank=%u stream=%s bytes=%zu", o->ranks[i].rank,
                         k ? "stderr" : "stdout", s->n_lost);
        }
    if (sink_ready(&o->sink[1]))
        output_files_report_lost(o->files);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the fake: a queue and a thread each; one lock for all. A stream without
 * work sleeps on its own condition; threads that wait for others' progress share one.
 * An entry waits (for an event or for another stream's entries), calls, records, in
 * this order. The legacy stream waits for the work of blocking streams, and they wait
 * for it. */
#include "tests/fakes/cuda/fake_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct entry *fake_entry(int (*fn)(void *), const void *arg, size_t bytes)
{
    struct entry *e = fake_zalloc(sizeof(*e) + bytes);

    e->fn = fn;
    e->bytes = bytes;
    if (bytes)
        memcpy(e->arg, arg, bytes);
    return e;
}

static bool may_begin(const struct entry *e)
{
    if (fake.sticky)
        return true;
    return !e->wait_stream || e->wait_stream->n_done >= e->number;
}

/* Before its n-th entry. */
static void stream_pause(uint64_t n)
{
    unsigned us = fake.delay_us;

    if (fake.jitter_us)
        us += (unsigned)((n + fake.jitter_us) * 0x9e3779b97f4a7c15u >> 32)
              % fake.jitter_us;
    if (us)
        usleep(us);
}

static void stream_run_head(struct cu_stream_s *s)
{
    struct entry *e = s->head;

    while (!may_begin(e))
        pthread_cond_wait(&fake.moved, &fake.lock);
    if (e->fn && !fake.sticky) {
        pthread_mutex_unlock(&fake.lock);
        stream_pause(s->n_done);
        int rc = e->fn(e->arg);
        pthread_mutex_lock(&fake.lock);
        if (rc != 0 && fake.sticky == 0)
            fake.sticky = rc;
    }
    s->head = e->next;
    if (!s->head)
        s->tail = &s->head;
    s->n_done++;
    free(e);
    pthread_cond_broadcast(&fake.moved);
}

static void *stream_main(void *arg)
{
    struct cu_stream_s *s = arg;

    LOCK_HERE(&fake.lock);
    for (;;) {
        while (!s->head && !s->is_ending)
            pthread_cond_wait(&s->moved, &fake.lock);
        if (!s->head)
            break;
        stream_run_head(s);
    }
    s->is_busy = false; /* the memory stays: others may wait for its count */
    return NULL;
}

cu_stream fake_stream_make(cu_ctx c, bool is_blocking, bool is_legacy)
{
    struct cu_stream_s *s = fake_zalloc(sizeof(*s));
    pthread_attr_t a;
    pthread_t t;

    s->ctx = c;
    s->is_blocking = is_blocking;
    s->is_legacy = is_legacy;
    s->is_busy = true;
    s->tail = &s->head;
    s->next = c->streams;
    c->streams = s;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&t, &a, stream_main, s) != 0)
        hvd_fake_die("no thread for a stream");
    pthread_attr_destroy(&a);
    return s;
}

cu_stream fake_stream(cu_stream s)
{
    static __thread cu_stream of_thread[16];
    cu_ctx c = fake_current();

    if (!s || s == (cu_stream)1)
        return c->legacy;
    if (s == (cu_stream)2) {
        cu_stream *mine = &of_thread[c->device];
        return *mine ? *mine : (*mine = fake_stream_make(c, true, false));
    }
    for (int i = 0; i < 16; i++)
        for (cu_stream t = fake.ctx[i].streams; t; t = t->next)
            if (t == s && !t->is_ending)
                return s;
    hvd_fake_die("%p is no stream that lives", (void *)s);
}

static void stream_append(cu_stream s, struct entry *e)
{
    *s->tail = e;
    s->tail = &e->next;
    s->n_queued++;
    pthread_cond_signal(&s->moved);
}

static void append_wait(cu_stream s, cu_stream other)
{
    if (other->n_done >= other->n_queued)
        return;
    struct entry *w = fake_entry(NULL, NULL, 0);
    w->wait_stream = other;
    w->number = other->n_queued;
    stream_append(s, w);
}

bool fake_captures_blocking(cu_ctx c)
{
    for (cu_stream s = c->streams; s; s = s->next)
        if (s->is_blocking && s->capture)
            return true;
    return false;
}

/* What a capture forbids; what implies a dependency on one breaks it. */
static int capture_refusal(cu_stream s)
{
    if (s->capture)
        return s->capture_status == CU_CAPTURE_BROKEN ? CU_CAPTURE_INVALIDATED : 0;
    if (!s->is_legacy || !fake_captures_blocking(s->ctx))
        return 0;
    for (cu_stream o = s->ctx->streams; o; o = o->next)
        if (o->is_blocking && o->capture)
            o->capture_status = CU_CAPTURE_BROKEN;
    return CU_CAPTURE_IMPLICIT;
}

int fake_push(cu_stream s, struct entry *e)
{
    int rc = capture_refusal(s);

    if (rc) {
        free(e);
        return rc;
    }
    if (s->capture) {
        *s->capture->tail = e;
        s->capture->tail = &e->next;
        return 0;
    }
    if (s->is_legacy) {
        for (cu_stream o = s->ctx->streams; o; o = o->next)
            if (o != s && o->is_blocking)
                append_wait(s, o);
    } else if (s->is_blocking && s->ctx->legacy) {
        append_wait(s, s->ctx->legacy);
    }
    stream_append(s, e);
    return 0;
}

void fake_wait_stream(cu_stream s)
{
    uint64_t n = s->n_queued;

    while (s->n_done < n)
        pthread_cond_wait(&fake.moved, &fake.lock);
}

void fake_wait_idle(cu_ctx c)
{
    for (cu_stream s = c->streams; s; s = s->next)
        fake_wait_stream(s);
}

void fake_graph_clear(cu_graph g)
{
    while (g->head) {
        struct entry *e = g->head;
        g->head = e->next;
        free(e);
    }
    g->tail = &g->head;
}

int hvd_fake_enqueue(cu_stream stream,
                     int (*fn)(void *arg),
                     const void *arg,
                     size_t bytes)
{
    FAKE_ENTER(true);
    LOCK_HERE(&fake.lock);
    return fake_push(fake_stream(stream), fake_entry(fn, arg, bytes));
}

unsigned long hvd_fake_n_waits(cu_stream stream)
{
    LOCK_HERE(&fake.lock);
    return fake_stream(stream)->n_waits;
}

bool hvd_fake_is_capturing(cu_stream stream)
{
    if (!fake_current())
        return false;
    LOCK_HERE(&fake.lock);
    return fake_stream(stream)->capture != NULL;
}

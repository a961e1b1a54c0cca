/* SPDX-License-Identifier: Apache-2.0 */
/* Converts events to Chrome's trace format.
 *
 * A track is one tensor on one rank. Its state, and the effect of each event (close:
 * the number of spans that end; open: the event's span begins):
 *
 *               NEGOTIATE     TICK           START         ACTIVITY       END
 *   IDLE        open, NEG     open, NEG      open, TOP     -              -
 *   NEGOTIATING -             -              close 1,      -              close 1,
 *                                            open, TOP                    IDLE
 *   TOP         close 1,      -              close 1,      open,          close 1,
 *               open, NEG                    open, TOP     ACTIVE         IDLE
 *   ACTIVE      close 2,      -              close 2,      close 1,       close 2,
 *               open, NEG                    open, TOP     open, ACTIVE   IDLE
 *
 * A TICK also writes its mark, except in TOP and ACTIVE: there it belongs to the next
 * step of a rank that is ahead. The runtime never causes some of these transitions
 * (START in TOP); they keep the file readable when the ring dropped events. Time never
 * goes back on a track.
 *
 * The name of a GPU tensor is free when its batch is posted, so its next step may begin
 * before the GPU has finished this one. That cuts the span; the END of the cut span,
 * which arrives later, is left out. Called by observe/timeline_file.c's writer thread. */
#include "runtime/core/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"
#include "runtime/core/nametab.h"
#include "runtime/core/set_id.h"

enum track_state {
    TRACK_IDLE,
    TRACK_NEGOTIATING,
    TRACK_TOP,
    TRACK_ACTIVE,
    TRACK_COUNT
};

struct trace_edge {
    int8_t close; /* -1: the event is left out */
    bool opens;
    uint8_t next;
};

static const struct trace_edge edges[TRACK_COUNT][TRACE_KIND_OF_TENSOR] = {
    [TRACK_IDLE] = {[TRACE_NEGOTIATE] = {0, true, TRACK_NEGOTIATING},
                    [TRACE_TICK] = {0, true, TRACK_NEGOTIATING},
                    [TRACE_START] = {0, true, TRACK_TOP},
                    [TRACE_ACTIVITY] = {-1, false, TRACK_IDLE},
                    [TRACE_END] = {-1, false, TRACK_IDLE}},
    [TRACK_NEGOTIATING] = {[TRACE_NEGOTIATE] = {-1, false, TRACK_NEGOTIATING},
                           [TRACE_TICK] = {0, false, TRACK_NEGOTIATING},
                           [TRACE_START] = {1, true, TRACK_TOP},
                           [TRACE_ACTIVITY] = {-1, false, TRACK_NEGOTIATING},
                           [TRACE_END] = {1, false, TRACK_IDLE}},
    [TRACK_TOP] = {[TRACE_NEGOTIATE] = {1, true, TRACK_NEGOTIATING},
                   [TRACE_TICK] = {-1, false, TRACK_TOP},
                   [TRACE_START] = {1, true, TRACK_TOP},
                   [TRACE_ACTIVITY] = {0, true, TRACK_ACTIVE},
                   [TRACE_END] = {1, false, TRACK_IDLE}},
    [TRACK_ACTIVE] = {[TRACE_NEGOTIATE] = {2, true, TRACK_NEGOTIATING},
                      [TRACE_TICK] = {-1, false, TRACK_ACTIVE},
                      [TRACE_START] = {2, true, TRACK_TOP},
                      [TRACE_ACTIVITY] = {1, true, TRACK_ACTIVE},
                      [TRACE_END] = {2, false, TRACK_IDLE}},
};

struct tensor {               /* a "process" */
    struct nametab_node node; /* set 0; first member */
    struct tensor *next;
    uint32_t pid;
    char name[TRACE_NAME_MAX];
};

struct track {                /* a "thread" of it */
    struct nametab_node node; /* set: the rank; first member */
    struct track *next;
    struct tensor *tensor;
    uint64_t last_ns;
    uint32_t n_cut; /* spans cut before the GPU had finished them */
    uint8_t state;
    bool is_device; /* ACTIVE: the open activity is TRACE_DEVICE */
};

struct trace {
    uint64_t begin_ns;
    struct nametab tensors, tracks;
    struct tensor *all_tensors; /* newest first */
    struct track *all_tracks;
};

void trace_name(struct trace_event *ev, uint32_t process_set, const char *name)
{
    char suffix[32] = "";
    size_t n = strlen(name), room;
    uint32_t hash = 2166136261u; /* FNV-1a */
    int k = 0;

    if (process_set != 0)
        k = snprintf(suffix, sizeof(suffix), "@%u", set_number(process_set));
    if (n + (size_t)k >= TRACE_NAME_MAX) {
        for (size_t i = 0; i < n; i++)
            hash = (hash ^ (uint8_t)name[i]) * 16777619u;
        (void)snprintf(suffix + k, sizeof(suffix) - (size_t)k, "~%08x", hash);
    }
    room = TRACE_NAME_MAX - 1 - strlen(suffix);
    if (n > room)
        n = room;
    memcpy(ev->name, name, n);
    memcpy(ev->name + n, suffix, strlen(suffix) + 1);
}

/* --- JSON --- */

/* Writes the end of a record: time, process and thread. */
static void record_put_place(
    const struct trace *t, uint64_t ns, uint32_t pid, uint32_t rank, struct strbuf *out)
{
    uint64_t at = ns > t->begin_ns ? ns - t->begin_ns : 0;

    strbuf_printf(out, "\"ts\":%" PRIu64 ".%03u,\"pid\":%u,\"tid\":%u}", at / 1000,
                  (unsigned)(at % 1000), pid, rank);
}

static void record_put_name(const struct trace_event *ev, struct strbuf *out)
{
    static const char *const activities[TRACE_ACTIVITY_COUNT] = {
        [TRACE_ALLOCATE_OUTPUT] = "ALLOCATE_OUTPUT",
        [TRACE_INIT_DEVICE] = "INIT_NCCL",
    };
    const char *coll = collective_name((enum collective)ev->coll);

    if (ev->kind == TRACE_NEGOTIATE || ev->kind == TRACE_TICK)
        strbuf_printf(out, "NEGOTIATE_%s", coll);
    else if (ev->kind == TRACE_START)
        strbuf_puts(out, coll);
    else if (ev->activity == TRACE_TRANSFER)
        strbuf_printf(out, "CPU_%s", coll);
    else if (ev->activity == TRACE_DEVICE)
        strbuf_printf(out, "NCCL_%s", coll);
    else
        strbuf_puts(out, activities[ev->activity]);
}

void trace_head(uint64_t begin_wall_us, struct strbuf *out)
{
    strbuf_printf(out,
                  "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{"
                  "\"name\":\"cycles\",\"start_time_since_epoch_in_micros\":%" PRIu64
                  "}}",
                  begin_wall_us);
}

/* --- tracks --- */

struct trace *trace_new(uint64_t begin_ns)
{
    struct trace *t = mem_zalloc(sizeof(*t));

    if (t)
        t->begin_ns = begin_ns;
    return t;
}

void trace_free(struct trace *t)
{
    if (!t)
        return;
    nametab_release(&t->tracks);
    nametab_release(&t->tensors);
    for (struct track *k = t->all_tracks, *next; k; k = next) {
        next = k->next;
        mem_free(k);
    }
    for (struct tensor *n = t->all_tensors, *next; n; n = next) {
        next = n->next;
        mem_free(n);
    }
    mem_free(t);
}

static struct tensor *
trace_find_tensor(struct trace *t, const char *name, struct strbuf *out)
{
    struct tensor *n = (struct tensor *)(void *)nametab_find(&t->tensors, 0, name);

    if (n)
        return n;
    n = mem_zalloc(sizeof(*n));
    if (!n)
        return NULL;
    memcpy(n->name, name, strlen(name) + 1);
    n->node.name = n->name;
    if (nametab_add(&t->tensors, &n->node) < 0) {
        mem_free(n);
        return NULL;
    }
    n->pid = (uint32_t)t->tensors.n;
    n->next = t->all_tensors;
    t->all_tensors = n;
    strbuf_printf(
        out,
        ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"",
        n->pid);
    utf8_put_json(name, out);
    strbuf_printf(out,
                  "\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%u,"
                  "\"args\":{\"sort_index\":%u}}",
                  n->pid, n->pid);
    return n;
}

static struct track *
trace_find_track(struct trace *t, uint32_t rank, const char *name, struct strbuf *out)
{
    struct track *k = (struct track *)(void *)nametab_find(&t->tracks, rank, name);
    struct tensor *n;

    if (k)
        return k;
    if (t->tracks.n >= TRACE_MAX_TRACKS)
        return NULL;
    n = trace_find_tensor(t, name, out);
    k = n ? mem_zalloc(sizeof(*k)) : NULL;
    if (!k)
        return NULL;
    k->tensor = n;
    k->node.name = n->name;
    k->node.set = rank;
    if (nametab_add(&t->tracks, &k->node) < 0) {
        mem_free(k);
        return NULL;
    }
    k->next = t->all_tracks;
    t->all_tracks = k;
    strbuf_printf(out,
                  ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
                  "\"args\":{\"name\":\"rank %u\"}}",
                  n->pid, rank, rank);
    return k;
}

/* --- events --- */

static void track_close_spans(const struct trace *t,
                              const struct track *k,
                              int n,
                              const struct trace_event *ev,
                              struct strbuf *out)
{
    for (; n > 0; n--) {
        strbuf_puts(out, ",\n{\"ph\":\"E\",");
        if (n == 1 && ev && ev->kind == TRACE_END && k->state != TRACK_NEGOTIATING)
            strbuf_printf(out, "\"args\":{\"dtype\":\"%s\",\"bytes\":%" PRIu64 "},",
                          dtype_name((enum dtype)ev->dtype), ev->bytes);
        record_put_place(t, k->last_ns, k->tensor->pid, k->node.set, out);
    }
}

static void
trace_put_cycle(const struct trace *t, uint32_t rank, uint64_t ns, struct strbuf *out)
{
    strbuf_puts(out, ",\n{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"s\":\"g\",");
    record_put_place(t, ns, 0, rank, out);
}

void trace_put_dropped(
    struct trace *t, uint32_t rank, uint64_t ns, uint64_t n, struct strbuf *out)
{
    strbuf_printf(out,
                  ",\n{\"ph\":\"i\",\"name\":\"DROPPED\",\"s\":\"g\",\"args\":{"
                  "\"events\":%" PRIu64 "},",
                  n);
    record_put_place(t, ns, 0, rank, out);
    for (struct track *k = t->all_tracks; k; k = k->next)
        if (k->node.set == rank) /* their ENDs may be lost */
            k->n_cut = 0;
}

static void track_put_event(const struct trace *t,
                            struct track *k,
                            const struct trace_event *ev,
                            uint64_t ns,
                            struct strbuf *out)
{
    const struct trace_edge *e = &edges[k->state][ev->kind];
    const bool is_device = ev->activity == TRACE_DEVICE;

    if (ev->kind == TRACE_END && is_device && k->n_cut > 0) {
        k->n_cut--;
        return;
    }
    if (e->close < 0)
        return;
    if (k->state == TRACK_ACTIVE && k->is_device && e->next < TRACK_ACTIVE
        && ev->kind != TRACE_END)
        k->n_cut++;
    k->is_device = ev->kind == TRACE_ACTIVITY && is_device;
    if (ns > k->last_ns)
        k->last_ns = ns;
    track_close_spans(t, k, e->close, ev, out);
    k->state = e->next;
    if (e->opens) {
        strbuf_puts(out, ",\n{\"ph\":\"B\",\"name\":\"");
        record_put_name(ev, out);
        strbuf_puts(out, "\",");
        record_put_place(t, k->last_ns, k->tensor->pid, k->node.set, out);
    }
    if (ev->kind == TRACE_TICK) {
        strbuf_printf(out, ",\n{\"ph\":\"X\",\"name\":\"%u\",\"dur\":0,", ev->rank);
        record_put_place(t, k->last_ns, k->tensor->pid, k->node.set, out);
    }
}

int trace_put(struct trace *t,
              uint32_t rank,
              const struct trace_event *ev,
              int64_t ahead_ns,
              struct strbuf *out)
{
    uint64_t ns = ev->ns - (uint64_t)ahead_ns;
    struct track *k, before;

    if (ev->kind == TRACE_CYCLE) {
        trace_put_cycle(t, rank, ns, out);
        return strbuf_status(out);
    }
    k = trace_find_track(t, rank, ev->name, out);
    if (!k)
        return -ENOMEM;
    before = *k;
    track_put_event(t, k, ev, ns, out);
    if (strbuf_status(out) < 0)
        *k = before; /* its records were not written */
    return strbuf_status(out);
}

void trace_close(struct trace *t, uint64_t now_ns, struct strbuf *out)
{
    static const int8_t open[TRACK_COUNT] = {
        [TRACK_NEGOTIATING] = 1, [TRACK_TOP] = 1, [TRACK_ACTIVE] = 2};

    for (struct track *k = t->all_tracks; k; k = k->next) {
        if (open[k->state] > 0 && now_ns > k->last_ns)
            k->last_ns = now_ns;
        track_close_spans(t, k, open[k->state], NULL, out);
        k->state = TRACK_IDLE;
    }
}

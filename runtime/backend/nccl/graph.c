/* SPDX-License-Identifier: Apache-2.0 */
/* Capture and replay.
 *
 * Design: kernels read their tables from device memory, so a graph holds no address of
 * a tensor. Addresses may change from step to step; only the table is uploaded again,
 * before the replay and outside the graph, over the same memory. `place` identifies
 * what a graph does hold (the buffer that is packed into). When it changes, the batch
 * is captured again at once, never run uncaptured. That happens on all ranks or on
 * none, because the buffer depends on this communicator's batches alone
 * (graphs_buffer): NCCL may communicate with other ranks during a capture (about
 * buffers that it registers for graphs).
 *
 * The capture belongs to this thread (a framework may capture concurrently, and NCCL's
 * own threads may allocate). It is always ended, also after an error inside it. A call
 * about the whole context would break it: device.whole is held.
 *
 * An executable graph is freed when its stream is seen idle; the driver's manual does
 * not allow it earlier. If more than GRAPHS_RETIRED wait for that, they are leaked:
 * that is a communicator whose buffer moves at every batch.
 *
 * NCCL does not end a communicator while a graph holds one of its calls: graphs are
 * freed before it is finalized or aborted.
 *
 * Invariant: an entry with exec has tables of the captured sizes at the captured
 * addresses. Called by the collectives on the launcher. */
#include "runtime/backend/nccl/graph.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"

void graphs_init(struct graphs *g,
                 const struct cuda_api *cu,
                 struct tables *tables,
                 cu_stream stream,
                 pthread_mutex_t *whole)
{
    *g = (struct graphs){.cu = cu, .tables = tables, .stream = stream, .whole = whole};
}

static void retired_free(struct graphs *g)
{
    /* an error here means that the context is lost */
    while (g->n_retired > 0)
        (void)g->cu->graph_exec_free(g->retired[--g->n_retired]);
}

static void exec_retire(struct graphs *g, struct graph_entry *e)
{
    if (e->exec && g->n_retired < GRAPHS_RETIRED)
        g->retired[g->n_retired++] = e->exec;
    e->exec = NULL;
}

static void entry_drop(struct graphs *g, struct graph_entry *e)
{
    exec_retire(g, e);
    table_drop(g->tables, &e->in);
    table_drop(g->tables, &e->out);
    mem_free(e->key);
    *e = (struct graph_entry){0};
}

void graphs_release(struct graphs *g)
{
    if (!g->cu)
        return;
    for (size_t i = 0; i < GRAPHS_KEPT; i++) {
        retired_free(g);
        entry_drop(g, &g->kept[i]);
    }
    retired_free(g);
    memory_give(g->tables->memory, g->buffer, g->stream);
    g->buffer = 0;
}

struct graphs *graphs_new(const struct cuda_api *cu,
                          struct tables *tables,
                          const cu_stream *streams,
                          uint32_t n,
                          pthread_mutex_t *whole)
{
    struct graphs *v = mem_calloc(n, sizeof(*v));
    for (uint32_t i = 0; v != NULL && i < n; i++)
        graphs_init(&v[i], cu, tables, streams[i], whole);
    return v;
}

void graphs_free(struct graphs *v, uint32_t n)
{
    for (uint32_t i = 0; v != NULL && i < n; i++)
        graphs_release(&v[i]);
    mem_free(v);
}

/* The entry of this key; else a new one in place of the least recently used. */
static struct graph_entry *
entry_of(struct graphs *g, const struct graph_batch *b, struct err *err)
{
    struct graph_entry *oldest = &g->kept[0];
    for (size_t i = 0; i < GRAPHS_KEPT; i++) {
        struct graph_entry *e = &g->kept[i];
        if (e->key && e->key_bytes == b->key_bytes
            && memcmp(e->key, b->key, b->key_bytes) == 0)
            return e;
        if (e->used < oldest->used)
            oldest = e;
    }
    entry_drop(g, oldest);
    oldest->key = mem_alloc(b->key_bytes);
    if (!oldest->key) {
        (void)err_set(err, -ENOMEM, "no memory for a graph's key");
        return NULL;
    }
    memcpy(oldest->key, b->key, b->key_bytes);
    oldest->key_bytes = b->key_bytes;
    return oldest;
}

int graphs_buffer(
    struct graphs *g, uint64_t bytes, cu_ptr *ret, uint32_t *ret_place, struct err *err)
{
    uint64_t n = (bytes + FUSION_GRANULE - 1) / FUSION_GRANULE * FUSION_GRANULE;
    cu_ptr at;

    if (bytes > g->buffer_bytes) {
        int rc = memory_take(g->tables->memory, n, g->stream, &at, err);
        if (rc < 0)
            return err_prefix(err, "the buffer of graphs");
        memory_give(g->tables->memory, g->buffer, g->stream);
        g->buffer = at;
        g->buffer_bytes = n;
        g->n_moves++;
    }
    *ret = g->buffer;
    *ret_place = g->n_moves;
    return 0;
}

static int run_as_it_is(struct graphs *g, const struct graph_batch *b, struct err *err)
{
    cu_ptr in = 0, out = 0;
    int rc = 0;
    if (b->n_in > 0)
        rc = table_take(g->tables, b->in, b->n_in, g->stream, &in, err);
    if (rc == 0 && b->n_out > 0)
        rc = table_take(g->tables, b->out, b->n_out, g->stream, &out, err);
    return rc < 0 ? rc : b->enqueue(b->arg, in, out, err);
}

static int capture_calls(struct graphs *g,
                         struct graph_entry *e,
                         const struct graph_batch *b,
                         cu_graph *ret,
                         struct err *err)
{
    int rc = CUDA_TRY(g->cu, capture_begin, err, g->stream, CU_CAPTURE_THREAD_LOCAL);
    if (rc < 0)
        return rc;
    rc = b->enqueue(b->arg, e->in.at, e->out.at, err);
    int end = CUDA_TRY(g->cu, capture_end, rc < 0 ? NULL : err, g->stream, ret);
    return rc < 0 ? rc : end;
}

/* Its holder may wait for the device, and that for a dead peer: a stop must find this
 * thread outside. */
static int graphs_lock_whole(struct graphs *g, struct err *err)
{
    int rc = 0;
    while (rc == 0 && pthread_mutex_trylock(g->whole) != 0)
        rc = g->tables->wait(g->tables->arg, err);
    return rc;
}

static int graph_capture(struct graphs *g,
                         struct graph_entry *e,
                         const struct graph_batch *b,
                         struct err *err)
{
    cu_graph graph = NULL;
    int rc = graphs_lock_whole(g, err);
    if (rc < 0)
        return rc;
    rc = capture_calls(g, e, b, &graph, err);
    (void)pthread_mutex_unlock(g->whole);
    if (rc == 0)
        rc = CUDA_TRY(g->cu, graph_make, err, &e->exec, graph, 0);
    if (rc < 0)
        e->exec = NULL;
    if (graph)
        (void)g->cu->graph_free(graph); /* the executable one has all it needs */
    if (rc < 0)
        return rc;
    e->place = b->place;
    e->n_in = b->n_in;
    e->n_out = b->n_out;
    g->n_captured++;
    return 0;
}

static int tables_put(struct graphs *g,
                      struct graph_entry *e,
                      const struct graph_batch *b,
                      struct err *err)
{
    cu_ptr in = e->in.at, out = e->out.at;
    int rc = 0;
    if (b->n_in > 0)
        rc = table_put(g->tables, &e->in, b->in, b->n_in, g->stream, err);
    if (rc == 0 && b->n_out > 0)
        rc = table_put(g->tables, &e->out, b->out, b->n_out, g->stream, err);
    if (in != e->in.at || out != e->out.at)
        exec_retire(g, e);
    return rc;
}

int graph_run(struct graphs *g, const struct graph_batch *b, struct err *err)
{
    struct graph_entry *e = entry_of(g, b, err);
    if (!e)
        return -ENOMEM;
    e->used = ++g->clock;
    e->runs += e->runs < GRAPHS_FROM;
    if (e->runs < GRAPHS_FROM)
        return run_as_it_is(g, b, err);
    if (g->n_retired > 0 && g->cu->stream_query(g->stream) == CU_OK)
        retired_free(g);
    int rc = tables_put(g, e, b, err);
    if (rc < 0)
        return rc;
    if (e->exec && (e->place != b->place || e->n_in != b->n_in || e->n_out != b->n_out))
        exec_retire(g, e);
    if (!e->exec)
        rc = graph_capture(g, e, b, err);
    else
        g->n_replayed++;
    return rc < 0 ? rc : CUDA_TRY(g->cu, graph_launch, err, e->exec, g->stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Packed batches as CUDA graphs: pack, the NCCL call and unpack are captured at the
 * third occurrence of the same batch, and replayed by one driver call from then on.
 *
 * Whether a batch is captured is a function of the earlier batches on this
 * communicator and stream, so it is equal on all ranks. The launcher's alone, our
 * context current. */
#ifndef RUNTIME_BACKEND_NCCL_GRAPH_H
#define RUNTIME_BACKEND_NCCL_GRAPH_H

#include <pthread.h>

#include "runtime/backend/nccl/cuda_dl.h"
#include "runtime/backend/nccl/table.h"

#define GRAPHS_KEPT    64
#define GRAPHS_FROM    3 /* which occurrence of a batch is captured */
#define GRAPHS_RETIRED 16

struct graph_batch {
    /* Everything that the NCCL calls and kernels depend on except the tables and
     * `place`; equal on all ranks. Copied. */
    const void *key;
    size_t key_bytes;
    /* Changes when an address that enqueue uses has changed: the batch is captured
     * again. */
    uint64_t place;
    /* Of pack and unpack; if their numbers change, the batch is captured again. Their
     * contents are local to this rank. */
    const struct chunk *in, *out;
    uint32_t n_in, n_out; /* 0: none */
    /* Puts everything on the stream, with these tables; does not wait. */
    int (*enqueue)(void *arg, cu_ptr in, cu_ptr out, struct err *err);
    void *arg;
};

struct graph_entry {
    void *key;
    size_t key_bytes;
    uint64_t used, place;
    uint32_t runs; /* at most GRAPHS_FROM */
    uint32_t n_in, n_out;
    cu_graph_exec exec;
    struct table_entry in, out;
};

struct graphs { /* of one communicator and stream */
    const struct cuda_api *cu;
    struct tables *tables;
    cu_stream stream;
    pthread_mutex_t *whole; /* device.whole */
    uint64_t clock;
    uint64_t n_captured, n_replayed; /* for statistics and tests */
    struct graph_entry kept[GRAPHS_KEPT];
    cu_ptr buffer; /* graphs_buffer's */
    uint64_t buffer_bytes;
    uint32_t n_moves;                      /* of it */
    cu_graph_exec retired[GRAPHS_RETIRED]; /* until the stream is idle */
    uint32_t n_retired;
};

/* Only with a driver that has graph_make (11.4), see comm_terms.uses_graphs. The
 * pointers outlive it. */
void graphs_init(struct graphs *g,
                 const struct cuda_api *cu,
                 struct tables *tables,
                 cu_stream stream,
                 pthread_mutex_t *whole);
void graphs_release(struct graphs *g); /* the stream is idle, or the context lost */
/* One for each of streams[n]; NULL: out of memory. */
struct graphs *graphs_new(const struct cuda_api *cu,
                          struct tables *tables,
                          const cu_stream *streams,
                          uint32_t n,
                          pthread_mutex_t *whole);
void graphs_free(struct graphs *v, uint32_t n); /* accepts NULL */
/* Memory that these batches pack into, at least bytes. *ret_place: how often it has
 * moved, which depends on the batches of this communicator alone, unlike the fusion
 * buffer that all communicators of a rank share. Contents do not survive growing. */
int graphs_buffer(struct graphs *g,
                  uint64_t bytes,
                  cu_ptr *ret,
                  uint32_t *ret_place,
                  struct err *err);
int graph_run(struct graphs *g, const struct graph_batch *b, struct err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A batch through all that moves it, on the fake driver: layout, chunks, tables, the
 * image's kernels, and the same as a graph. No NCCL: what is packed is doubled on its
 * way and unpacked again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/backend/nccl/fuse.h"
#include "runtime/backend/nccl/graph.h"
#include "runtime/backend/nccl/launch.h"
#include "runtime/core/half.h"
#include "tests/unit/gpu_fake.h"

enum { MAX_TENSORS = 4096, MAX_CHUNKS = 8192 };

static struct {
    cu_ctx ctx;
    cu_stream s;
    struct event_pool *events;
    struct gpu_memory *memory;
    struct gpu_scratch scratch;
    struct tables tables;
    struct gpu_launch launch;
    pthread_mutex_t whole; /* zero */
    struct graphs graphs;
} t;

/* A batch of f32 tensors that travel as f16 or f32. */
static struct {
    size_t n;
    uint64_t counts[MAX_TENSORS], offsets[MAX_TENSORS], n_elements;
    cu_ptr in, out; /* of all tensors, one behind the other */
    cu_ptr buffer;
    struct fuse_plan plan;
    struct chunk pack[MAX_CHUNKS], unpack[MAX_CHUNKS];
    uint32_t n_chunks;
} b;

static int wait_for_pinned(void *arg, struct err *err)
{
    (void)arg;
    (void)err;
    usleep(20);
    return 0;
}

static bool pack_begin(void)
{
    struct err err = ERR_INIT;
    size_t bytes = (size_t)(kernels_image_end - kernels_image);

    fake_begin();
    assert_int_equal(fake.cu.init(0), 0);
    assert_int_equal(fake.cu.ctx_retain(&t.ctx, 0), 0);
    assert_int_equal(fake.cu.ctx_push(t.ctx), 0);
    assert_int_equal(fake.cu.stream_new(&t.s, CU_STREAM_NON_BLOCKING, 0), 0);
    t.events = event_pool_new(&fake.cu, t.ctx);
    assert_non_null(t.events);
    assert_int_equal(memory_new(&fake.cu, t.ctx, 0, 1u << 20, &t.memory, &err), 0);
    scratch_init(&t.scratch, &fake.cu, t.events, t.memory);
    tables_init(&t.tables, &fake.cu, t.memory, &t.scratch, wait_for_pinned, NULL);
    graphs_init(&t.graphs, &fake.cu, &t.tables, t.s, &t.whole);
    if (image_count(kernels_image, bytes, &err) == 0)
        return false; /* KERNELS=none */
    if (launch_init(&t.launch, &fake.cu, kernels_image, bytes, 90, 2, false, &err) < 0)
        fail_msg("%s", err.text);
    return true;
}

static void stream_synchronise(void)
{
    WAIT_UNTIL(fake.cu.stream_query(t.s) == CU_OK);
}

static void pack_end(void)
{
    stream_synchronise();
    graphs_release(&t.graphs);
    tables_release(&t.tables);
    launch_release(&t.launch);
    memory_give(t.memory, b.in, t.s);
    memory_give(t.memory, b.out, t.s);
    memset(&b, 0, sizeof(b));
    stream_synchronise();
    scratch_release(&t.scratch);
    (void)fake.cu.ctx_sync();
    memory_free(t.memory);
    event_pool_unref(t.events);
    assert_int_equal(fake.cu.stream_free(t.s), 0);
    assert_int_equal(fake.n_blocks(), 0);
    assert_int_equal(fake.cu.ctx_pop(&t.ctx), 0);
    memset(&t, 0, sizeof(t));
}

static float value_of(uint64_t i, unsigned step)
{
    return (float)((i * 7 + step) % 1000) * 0.25f - 100;
}

/* Tensor i begins at in + first[i] floats, back to front if wanted. */
static void tables_fill(bool is_reversed)
{
    uint64_t at = 0;
    b.n_chunks = 0;
    uint32_t n_out = 0;
    for (size_t i = 0; i < b.n; i++) {
        uint64_t first = is_reversed ? b.n_elements - at - b.counts[i] : at;
        uint32_t wire = (uint32_t)dtype_size(b.plan.wire);
        struct fuse_move in = {.src = b.in + 4 * first,
                               .dst = b.buffer + b.offsets[i],
                               .count = b.counts[i],
                               .src_size = 4,
                               .dst_size = wire};
        struct fuse_move out = {.src = b.buffer + b.offsets[i],
                                .dst = b.out + 4 * first,
                                .count = b.counts[i],
                                .src_size = wire,
                                .dst_size = 4};
        assert_true(b.n_chunks + fuse_chunk_count(&in) <= MAX_CHUNKS);
        b.n_chunks += (uint32_t)fuse_chunks(&in, b.pack + b.n_chunks);
        n_out += (uint32_t)fuse_chunks(&out, b.unpack + n_out);
        at += b.counts[i];
    }
    assert_int_equal(n_out, b.n_chunks);
}

static void batch_plan(size_t n, uint64_t (*count)(size_t i), enum dtype wire)
{
    static const struct comm_terms terms = {.direct_bytes = 8u << 20};
    struct err err = ERR_INIT;

    b.n = n;
    for (size_t i = 0; i < n; i++) {
        b.counts[i] = count(i);
        b.n_elements += b.counts[i];
    }
    assert_int_equal(0,
                     fuse_plan(b.counts, n, DT_F32, wire, &terms, &b.plan, b.offsets));
    assert_int_equal(b.plan.way, FUSE_PACKED);
    assert_int_equal(0, memory_take(t.memory, 4 * b.n_elements, t.s, &b.in, &err));
    assert_int_equal(0, memory_take(t.memory, 4 * b.n_elements, t.s, &b.out, &err));
    assert_int_equal(
        0, scratch_fusion(&t.scratch, 0, b.plan.wire_bytes, t.s, &b.buffer, &err));
    tables_fill(false);
}

static int batch_enqueue(void *arg, cu_ptr pack, cu_ptr unpack, struct err *err)
{
    bool is_half = b.plan.wire == DT_F16;
    struct args_move in = {.chunks = pack, .n = b.n_chunks, .divisor = 1, .scale = 2};
    struct args_move out = {
        .chunks = unpack, .n = b.n_chunks, .divisor = 1, .scale = 1};
    (void)arg;
    int rc =
        launch_kernel(&t.launch, is_half ? KERNEL_move_f32_f16 : KERNEL_move_f32_f32,
                      b.n_chunks, &in, t.s, err);
    return rc < 0 ? rc
                  : launch_kernel(&t.launch,
                                  is_half ? KERNEL_move_f16_f32 : KERNEL_move_f32_f32,
                                  b.n_chunks, &out, t.s, err);
}

static void input_fill(unsigned step)
{
    float *v = malloc(4 * b.n_elements);
    for (uint64_t i = 0; i < b.n_elements; i++)
        v[i] = value_of(i, step);
    assert_int_equal(0, fake.cu.copy_up(b.in, v, 4 * b.n_elements, t.s));
    stream_synchronise();
    free(v);
}

static void output_check(unsigned step)
{
    float *v = malloc(4 * b.n_elements);
    assert_int_equal(0, fake.cu.copy_down(v, b.out, 4 * b.n_elements, t.s));
    stream_synchronise();
    for (uint64_t i = 0; i < b.n_elements; i++) {
        float want = 2 * value_of(i, step);
        if (b.plan.wire == DT_F16)
            want = f32_of_f16(f16_of_f32(want));
        if (v[i] != want)
            fail_msg("element %lu: %g, not %g", (unsigned long)i, (double)v[i],
                     (double)want);
    }
    free(v);
}

static void run_once(unsigned step)
{
    struct err err = ERR_INIT;
    cu_ptr pack, unpack;
    input_fill(step);
    assert_int_equal(0, table_take(&t.tables, b.pack, b.n_chunks, t.s, &pack, &err));
    assert_int_equal(0,
                     table_take(&t.tables, b.unpack, b.n_chunks, t.s, &unpack, &err));
    assert_int_equal(0, batch_enqueue(NULL, pack, unpack, &err));
    output_check(step);
}

static uint64_t odd_counts(size_t i)
{
    return i % 7 == 0 ? 0 : (i * 37) % 3001;
}

static uint64_t small_counts(size_t i)
{
    return 1 + i % 3;
}

static void tensors_come_back_in_their_places(void **state)
{
    static const enum dtype wires[] = {DT_F32, DT_F16};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        if (pack_begin()) {
            batch_plan(300, odd_counts, wires[i]);
            run_once(1);
            tables_fill(true);
            run_once(2);
        }
        pack_end();
    }
}

static void thousands_of_tensors_are_one_launch(void **state)
{
    (void)state;
    if (pack_begin()) {
        batch_plan(MAX_TENSORS, small_counts, DT_F16);
        assert_int_equal(b.n_chunks, MAX_TENSORS);
        run_once(5);
        assert_int_equal(t.tables.n_uploads, 2);
        run_once(6);
        assert_int_equal(t.tables.n_uploads, 2);
    }
    pack_end();
}

static void graph_gives_the_same_with_other_addresses(void **state)
{
    uint32_t key = 1;
    struct err err = ERR_INIT;
    (void)state;
    if (pack_begin()) {
        batch_plan(300, odd_counts, DT_F32);
        for (unsigned step = 0; step < 8; step++) {
            struct graph_batch g = {.key = &key,
                                    .key_bytes = sizeof(key),
                                    .in = b.pack,
                                    .out = b.unpack,
                                    .n_in = b.n_chunks,
                                    .n_out = b.n_chunks,
                                    .enqueue = batch_enqueue};
            tables_fill(step % 3 == 1);
            g.n_in = g.n_out = b.n_chunks;
            input_fill(step);
            if (graph_run(&t.graphs, &g, &err) < 0)
                fail_msg("%s", err.text);
            output_check(step);
        }
        assert_int_equal(t.graphs.n_captured, 1);
        assert_int_equal(t.graphs.n_replayed, 5);
    }
    pack_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_back_in_their_places),
        cmocka_unit_test(thousands_of_tensors_are_one_launch),
        cmocka_unit_test(graph_gives_the_same_with_other_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

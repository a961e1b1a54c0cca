/* SPDX-License-Identifier: Apache-2.0 */
/* Two streams of the fake driver with events, memory and scratch buffers. */
#ifndef TESTS_UNIT_GPU_MEMORY_H
#define TESTS_UNIT_GPU_MEMORY_H

#include "runtime/backend/nccl/scratch.h"
#include "tests/unit/gpu_fake.h"

static struct {
    cu_ctx ctx;
    cu_stream a, b;
    struct event_pool *events;
    struct gpu_memory *memory;
    struct gpu_scratch scratch;
} t;

static inline void memory_begin(const char *nopool)
{
    struct err err = ERR_INIT;

    fake_begin_as("12040", "1", nopool);
    assert_int_equal(fake.cu.init(0), 0);
    assert_int_equal(fake.cu.ctx_retain(&t.ctx, 0), 0);
    assert_int_equal(fake.cu.ctx_push(t.ctx), 0);
    assert_int_equal(fake.cu.stream_new(&t.a, CU_STREAM_NON_BLOCKING, 0), 0);
    assert_int_equal(fake.cu.stream_new(&t.b, CU_STREAM_NON_BLOCKING, 0), 0);
    t.events = event_pool_new(&fake.cu, t.ctx);
    assert_non_null(t.events);
    assert_int_equal(memory_new(&fake.cu, t.ctx, 0, 1u << 20, &t.memory, &err), 0);
    scratch_init(&t.scratch, &fake.cu, t.events, t.memory);
}

static inline void memory_end(void)
{
    WAIT_UNTIL(fake.cu.stream_query(t.a) == CU_OK
               && fake.cu.stream_query(t.b) == CU_OK);
    scratch_release(&t.scratch);
    (void)fake.cu.ctx_sync();
    memory_free(t.memory);
    event_pool_unref(t.events);
    assert_int_equal(fake.cu.stream_free(t.a), 0);
    assert_int_equal(fake.cu.stream_free(t.b), 0);
    assert_int_equal(fake.n_blocks(), 0);
    assert_int_equal(fake.n_events(), 0);
    assert_int_equal(fake.cu.ctx_pop(&t.ctx), 0);
}

#endif

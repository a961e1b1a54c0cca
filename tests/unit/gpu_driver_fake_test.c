/* SPDX-License-Identifier: Apache-2.0 */
/* What ends a test on the fake driver, and the order of the legacy stream. The rest is
 * compared with a real driver by tests/gpu/conform_driver.c. */
#include "tests/unit/gpu_fake.h"

static cu_ctx ctx;
static cu_stream a, b, free_one; /* blocking, blocking, not */

static void streams_begin(void)
{
    fake_begin();
    assert_int_equal(fake.cu.init(0), 0);
    assert_int_equal(fake.cu.ctx_retain(&ctx, 0), 0);
    assert_int_equal(fake.cu.ctx_push(ctx), 0);
    assert_int_equal(fake.cu.stream_new(&a, 0, 0), 0);
    assert_int_equal(fake.cu.stream_new(&b, 0, 0), 0);
    assert_int_equal(fake.cu.stream_new(&free_one, CU_STREAM_NON_BLOCKING, 0), 0);
}

static void streams_end(void)
{
    assert_int_equal(fake.cu.ctx_sync(), 0);
    assert_int_equal(fake.cu.stream_free(a), 0);
    assert_int_equal(fake.cu.stream_free(b), 0);
    assert_int_equal(fake.cu.stream_free(free_one), 0);
    assert_int_equal(fake.cu.ctx_pop(&ctx), 0);
}

static cu_ptr block;

static int uses_it_freed(void)
{
    int v = 1;
    (void)fake.cu.mem_free(block);
    (void)fake.cu.copy_up(block, &v, sizeof(v), a);
    return 0;
}

static int copies_past_its_end(void)
{
    (void)fake.cu.set_d8(block + 90, 0, 11, a);
    return 0;
}

static int frees_it_twice(void)
{
    struct gate gate;
    gate_put(&gate, a);
    (void)fake.cu.mem_free_async(block, a);
    (void)fake.cu.mem_free_async(block, a);
    return 0;
}

static int uses_a_freed_event(void)
{
    cu_event e;
    (void)fake.cu.event_new(&e, 0);
    (void)fake.cu.event_free((cu_event)(void *)&(uint64_t[8]){0});
    return 0;
}

static int sends_host_memory(void)
{
    (void)fake.cu.copy(block, (cu_ptr)(uintptr_t)&block, 4, a);
    return 0;
}

static int (*wrong)(void);

static int does_it(void)
{
    streams_begin();
    if (fake.cu.mem_alloc(&block, 100) != 0)
        return 1;
    return wrong();
}

/* In children, before this process uses CUDA. */
UNIT_TEST(wrong_use_dies)
{
    static int (*const all[])(void) = {copies_past_its_end, frees_it_twice,
                                       uses_a_freed_event, sends_host_memory,
                                       uses_it_freed};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        wrong = all[i];
        assert_int_equal(in_child(does_it), 1000 + SIGABRT);
    }
}

static _Atomic int counted;

static int count_entry(void *arg)
{
    int n;

    memcpy(&n, arg, sizeof(n));
    counted = counted * 10 + n;
    return 0;
}

static void count_enqueue(cu_stream s, int n)
{
    assert_int_equal(fake.enqueue(s, count_entry, &n, sizeof(n)), 0);
}

UNIT_TEST(the_legacy_stream_waits_and_is_waited_for)
{
    struct gate gate;

    streams_begin();
    counted = 0;
    gate_put(&gate, a);
    count_enqueue(a, 1);
    count_enqueue(NULL, 2); /* after a */
    count_enqueue(b, 3);    /* after the legacy stream */
    count_enqueue(free_one, 9);
    WAIT_UNTIL(counted == 9);
    usleep(1000);
    assert_int_equal(counted, 9);
    gate.is_open = 1;
    WAIT_UNTIL(counted == 9123);
    streams_end();
}

UNIT_MAIN(NULL, NULL)

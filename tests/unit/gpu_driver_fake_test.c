/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver: order between streams, unsafe calls, faults, and what a test may not
 * do. tests/gpu/conform_driver.c compares the rest with a real driver. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

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

static void the_legacy_stream_waits_and_is_waited_for(void **state)
{
    struct gate gate;

    (void)state;
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

static void an_event_holds_what_waits_for_it(void **state)
{
    struct gate gate;
    cu_event e;

    (void)state;
    streams_begin();
    counted = 0;
    assert_int_equal(fake.cu.event_new(&e, CU_EVENT_DISABLE_TIMING), 0);
    assert_int_equal(fake.cu.event_query(e), 0); /* never recorded: done */
    gate_put(&gate, free_one);
    assert_int_equal(fake.cu.event_record(e, free_one), 0);
    assert_int_equal(fake.cu.stream_wait(a, e, 0), 0);
    count_enqueue(a, 1);
    assert_int_equal(fake.cu.event_query(e), CU_NOT_READY);
    assert_int_equal(fake.cu.event_record(e, b), 0); /* a waits for the first */
    assert_int_equal(fake.cu.event_free(e), 0);
    usleep(1000);
    assert_int_equal(counted, 0);
    gate.is_open = 1;
    WAIT_UNTIL(counted == 1);
    streams_end();
}

static void unsafe_calls_break_a_global_capture(void **state)
{
    cu_graph graph;
    cu_ptr p;
    int mode = CU_CAPTURE_RELAXED;

    (void)state;
    streams_begin();
    assert_int_equal(fake.cu.capture_begin(a, CU_CAPTURE_GLOBAL), 0);
    assert_int_equal(fake.cu.mem_alloc(&p, 1), CU_CAPTURE_UNSUPPORTED);
    assert_int_equal(fake.cu.capture_end(a, &graph), CU_CAPTURE_INVALIDATED);
    assert_int_equal(fake.cu.capture_begin(a, CU_CAPTURE_GLOBAL), 0);
    assert_int_equal(fake.cu.capture_mode(&mode), 0);
    assert_int_equal(fake.cu.mem_alloc(&p, 1), 0);
    assert_int_equal(fake.cu.capture_mode(&mode), 0);
    assert_int_equal(fake.cu.capture_end(a, &graph), 0);
    assert_int_equal(fake.cu.graph_free(graph), 0);
    assert_int_equal(fake.cu.mem_free(p), 0);
    streams_end();
}

struct add_args {
    float *p;
    uint32_t n;
};

static void add_block(const void *args, unsigned block, unsigned blocks)
{
    const struct add_args *x = args;

    for (uint32_t i = block; i < x->n; i += blocks)
        x->p[i] += 1;
}

static int launch_add(cu_ptr p, uint32_t n)
{
    void (*add_kernel)(const char *, size_t,
                       void (*)(const void *, unsigned, unsigned));
    struct add_args args = {(float *)(uintptr_t)p, n};
    void *params[] = {&args};
    cu_module m;
    cu_func f;

    *(void **)&add_kernel = fake_symbol("hvd_fake_kernel");
    add_kernel("test_add", sizeof(args), add_block);
    assert_int_equal(fake.cu.module_load(&m, ".version 7.0\n.target sm_70\n"), 0);
    assert_int_equal(fake.cu.module_func(&f, m, "hvd_test_add"), 0);
    assert_int_equal(fake.cu.module_free(m), 0);
    return fake.cu.launch(f, 7, 1, 1, 256, 1, 1, 0, a, params, NULL);
}

static void faults_strike_when_they_are_due(void **state)
{
    cu_ptr p = 0, q;

    (void)state;
    streams_begin();
    fake.set_faults("oom=2");
    assert_int_equal(fake.cu.mem_alloc(&p, 4), 0);
    assert_int_equal(fake.cu.mem_alloc(&q, 4), CU_OUT_OF_MEMORY);
    assert_int_equal(fake.cu.mem_alloc(&q, 4), 0);
    assert_int_equal(fake.cu.mem_free(q), 0);
    fake.set_faults("kernel_hang=1");
    assert_int_equal(launch_add(p, 1), 0);
    usleep(2000);
    assert_int_equal(fake.cu.stream_query(a), CU_NOT_READY);
    fake.set_faults("");
    WAIT_UNTIL(fake.cu.stream_query(a) == 0);
    fake.set_faults("kernel_error=719@2");
    assert_int_equal(launch_add(p, 1), 0);
    WAIT_UNTIL(fake.cu.stream_query(a) == 0);
    assert_int_equal(launch_add(p, 1), 0);
    WAIT_UNTIL(fake.cu.stream_query(a) == CU_LAUNCH_FAILED);
    assert_int_equal(fake.cu.mem_alloc(&q, 4), CU_LAUNCH_FAILED); /* sticky */
    fake.set_faults("");
    fake.setup("12040", "1", NULL);
    assert_int_equal(fake.cu.mem_free(p), 0);
    streams_end();
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
static void wrong_use_dies(void **state)
{
    static int (*const all[])(void) = {copies_past_its_end, frees_it_twice,
                                       uses_a_freed_event, sends_host_memory,
                                       uses_it_freed};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        wrong = all[i];
        assert_int_equal(in_child(does_it), 1000 + SIGABRT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_use_dies),
        cmocka_unit_test(the_legacy_stream_waits_and_is_waited_for),
        cmocka_unit_test(an_event_holds_what_waits_for_it),
        cmocka_unit_test(unsafe_calls_break_a_global_capture),
        cmocka_unit_test(faults_strike_when_they_are_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver and the fake cuBLAS: order between streams, captures, kernels by
 * name, faults, and what a test may not do. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "runtime/backend/nccl/cublas_dl.h"
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

static void a_graph_runs_what_was_captured(void **state)
{
    cu_graph graph;
    cu_graph_exec exec;
    int status;

    (void)state;
    streams_begin();
    counted = 0;
    assert_int_equal(fake.cu.capture_begin(a, CU_CAPTURE_THREAD_LOCAL), 0);
    assert_int_equal(fake.cu.stream_capturing(a, &status), 0);
    assert_int_equal(status, CU_CAPTURE_ACTIVE);
    count_enqueue(a, 1);
    count_enqueue(a, 2);
    assert_int_equal(fake.cu.capture_end(a, &graph), 0);
    usleep(1000);
    assert_int_equal(counted, 0);
    assert_int_equal(fake.cu.graph_make(&exec, graph, 0), 0);
    assert_int_equal(fake.cu.graph_free(graph), 0);
    assert_int_equal(fake.cu.graph_launch(exec, a), 0);
    assert_int_equal(fake.cu.graph_launch(exec, a), 0);
    WAIT_UNTIL(counted == 1212);
    assert_int_equal(fake.cu.graph_exec_free(exec), 0);
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
    assert_int_equal(fake.cu.module_load(&m, "no image at all"), CU_INVALID_IMAGE);
    assert_int_equal(fake.cu.module_load(&m, ".version 7.0\n.target sm_70\n"), 0);
    assert_int_equal(fake.cu.module_func(&f, m, "hvd_none"), CU_NOT_FOUND);
    assert_int_equal(fake.cu.module_func(&f, m, "hvd_copy"), 0);
    assert_int_equal(fake.cu.module_func(&f, m, "hvd_test_add"), 0);
    assert_int_equal(fake.cu.module_free(m), 0);
    return fake.cu.launch(f, 7, 1, 1, 256, 1, 1, 0, a, params, NULL);
}

static void a_kernel_is_found_by_name(void **state)
{
    float v[100];
    cu_ptr p;

    (void)state;
    streams_begin();
    for (int i = 0; i < 100; i++)
        v[i] = (float)i;
    assert_int_equal(fake.cu.mem_alloc(&p, sizeof(v)), 0);
    assert_int_equal(fake.cu.copy_up(p, v, sizeof(v), a), 0);
    assert_int_equal(launch_add(p, 100), 0);
    assert_int_equal(fake.cu.copy_down(v, p, sizeof(v), a), 0);
    for (int i = 0; i < 100; i++)
        assert_true(v[i] == (float)(i + 1));
    assert_int_equal(fake.cu.mem_free(p), 0);
    streams_end();
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

/* In children, so before this process has begun with CUDA. */
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

static void nothing_works_without_a_context(void **state)
{
    cu_event e;

    (void)state;
    streams_begin();
    streams_end();
    assert_int_equal(fake.cu.event_new(&e, 0), CU_INVALID_CONTEXT);
}

static void cublas_multiplies_on_the_stream(void **state)
{
    /* column-major: A is 2 x 3, B is 3 x 2 */
    const float v[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 1, 1, 1};
    const float alpha = 1, beta = 2, zero = 0;
    const struct cublas_api *blas = NULL;
    struct err err = ERR_INIT;
    cublas_handle h;
    float c[4];
    cu_ptr p;

    (void)state;
    streams_begin();
    assert_int_equal(cublas_load(12040, &blas, &err), 0);
    assert_non_null(blas);
    assert_int_equal(blas->major, 12);
    assert_int_equal(blas->create(&h), 0);
    assert_int_equal(blas->set_stream(h, a), 0);
    assert_int_equal(fake.cu.mem_alloc(&p, sizeof(v)), 0);
    assert_int_equal(fake.cu.copy_up(p, v, sizeof(v), a), 0);
    float *at = (float *)(uintptr_t)p;
    assert_int_equal(blas->sgemm(h, CUBLAS_N, CUBLAS_N, 2, 2, 3, &alpha, at, 2, at + 6,
                                 3, &beta, at + 12, 2),
                     0);
    assert_int_equal(fake.cu.copy_down(c, p + 48, sizeof(c), a), 0);
    const float want[] = {78, 102, 105, 138}; /* A B + 2 */
    for (int i = 0; i < 4; i++)
        assert_true(c[i] == want[i]);
    /* the transposes of both, seen as 3 x 2 and 2 x 3, make the same without the 2 */
    assert_int_equal(blas->sgemm(h, CUBLAS_T, CUBLAS_T, 2, 2, 3, &alpha, at, 3, at + 6,
                                 2, &zero, at + 12, 2),
                     0);
    assert_int_equal(fake.cu.copy_down(c, p + 48, sizeof(c), a), 0);
    const float turned[] = {1 * 7 + 2 * 9 + 3 * 11, 4 * 7 + 5 * 9 + 6 * 11,
                            1 * 8 + 2 * 10 + 3 * 12, 4 * 8 + 5 * 10 + 6 * 12};
    for (int i = 0; i < 4; i++)
        assert_true(c[i] == turned[i]);
    assert_int_equal(blas->destroy(h), 0);
    assert_int_equal(fake.cu.mem_free(p), 0);
    streams_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_use_dies),
        cmocka_unit_test(the_legacy_stream_waits_and_is_waited_for),
        cmocka_unit_test(an_event_holds_what_waits_for_it),
        cmocka_unit_test(a_graph_runs_what_was_captured),
        cmocka_unit_test(unsafe_calls_break_a_global_capture),
        cmocka_unit_test(a_kernel_is_found_by_name),
        cmocka_unit_test(faults_strike_when_they_are_due),
        cmocka_unit_test(nothing_works_without_a_context),
        cmocka_unit_test(cublas_multiplies_on_the_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

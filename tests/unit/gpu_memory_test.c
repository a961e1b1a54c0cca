/* SPDX-License-Identifier: Apache-2.0 */
/* Events, device memory in stream order, fusion buffers, pinned memory: on the fake. */
#include "tests/unit/gpu_memory.h"

/* A test with memory of the device, from pools or (nopool) from our lists. */
#define MEMORY_TEST(f, nopool)                                                         \
    static void f##_in(void);                                                          \
    UNIT_TEST(f)                                                                       \
    {                                                                                  \
        memory_begin(nopool);                                                          \
        f##_in();                                                                      \
        memory_end();                                                                  \
    }                                                                                  \
    static void f##_in(void)

static struct device_event *event_recorded(cu_stream s)
{
    struct device_event *e;

    assert_int_equal(event_new(t.events, &e, NULL), 0);
    assert_int_equal(event_is_done(e, NULL), 0);
    assert_int_equal(event_record(e, s, NULL), 0);
    return e;
}

MEMORY_TEST(events_are_reused_only_when_free, NULL)
{
    struct device_event *a = event_recorded(t.a);
    cu_event ev = a->ev;
    struct device_event *b = event_recorded(t.a);
    assert_ptr_not_equal(b->ev, ev);
    (void)event_ref(a);
    event_unref(a);
    struct device_event *c = event_recorded(t.a);
    assert_ptr_not_equal(c->ev, ev);
    event_unref(a);
    struct device_event *d = event_recorded(t.a);
    assert_ptr_equal(d->ev, ev);
    event_unref(b);
    event_unref(c);
    event_unref(d);
}

static void *record_later(void *arg)
{
    (void)fake.cu.ctx_push(t.ctx);
    usleep(2000);
    if (event_record(arg, t.a, NULL) < 0)
        abort();
    return NULL;
}

MEMORY_TEST(pending_events_are_waited_for, NULL)
{
    struct device_event *e;
    pthread_t thread;

    assert_int_equal(event_new(t.events, &e, NULL), 0);
    assert_int_equal(event_put_wait(e, t.b, NULL), -EINVAL);
    assert_int_equal(event_wait_recorded(e, clock_now_ns() + NS_PER_MS), -ETIMEDOUT);
    assert_int_equal(pthread_create(&thread, NULL, record_later, e), 0);
    assert_int_equal(event_wait_recorded(e, UINT64_MAX), 0);
    assert_int_equal(event_put_wait(e, t.b, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    event_unref(e);
    assert_int_equal(event_new(t.events, &e, NULL), 0);
    event_fail(e);
    assert_int_equal(event_wait_recorded(e, UINT64_MAX), -ECONNABORTED);
    assert_int_equal(event_is_done(e, NULL), -ECONNABORTED);
    event_unref(e);
}

MEMORY_TEST(what_is_recorded_later_is_waited_for_when_it_is_put, NULL)
{
    const unsigned long n = fake.n_syncs();
    struct device_event *e;

    assert_int_equal(event_new(t.events, &e, NULL), 0);
    event_record_later(e);
    assert_int_equal(fake.n_syncs(), n);
    assert_int_equal(event_put_wait(e, t.b, NULL), 0);
    assert_int_equal(fake.n_syncs(), n + 1);
    event_unref(e);
}

MEMORY_TEST(result_freed_on_its_stream, NULL)
{
    struct gate gate;
    cu_ptr p;

    assert_int_equal(memory_take(t.memory, 1000, t.a, &p, NULL), 0);
    assert_int_equal(p % 256, 0);
    gate_put(&gate, t.a);
    assert_int_equal(fake.cu.set_d8(p, 1, 1000, t.a), 0);
    memory_give(t.memory, p, t.a);
    assert_int_equal(fake.n_blocks(), 1);
    gate.is_open = 1;
    WAIT_UNTIL(fake.n_blocks() == 0);
}

/* Who gave it may wait for another rank, which waits for our batch. */
MEMORY_TEST(a_pool_makes_no_stream_wait_for_another, NULL)
{
    struct gate gate;
    cu_ptr p, q;

    assert_int_equal(memory_take(t.memory, 5000, t.a, &p, NULL), 0);
    gate_put(&gate, t.a);
    memory_give(t.memory, p, t.a);
    assert_int_equal(memory_take(t.memory, 5000, t.b, &q, NULL), 0);
    assert_int_equal(fake.cu.set_d8(q, 1, 5000, t.b), 0);
    WAIT_UNTIL(fake.cu.stream_query(t.b) == CU_OK);
    gate.is_open = 1;
    memory_give(t.memory, q, t.b);
    WAIT_UNTIL(fake.n_blocks() == 0);
}

MEMORY_TEST(pool_absent_uses_free_list, "1")
{
    struct gate gate;
    cu_ptr p, q, r;

    assert_int_equal(memory_take(t.memory, 5000, t.a, &p, NULL), 0);
    gate_put(&gate, t.a);
    memory_give(t.memory, p, t.a);
    /* another stream is not made to wait: it might be waited for */
    assert_int_equal(memory_take(t.memory, 4999, t.b, &q, NULL), 0);
    assert_int_not_equal(p, q);
    assert_int_equal(fake.cu.set_d8(q, 1, 4999, t.b), 0);
    WAIT_UNTIL(fake.cu.stream_query(t.b) == CU_OK);
    /* the same one gets it at once */
    assert_int_equal(memory_take(t.memory, 5000, t.a, &r, NULL), 0);
    assert_int_equal(p, r);
    memory_give(t.memory, r, t.a);
    /* there is no other: it is waited for, on the device */
    fake.set_faults("oom=1");
    assert_int_equal(memory_take(t.memory, 5000, t.b, &r, NULL), 0);
    assert_int_equal(p, r);
    assert_int_equal(fake.cu.set_d8(r, 1, 5000, t.b), 0);
    usleep(1000);
    assert_int_equal(fake.cu.stream_query(t.b), CU_NOT_READY);
    gate.is_open = 1;
    WAIT_UNTIL(fake.cu.stream_query(t.b) == CU_OK);
    memory_give(t.memory, r, t.b);
    /* anyone gets what is not in use any more */
    WAIT_UNTIL(fake.cu.stream_query(t.b) == CU_OK);
    assert_int_equal(memory_take(t.memory, 5000, t.a, &r, NULL), 0);
    assert_int_equal(p, r);
    memory_give(t.memory, r, t.a);
    memory_give(t.memory, q, t.b);
}

MEMORY_TEST(out_of_memory_has_a_message, NULL)
{
    struct err err = ERR_INIT;
    cu_ptr p = 0;

    fake.set_faults("oom=1");
    assert_int_equal(memory_take(t.memory, 12345, t.a, &p, &err), -ENOMEM);
    assert_string_equal(err.text, "12345 bytes of GPU memory: cuMemAllocFromPoolAsync: "
                                  "out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
}

MEMORY_TEST(lists_are_given_back_when_memory_is_out, "1")
{
    cu_ptr p, q;

    assert_int_equal(memory_take(t.memory, 70000, t.a, &p, NULL), 0);
    memory_give(t.memory, p, t.a);
    fake.set_faults("oom=1");
    assert_int_equal(memory_take(t.memory, 1, t.a, &p, NULL), 0);
    assert_int_equal(fake.n_blocks(), 1);
    fake.set_faults("oom=1");
    assert_int_equal(memory_take(t.memory, 1, t.a, &q, NULL), -ENOMEM);
    memory_give(t.memory, p, t.a);
}

MEMORY_TEST(size_classes_hold_what_they_say, "1")
{
    cu_ptr p;

    for (uint64_t n = 1; n < 3000000; n = n * 5 / 4 + 1) {
        assert_int_equal(memory_take(t.memory, n, t.a, &p, NULL), 0);
        assert_int_equal(fake.cu.set_d8(p, 1, n, t.a), 0); /* the fake looks */
        memory_give(t.memory, p, t.a);
    }
}

MEMORY_TEST(fusion_buffer_grows_in_order, NULL)
{
    struct gate gate;
    cu_ptr p, q;

    assert_int_equal(scratch_fusion(&t.scratch, 0, 100, t.a, &p, NULL), 0);
    assert_int_equal(t.scratch.fusion[0].bytes, FUSION_GRANULE);
    assert_int_equal(scratch_fusion(&t.scratch, 0, FUSION_GRANULE, t.a, &q, NULL), 0);
    assert_int_equal(p, q);
    gate_put(&gate, t.a);
    assert_int_equal(fake.cu.set_d8(p, 1, FUSION_GRANULE, t.a), 0);
    assert_int_equal(scratch_fusion(&t.scratch, 0, FUSION_GRANULE + 1, t.a, &q, NULL),
                     0);
    assert_int_not_equal(p, q);
    assert_int_equal(t.scratch.fusion[0].generation, 2);
    assert_int_equal(fake.n_blocks(), 2); /* the old one is still in use */
    assert_int_equal(scratch_fusion(&t.scratch, 1, 1, t.b, &p, NULL), 0);
    gate.is_open = 1;
    WAIT_UNTIL(fake.n_blocks() == 2);
}

static unsigned n_taken, n_given;
static size_t bytes_taken;

static int take_registered(void **ret, size_t bytes)
{
    static char places[8];

    bytes_taken = bytes;
    if (n_taken == 8)
        return NCCL_CUDA;
    *ret = &places[n_taken++];
    return NCCL_OK;
}

static int give_registered(void *p)
{
    n_given += p != NULL;
    return NCCL_OK;
}

static const char *cuda_error(int result)
{
    return result == NCCL_CUDA ? "unhandled cuda error" : "?";
}

UNIT_TEST(registered_buffers_stay_until_the_end)
{
    const struct nccl_api nccl = {.mem_alloc = take_registered,
                                  .mem_free = give_registered,
                                  .error_text = cuda_error};
    struct err err = ERR_INIT;
    uint64_t bytes = 1;
    cu_ptr p, q;

    memory_begin(NULL);
    for (int i = 0; i < 8; i++) { /* each as large as two before at least */
        assert_int_equal(
            scratch_fusion_registered(&t.scratch, &nccl, 0, bytes, &p, &err), 0);
        assert_int_equal(bytes_taken, (uint64_t)FUSION_GRANULE << i);
        assert_int_equal(scratch_fusion_registered(&t.scratch, &nccl, 0, 1, &q, &err),
                         0);
        assert_int_equal(p, q);
        assert_int_equal(t.scratch.registered[0].generation, i + 1);
        bytes = bytes_taken + 1;
    }
    assert_int_equal(scratch_fusion_registered(&t.scratch, &nccl, 1, 1, &p, &err),
                     -EIO);
    assert_string_equal(err.text, "ncclMemAlloc: unhandled cuda error");
    assert_int_equal(n_given, 0);
    memory_end();
    assert_int_equal(n_given, 8);
}

MEMORY_TEST(pinned_ring_full_is_eagain, NULL)
{
    struct gate gate;
    cu_ptr at;
    void *p;

    assert_int_equal(scratch_pinned(&t.scratch, PINNED_BYTES, &p, NULL), -EINVAL);
    assert_int_equal(memory_take(t.memory, PINNED_BYTES / 2, t.a, &at, NULL), 0);
    gate_put(&gate, t.a);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(scratch_pinned(&t.scratch, PINNED_BYTES / 2, &p, NULL), 0);
        memset(p, 1, PINNED_BYTES / 2);
        assert_int_equal(fake.cu.copy_up(at, p, PINNED_BYTES / 2, t.a), 0);
        assert_int_equal(scratch_pinned_sent(&t.scratch, t.a, NULL), 0);
    }
    assert_int_equal(scratch_pinned(&t.scratch, 1, &p, NULL), -EAGAIN);
    gate.is_open = 1;
    WAIT_UNTIL(scratch_pinned(&t.scratch, 1, &p, NULL) == 0);
    assert_int_equal(scratch_pinned(&t.scratch, 1, &p, NULL), -EINVAL); /* not sent */
    assert_int_equal(scratch_pinned_sent(&t.scratch, t.a, NULL), 0);
    memory_give(t.memory, at, t.a);
}

/* Pieces never overlap one that may still be read: each upload's bytes arrive. */
MEMORY_TEST(pinned_pieces_do_not_overlap, NULL)
{
    cu_ptr at;
    void *p;
    uint32_t n = 1, sum = 0;

    assert_int_equal(memory_take(t.memory, 1u << 20, t.a, &at, NULL), 0);
    for (uint32_t i = 0; i < 300; i++) {
        uint8_t seen[2] = {0};
        n = n * 7 % 900001 + 1;
        WAIT_UNTIL(scratch_pinned(&t.scratch, n, &p, NULL) == 0);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, (int)(i & 255), n);
        assert_int_equal(fake.cu.copy_up(at, p, n, t.a), 0);
        assert_int_equal(scratch_pinned_sent(&t.scratch, t.a, NULL), 0);
        if (i % 16 == 0) {
            assert_int_equal(fake.cu.copy_down(seen, at + n - 1, 1, t.a), 0);
            assert_int_equal(seen[0], i & 255);
            sum++;
        }
    }
    assert_int_equal(sum, 19);
    memory_give(t.memory, at, t.a);
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of tables, and capture and replay, on the fake driver. A batch reads its
 * tables when its stream runs it. */
#include "runtime/backend/nccl/graph.h"
#include "runtime/base/mem.h"
#include "tests/unit/gpu_memory.h"

static struct cuda_api cu; /* the fake's, some calls with a result of the test */
static struct {
    int copy, begin, end, make, enqueue, wait;
} results;
static unsigned n_copies, n_direct, n_waits;
static _Atomic uint64_t src; /* contents of the last run's tables */
static struct gate gate;
static struct tables tables;

static int copy_up(cu_ptr dst, const void *from, size_t n, cu_stream s)
{
    assert_true(n <= PINNED_BYTES / 2);
    n_copies++;
    return results.copy ? results.copy : fake.cu.copy_up(dst, from, n, s);
}

static int capture_begin(cu_stream s, int mode)
{
    assert_int_equal(mode, CU_CAPTURE_THREAD_LOCAL);
    return results.begin ? results.begin : fake.cu.capture_begin(s, mode);
}

static int capture_end(cu_stream s, cu_graph *ret)
{
    int rc = fake.cu.capture_end(s, ret);

    return results.end ? results.end : rc;
}

static int graph_make(cu_graph_exec *ret, cu_graph g, unsigned long long flags)
{
    return results.make ? results.make : fake.cu.graph_make(ret, g, flags);
}

static void stream_wait_idle(cu_stream s)
{
    WAIT_UNTIL(fake.cu.stream_query(s) == CU_OK);
}

static bool is_capturing(void)
{
    int status;

    assert_int_equal(fake.cu.stream_capturing(t.a, &status), 0);
    return status != CU_CAPTURE_NONE;
}

static pthread_mutex_t whole = PTHREAD_MUTEX_INITIALIZER;

static bool is_whole_held(void)
{
    if (pthread_mutex_trylock(&whole) != 0)
        return true;
    (void)pthread_mutex_unlock(&whole);
    return false;
}

static int look_entry(void *arg)
{
    const struct chunk *at[2];

    memcpy(at, arg, sizeof(at));
    src = at[1] && at[1]->dst != at[0]->src + 1 ? UINT64_MAX : at[0]->src;
    return 0;
}

static int batch_enqueue(void *arg, cu_ptr in, cu_ptr out, struct err *err)
{
    cu_ptr at[2] = {in, out};

    if (results.enqueue < 0)
        return err_set(err, results.enqueue, "enqueue");
    assert_int_equal(is_whole_held(), is_capturing());
    n_direct += !is_capturing();
    return fake.enqueue(t.a, look_entry, at, sizeof(at));
}

static int wait_once(void *arg, struct err *err)
{
    n_waits++;
    (void)usleep(100); /* the stream runs meanwhile */
    gate.is_open = results.wait == 0;
    return results.wait ? err_set(err, results.wait, "stopped") : 0;
}

static int tables_start(__attribute__((unused)) void **state)
{
    memory_begin(NULL);
    cu = fake.cu;
    cu.copy_up = copy_up;
    cu.capture_begin = capture_begin;
    cu.capture_end = capture_end;
    cu.graph_make = graph_make;
    memset(&results, 0, sizeof(results));
    n_copies = n_direct = n_waits = 0;
    gate.is_open = 1;
    tables_init(&tables, &cu, t.memory, &t.scratch, wait_once, NULL);
    return 0;
}

static int tables_end(__attribute__((unused)) void **state)
{
    tables_release(&tables);
    memory_end();
    return 0;
}

#define TABLES_TEST(f) UNIT_TEST_WITH(f, tables_start, tables_end)
#define GRAPHS_TEST(f) UNIT_TEST_WITH(f, graphs_start, graphs_end)

/* --- tables --- */

/* The table of content `what` on s; checks that it is on the device. */
static cu_ptr table_take_checked(uint64_t what, uint32_t n, cu_stream s)
{
    struct chunk *v = test_malloc(n * sizeof(*v));
    cu_ptr at = 0;
    for (uint32_t i = 0; i < n; i++)
        v[i] = (struct chunk){what + i, 2 * what, i, 0};
    assert_int_equal(0, table_take(&tables, v, n, s, &at, NULL));
    stream_wait_idle(s);
    assert_memory_equal((void *)(uintptr_t)at, v, n * sizeof(*v));
    test_free(v);
    return at;
}

TABLES_TEST(same_content_uploads_once)
{
    cu_ptr at = table_take_checked(1, 100, t.a);
    for (int i = 0; i < 50; i++)
        assert_true(table_take_checked(1, 100, t.a) == at);
    assert_int_equal(n_copies, 1);
    assert_int_equal(tables.n_hits, 50);
    assert_int_equal(tables.n_uploads, 1);
}

TABLES_TEST(changed_pointer_count_or_stream_uploads)
{
    struct chunk v[2] = {{1, 2, 3, 0}, {4, 5, 6, 0}};
    cu_ptr at;
    assert_int_equal(0, table_take(&tables, v, 2, t.a, &at, NULL));
    v[1].src++;
    assert_int_equal(0, table_take(&tables, v, 2, t.a, &at, NULL));
    v[1].tensor++;
    assert_int_equal(0, table_take(&tables, v, 2, t.a, &at, NULL));
    assert_int_equal(0, table_take(&tables, v, 1, t.a, &at, NULL));
    assert_int_equal(n_copies, 4);
    assert_int_equal(0, table_take(&tables, v, 2, t.b, &at, NULL));
    assert_int_equal(0, table_take(&tables, v, 2, t.a, &at, NULL));
    assert_int_equal(n_copies, 5);
}

TABLES_TEST(last_32_are_kept_and_the_oldest_goes)
{
    for (uint64_t i = 0; i < TABLES_KEPT; i++)
        table_take_checked(i, 70, t.a);
    unsigned n_blocks = fake.n_blocks();
    table_take_checked(0, 70, t.a); /* used again: 1 is the oldest now */
    table_take_checked(99, 70, t.a);
    assert_int_equal(n_copies, TABLES_KEPT + 1);
    assert_int_equal(fake.n_blocks(), n_blocks); /* over the oldest one's memory */
    table_take_checked(0, 70, t.a);
    assert_int_equal(n_copies, TABLES_KEPT + 1);
    table_take_checked(1, 70, t.a);
    assert_int_equal(n_copies, TABLES_KEPT + 2);
}

TABLES_TEST(table_stays_while_31_others_are_taken)
{
    cu_ptr at = table_take_checked(1, 5, t.a);
    struct chunk before[5];
    memcpy(before, (void *)(uintptr_t)at, sizeof(before));
    for (uint64_t i = 0; i < TABLES_KEPT - 1; i++)
        table_take_checked(100 + i, 5 + (uint32_t)i * 40, i % 2 ? t.a : t.b);
    assert_memory_equal((void *)(uintptr_t)at, before, sizeof(before));
}

TABLES_TEST(large_table_goes_in_pieces)
{
    gate_put(&gate, t.a);               /* until it waits for pinned memory */
    table_take_checked(3, 200000, t.a); /* 4.8 MB */
    assert_int_equal(n_copies, 3);
    assert_true(n_waits > 0);
}

TABLES_TEST(failure_leaves_no_half_table)
{
    static struct chunk large[200000];
    struct chunk v[3] = {{1, 2, 3, 0}};
    cu_ptr at;
    fake.set_faults("oom=1");
    assert_int_equal(-ENOMEM, table_take(&tables, v, 3, t.a, &at, NULL));
    fake.set_faults("");
    results.copy = CU_ILLEGAL_ADDRESS;
    assert_int_equal(-EIO, table_take(&tables, v, 3, t.a, &at, NULL));
    results.copy = 0;
    assert_int_equal(0, scratch_pinned_sent(&t.scratch, t.a, NULL)); /* of this copy */
    results.wait = -ECONNABORTED;
    gate_put(&gate, t.a);
    assert_int_equal(-ECONNABORTED,
                     table_take(&tables, large, ARRAY_LEN(large), t.a, &at, NULL));
    gate.is_open = 1;
    mem_fail_after(0);
    v[0].src = 17;
    assert_int_equal(-ENOMEM, table_take(&tables, v, 3, t.b, &at, NULL));
    mem_fail_after(-1);
    unsigned before = n_copies;
    stream_wait_idle(t.a);
    assert_int_equal(0, table_take(&tables, v, 3, t.a, &at, NULL));
    assert_int_equal(n_copies, before + 1);
    stream_wait_idle(t.a);
    assert_memory_equal((void *)(uintptr_t)at, v, sizeof(v));
}

/* --- graphs --- */

static struct graphs graphs;
static uint32_t n_taken; /* pieces of a batch's results */

static int graphs_start(void **state)
{
    (void)tables_start(state);
    graphs_init(&graphs, &cu, &tables, t.a, &whole);
    n_taken = 3;
    return 0;
}

static int graphs_end(void **state)
{
    graphs_release(&graphs);
    return tables_end(state);
}

/* A batch `key` of tensors at address from; its stream may wait for the gate. */
static int batch_run(uint64_t key, uint64_t from, uint64_t place)
{
    struct chunk in[3] = {{from, 1, 1, 0}}, out[3] = {{1, from + 1, 1, 0}};
    struct graph_batch b = {.key = &key,
                            .key_bytes = sizeof(key),
                            .place = place,
                            .in = in,
                            .out = out,
                            .n_in = 3,
                            .n_out = n_taken,
                            .enqueue = batch_enqueue};
    int rc = graph_run(&graphs, &b, NULL);
    assert_false(is_capturing());
    if (rc == 0 && gate.is_open) {
        stream_wait_idle(t.a);
        assert_true(src == from);
    }
    return rc;
}

GRAPHS_TEST(third_time_is_captured_and_later_ones_replayed)
{
    for (unsigned i = 1; i <= 10; i++) {
        assert_int_equal(0, batch_run(1, 100 * i, 0)); /* other addresses */
        assert_int_equal(n_direct, i < 3 ? i : 2);
        assert_int_equal(graphs.n_captured, i < 3 ? 0 : 1);
        assert_int_equal(graphs.n_replayed, i < 4 ? 0 : i - 3);
    }
}

GRAPHS_TEST(moved_buffer_is_captured_again_at_once)
{
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(0, batch_run(1, i, 0));
    gate_put(&gate, t.a); /* the old graph may run: it is not freed yet */
    assert_int_equal(0, batch_run(1, 9, 1));
    assert_int_equal(graphs.n_captured, 2);
    assert_int_equal(n_direct, 2);
    assert_int_equal(0, batch_run(1, 9, 1));
    assert_int_equal(graphs.n_retired, 1);
    gate.is_open = 1;
    stream_wait_idle(t.a);
    assert_int_equal(0, batch_run(1, 9, 1));
    assert_int_equal(graphs.n_retired, 0);
    assert_int_equal(graphs.n_captured, 2);
}

GRAPHS_TEST(buffer_moves_when_it_grows)
{
    uint32_t place[4];
    cu_ptr at[4];
    static const uint64_t bytes[] = {100, FUSION_GRANULE, FUSION_GRANULE + 1, 50};

    for (int i = 0; i < 4; i++)
        assert_int_equal(0, graphs_buffer(&graphs, bytes[i], &at[i], &place[i], NULL));
    assert_true(at[0] == at[1] && at[2] == at[3]);
    assert_true(place[0] == place[1] && place[1] + 1 == place[2]
                && place[2] == place[3]);
    WAIT_UNTIL(fake.n_blocks() == 1);
}

GRAPHS_TEST(other_number_of_pieces_is_captured_again)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(0, batch_run(1, 5, 0));
    n_taken = 0; /* it has joined and takes nothing */
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, batch_run(1, 5, 0));
    assert_int_equal(graphs.n_captured, 2);
    assert_int_equal(n_direct, 2);
}

GRAPHS_TEST(least_recently_used_graph_goes)
{
    for (int k = 0; k < 3; k++)
        for (uint64_t i = 0; i < GRAPHS_KEPT; i++)
            assert_int_equal(0, batch_run(i, i, 0));
    assert_int_equal(graphs.n_captured, GRAPHS_KEPT);
    assert_int_equal(0, batch_run(0, 0, 0));
    assert_int_equal(0, batch_run(1000, 0, 0)); /* instead of 1 */
    assert_int_equal(0, batch_run(0, 0, 0));
    assert_int_equal(graphs.n_captured, GRAPHS_KEPT);
    unsigned direct = n_direct;
    assert_int_equal(0, batch_run(1, 0, 0));
    assert_int_equal(n_direct, direct + 1);
}

GRAPHS_TEST(failed_capture_is_ended_and_an_error)
{
    int *const calls[] = {&results.begin, &results.end, &results.make};
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(0, batch_run(1, 100, 0));
    for (size_t i = 0; i < 3; i++) {
        *calls[i] = CU_ILLEGAL_ADDRESS;
        assert_int_equal(-EIO, batch_run(1, 100, 0));
        *calls[i] = 0;
    }
    results.enqueue = -ECONNABORTED;
    assert_int_equal(-ECONNABORTED, batch_run(1, 100, 0));
    results.enqueue = 0;
    src = 0;
    stream_wait_idle(t.a);
    assert_true(src == 0); /* none has run */
    assert_int_equal(0, batch_run(1, 100, 0));
    mem_fail_after(0);
    assert_int_equal(-ENOMEM, batch_run(2, 100, 0));
    mem_fail_after(-1);
    assert_int_equal(0, batch_run(2, 100, 0));
}

/* Somebody has the whole context, and waits there for a peer that has died. */
GRAPHS_TEST(a_stop_ends_the_wait_to_capture)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, batch_run(1, 100, 0));
    (void)pthread_mutex_lock(&whole);
    results.wait = -ECONNABORTED;
    assert_int_equal(-ECONNABORTED, batch_run(1, 100, 0));
    (void)pthread_mutex_unlock(&whole);
    gate.is_open = 1;
    assert_int_equal(0, batch_run(1, 100, 0));
    assert_int_equal(graphs.n_captured, 1);
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of tables, and capture and replay, over a driver of a few functions here:
 * device memory is the heap and a copy happens at once; a graph is what was enqueued
 * while its stream was captured, and its replay reads the tables that it was captured
 * with. */
#include "runtime/backend/nccl/graph.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static cu_stream const stream = (cu_stream)(uintptr_t)7,
                       second = (cu_stream)(uintptr_t)2;

struct cu_graph_exec_s {
    cu_ptr in, out;
};

static struct {
    bool is_capturing, is_busy;
    int begin_result, end_result, make_result, enqueue_result;
    cu_ptr in, out; /* of the last enqueue */
    unsigned n_direct, n_captured, n_launched, n_execs, n_graphs, n_blocks;
    uint64_t src; /* contents of the last run's tables */
    int take_result, copy_result;
    unsigned n_copies, n_given, n_busy, n_waits;
    uint64_t most_pinned;
} fake;

/* --- memory, uploads, errors --- */

int memory_take(
    struct gpu_memory *m, uint64_t bytes, cu_stream s, cu_ptr *ret, struct err *err)
{
    (void)m;
    (void)s;
    assert_false(fake.is_capturing);
    if (fake.take_result < 0)
        return err_set(err, fake.take_result, "out of memory");
    fake.n_blocks++;
    *ret = (uintptr_t)malloc(bytes);
    return 0;
}

void memory_give(struct gpu_memory *m, cu_ptr p, cu_stream s)
{
    (void)m;
    (void)s;
    fake.n_blocks -= p != 0;
    fake.n_given += p != 0;
    free((void *)(uintptr_t)p);
}

int scratch_pinned(struct gpu_scratch *sc, uint32_t bytes, void **ret, struct err *err)
{
    static uint8_t pinned[PINNED_BYTES / 2];
    (void)sc;
    (void)err;
    if (fake.n_busy > 0) {
        fake.n_busy--;
        return -EAGAIN;
    }
    assert_true(bytes <= sizeof(pinned));
    fake.most_pinned = bytes > fake.most_pinned ? bytes : fake.most_pinned;
    *ret = pinned;
    return 0;
}

int scratch_pinned_sent(struct gpu_scratch *sc, cu_stream s, struct err *err)
{
    (void)sc;
    (void)s;
    (void)err;
    return 0;
}

int cuda_fail(const struct cuda_api *api, const char *call, int result, struct err *err)
{
    (void)api;
    return err_set(err, -EIO, "%s: %d", call, result);
}

const char *cuda_symbol(enum cuda_call c)
{
    (void)c;
    return "cuCall";
}

/* --- the driver --- */

static int copy_up(cu_ptr dst, const void *src, size_t n, cu_stream s)
{
    (void)s;
    assert_false(fake.is_capturing);
    fake.n_copies++;
    if (fake.copy_result == 0)
        memcpy((void *)(uintptr_t)dst, src, n);
    return fake.copy_result;
}

static int stream_query(cu_stream s)
{
    assert_ptr_equal(s, stream);
    return fake.is_busy ? CU_NOT_READY : CU_OK;
}

static int capture_begin(cu_stream s, int mode)
{
    assert_ptr_equal(s, stream);
    assert_int_equal(mode, CU_CAPTURE_THREAD_LOCAL);
    assert_false(fake.is_capturing);
    fake.is_capturing = fake.begin_result == 0;
    return fake.begin_result;
}

static int capture_end(cu_stream s, cu_graph *ret)
{
    assert_ptr_equal(s, stream);
    assert_true(fake.is_capturing);
    fake.is_capturing = false;
    fake.n_graphs++;
    *ret = (cu_graph)&fake;
    return fake.end_result;
}

static int graph_make(cu_graph_exec *ret, cu_graph g, unsigned long long flags)
{
    assert_ptr_equal(g, &fake);
    assert_int_equal(flags, 0);
    if (fake.make_result)
        return fake.make_result;
    *ret = malloc(sizeof **ret);
    (*ret)->in = fake.in;
    (*ret)->out = fake.out;
    fake.n_execs++;
    return 0;
}

static int graph_free(cu_graph g)
{
    assert_ptr_equal(g, &fake);
    fake.n_graphs--;
    return 0;
}

static int graph_exec_free(cu_graph_exec e)
{
    assert_false(fake.is_busy);
    fake.n_execs--;
    free(e);
    return 0;
}

static void tables_look(cu_ptr in, cu_ptr out)
{
    const struct chunk *i = (const struct chunk *)(uintptr_t)in;
    const struct chunk *o = (const struct chunk *)(uintptr_t)out;
    fake.src = i->src;
    if (o)
        assert_true(o->dst == i->src + 1);
}

static int graph_launch(cu_graph_exec e, cu_stream s)
{
    assert_ptr_equal(s, stream);
    fake.n_launched++;
    tables_look(e->in, e->out);
    return 0;
}

static pthread_mutex_t whole = PTHREAD_MUTEX_INITIALIZER;

static bool is_whole_held(void)
{
    if (pthread_mutex_trylock(&whole) != 0)
        return true;
    (void)pthread_mutex_unlock(&whole);
    return false;
}

static int batch_enqueue(void *arg, cu_ptr in, cu_ptr out, struct err *err)
{
    (void)arg;
    fake.in = in;
    fake.out = out;
    if (fake.enqueue_result < 0)
        return err_set(err, fake.enqueue_result, "enqueue");
    assert_int_equal(is_whole_held(), fake.is_capturing);
    if (fake.is_capturing) {
        fake.n_captured++;
    } else {
        fake.n_direct++;
        tables_look(in, out);
    }
    return 0;
}

static const struct cuda_api api = {.copy_up = copy_up,
                                    .stream_query = stream_query,
                                    .capture_begin = capture_begin,
                                    .capture_end = capture_end,
                                    .graph_make = graph_make,
                                    .graph_free = graph_free,
                                    .graph_launch = graph_launch,
                                    .graph_exec_free = graph_exec_free};

static struct tables tables;

static int wait_once(void *arg, struct err *err)
{
    fake.n_waits++;
    return *(const int *)arg < 0 ? err_set(err, *(const int *)arg, "stopped") : 0;
}

static int wait_result;

static int tables_start(void **state)
{
    memset(&fake, 0, sizeof(fake));
    wait_result = 0;
    tables_init(&tables, &api, NULL, NULL, wait_once, &wait_result);
    *state = &tables;
    return 0;
}

static int tables_end(void **state)
{
    tables_release(*state);
    return fake.n_blocks == 0 ? 0 : -1;
}

/* --- tables --- */

/* The table of content `what` on s; checks that it is on the device. */
static cu_ptr
table_take_checked(struct tables *t, uint64_t what, uint32_t n, cu_stream s)
{
    struct chunk *v = malloc(n * sizeof(*v));
    struct err err = ERR_INIT;
    cu_ptr at = 0;
    for (uint32_t i = 0; i < n; i++)
        v[i] = (struct chunk){what + i, 2 * what, i, 0};
    assert_int_equal(0, table_take(t, v, n, s, &at, &err));
    assert_memory_equal((void *)(uintptr_t)at, v, n * sizeof(*v));
    free(v);
    return at;
}

UNIT_TEST_WITH(same_content_uploads_once, tables_start, tables_end)
{
    struct tables *t = *state;
    cu_ptr at = table_take_checked(t, 1, 100, stream);
    for (int i = 0; i < 50; i++)
        assert_true(table_take_checked(t, 1, 100, stream) == at);
    assert_int_equal(fake.n_copies, 1);
    assert_int_equal(t->n_hits, 50);
    assert_int_equal(t->n_uploads, 1);
}

UNIT_TEST_WITH(changed_pointer_count_or_stream_uploads, tables_start, tables_end)
{
    struct chunk v[2] = {{1, 2, 3, 0}, {4, 5, 6, 0}};
    struct err err = ERR_INIT;
    cu_ptr at;
    assert_int_equal(0, table_take(*state, v, 2, stream, &at, &err));
    v[1].src++;
    assert_int_equal(0, table_take(*state, v, 2, stream, &at, &err));
    v[1].tensor++;
    assert_int_equal(0, table_take(*state, v, 2, stream, &at, &err));
    assert_int_equal(0, table_take(*state, v, 1, stream, &at, &err));
    assert_int_equal(fake.n_copies, 4);
    assert_int_equal(0, table_take(*state, v, 2, second, &at, &err));
    assert_int_equal(0, table_take(*state, v, 2, stream, &at, &err));
    assert_int_equal(fake.n_copies, 5);
}

UNIT_TEST_WITH(last_32_are_kept_and_the_oldest_goes, tables_start, tables_end)
{
    for (uint64_t i = 0; i < TABLES_KEPT; i++)
        table_take_checked(*state, i, 70, stream);
    table_take_checked(*state, 0, 70, stream); /* used again: 1 is the oldest now */
    table_take_checked(*state, 99, 70, stream);
    assert_int_equal(fake.n_copies, TABLES_KEPT + 1);
    assert_int_equal(fake.n_given, 0); /* uploaded over the oldest one's memory */
    table_take_checked(*state, 0, 70, stream);
    assert_int_equal(fake.n_copies, TABLES_KEPT + 1);
    table_take_checked(*state, 1, 70, stream);
    assert_int_equal(fake.n_copies, TABLES_KEPT + 2);
}

UNIT_TEST_WITH(table_stays_while_31_others_are_taken, tables_start, tables_end)
{
    cu_ptr at = table_take_checked(*state, 1, 5, stream);
    struct chunk before[5];
    memcpy(before, (void *)(uintptr_t)at, sizeof(before));
    for (uint64_t i = 0; i < TABLES_KEPT - 1; i++)
        table_take_checked(*state, 100 + i, 5 + (uint32_t)i * 40,
                           i % 2 ? stream : second);
    assert_memory_equal((void *)(uintptr_t)at, before, sizeof(before));
}

UNIT_TEST_WITH(large_table_goes_in_pieces, tables_start, tables_end)
{
    fake.n_busy = 2;
    table_take_checked(*state, 3, 200000, stream); /* 4.8 MB */
    assert_int_equal(fake.n_copies, 3);
    assert_int_equal(fake.n_waits, 2);
    assert_true(fake.most_pinned <= PINNED_BYTES / 2);
}

UNIT_TEST_WITH(failure_leaves_no_half_table, tables_start, tables_end)
{
    struct chunk v[3] = {{1, 2, 3, 0}};
    struct err err = ERR_INIT;
    cu_ptr at;
    fake.take_result = -ENOMEM;
    assert_int_equal(-ENOMEM, table_take(*state, v, 3, stream, &at, &err));
    fake.take_result = 0;
    fake.copy_result = 700;
    assert_int_equal(-EIO, table_take(*state, v, 3, stream, &at, &err));
    fake.copy_result = 0;
    fake.n_busy = 1;
    wait_result = -ECONNABORTED;
    assert_int_equal(-ECONNABORTED, table_take(*state, v, 3, stream, &at, &err));
    wait_result = 0;
    mem_fail_after(0);
    v[0].src = 17;
    assert_int_equal(-ENOMEM, table_take(*state, v, 3, second, &at, &err));
    mem_fail_after(-1);
    unsigned before = fake.n_copies;
    assert_int_equal(0, table_take(*state, v, 3, stream, &at, &err));
    assert_int_equal(fake.n_copies, before + 1);
    assert_memory_equal((void *)(uintptr_t)at, v, sizeof(v));
}

/* --- graphs --- */

static uint32_t n_taken; /* pieces of a batch's results */

static int graphs_start(void **state)
{
    struct graphs *g = malloc(sizeof(*g));
    memset(&fake, 0, sizeof(fake));
    tables_init(&tables, &api, NULL, NULL, NULL, NULL);
    graphs_init(g, &api, &tables, stream, &whole);
    n_taken = 3;
    *state = g;
    return 0;
}

static int graphs_end(void **state)
{
    fake.is_busy = false;
    graphs_release(*state);
    tables_release(&tables);
    free(*state);
    return fake.n_execs == 0 && fake.n_graphs == 0 && fake.n_blocks == 0 ? 0 : -1;
}

/* A batch `key` of tensors at address src. */
static int batch_run(struct graphs *g, uint64_t key, uint64_t src, uint64_t place)
{
    struct chunk in[3] = {{src, 1, 1, 0}}, out[3] = {{1, src + 1, 1, 0}};
    struct graph_batch b = {.key = &key,
                            .key_bytes = sizeof(key),
                            .place = place,
                            .in = in,
                            .out = out,
                            .n_in = 3,
                            .n_out = n_taken,
                            .enqueue = batch_enqueue};
    struct err err = ERR_INIT;
    int rc = graph_run(g, &b, &err);
    assert_false(fake.is_capturing);
    if (rc == 0)
        assert_int_equal(fake.src, src);
    return rc;
}

UNIT_TEST_WITH(third_time_is_captured_and_later_ones_replayed, graphs_start, graphs_end)
{
    for (unsigned i = 1; i <= 10; i++) {
        assert_int_equal(0, batch_run(*state, 1, 100 * i, 0)); /* other addresses */
        assert_int_equal(fake.n_direct, i < 3 ? i : 2);
        assert_int_equal(fake.n_captured, i < 3 ? 0 : 1);
        assert_int_equal(fake.n_launched, i < 3 ? 0 : i - 2);
    }
}

UNIT_TEST_WITH(moved_buffer_is_captured_again_at_once, graphs_start, graphs_end)
{
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(0, batch_run(*state, 1, i, 0));
    fake.is_busy = true; /* the old graph may run: it is not freed yet */
    assert_int_equal(0, batch_run(*state, 1, 9, 1));
    assert_int_equal(fake.n_captured, 2);
    assert_int_equal(fake.n_direct, 2);
    assert_int_equal(fake.n_execs, 2);
    assert_int_equal(0, batch_run(*state, 1, 9, 1));
    assert_int_equal(fake.n_execs, 2);
    fake.is_busy = false;
    assert_int_equal(0, batch_run(*state, 1, 9, 1));
    assert_int_equal(fake.n_execs, 1);
    assert_int_equal(fake.n_captured, 2);
}

UNIT_TEST_WITH(buffer_moves_when_it_grows, graphs_start, graphs_end)
{
    struct err err = ERR_INIT;
    uint32_t place[4];
    cu_ptr at[4];
    static const uint64_t bytes[] = {100, FUSION_GRANULE, FUSION_GRANULE + 1, 50};

    for (int i = 0; i < 4; i++)
        assert_int_equal(0, graphs_buffer(*state, bytes[i], &at[i], &place[i], &err));
    assert_true(at[0] == at[1] && at[2] == at[3]);
    assert_true(place[0] == place[1] && place[1] + 1 == place[2]
                && place[2] == place[3]);
    assert_int_equal(fake.n_blocks, 1);
}

UNIT_TEST_WITH(other_number_of_pieces_is_captured_again, graphs_start, graphs_end)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(0, batch_run(*state, 1, 5, 0));
    n_taken = 0; /* it has joined and takes nothing */
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, batch_run(*state, 1, 5, 0));
    assert_int_equal(fake.n_captured, 2);
    assert_int_equal(fake.n_direct, 2);
}

UNIT_TEST_WITH(least_recently_used_graph_goes, graphs_start, graphs_end)
{
    for (int k = 0; k < 3; k++)
        for (uint64_t i = 0; i < GRAPHS_KEPT; i++)
            assert_int_equal(0, batch_run(*state, i, i, 0));
    assert_int_equal(fake.n_captured, GRAPHS_KEPT);
    assert_int_equal(0, batch_run(*state, 0, 0, 0));
    assert_int_equal(0, batch_run(*state, 1000, 0, 0)); /* instead of 1 */
    assert_int_equal(0, batch_run(*state, 0, 0, 0));
    assert_int_equal(fake.n_captured, GRAPHS_KEPT);
    unsigned direct = fake.n_direct;
    assert_int_equal(0, batch_run(*state, 1, 0, 0));
    assert_int_equal(fake.n_direct, direct + 1);
}

UNIT_TEST_WITH(failed_capture_is_ended_and_an_error, graphs_start, graphs_end)
{
    int *const results[] = {&fake.begin_result, &fake.end_result, &fake.make_result};
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(0, batch_run(*state, 1, 100, 0));
    for (size_t i = 0; i < 3; i++) {
        *results[i] = 900;
        assert_int_equal(-EIO, batch_run(*state, 1, 100, 0));
        *results[i] = 0;
    }
    fake.enqueue_result = -ECONNABORTED;
    assert_int_equal(-ECONNABORTED, batch_run(*state, 1, 100, 0));
    fake.enqueue_result = 0;
    assert_int_equal(fake.n_launched, 0);
    assert_int_equal(0, batch_run(*state, 1, 100, 0));
    assert_int_equal(fake.n_launched, 1);
    mem_fail_after(0);
    assert_int_equal(-ENOMEM, batch_run(*state, 2, 100, 0));
    mem_fail_after(-1);
    assert_int_equal(0, batch_run(*state, 2, 100, 0));
}

static int wait_is_stopped(void *arg, struct err *err)
{
    int *left = arg;
    return --*left > 0 ? 0 : err_set(err, -ECONNABORTED, "stopped");
}

/* Somebody has the whole context, and waits there for a peer that has died. */
UNIT_TEST_WITH(a_stop_ends_the_wait_to_capture, graphs_start, graphs_end)
{
    int left = 3;
    tables.wait = wait_is_stopped;
    tables.arg = &left;
    for (int i = 0; i < 2; i++)
        assert_int_equal(0, batch_run(*state, 1, 100, 0));
    (void)pthread_mutex_lock(&whole);
    assert_int_equal(-ECONNABORTED, batch_run(*state, 1, 100, 0));
    (void)pthread_mutex_unlock(&whole);
    assert_int_equal(left, 0);
    assert_int_equal(0, batch_run(*state, 1, 100, 0));
    assert_int_equal(fake.n_captured, 1);
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of tables over memory and uploads that are counted here: device memory is
 * the heap, and a copy happens at once. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/backend/nccl/table.h"
#include "runtime/base/mem.h"

static cu_stream const first = (cu_stream)(uintptr_t)1,
                       second = (cu_stream)(uintptr_t)2;
static uint8_t pinned[PINNED_BYTES / 2];
static unsigned n_copies, n_taken, n_given, n_busy, n_waits;
static int take_result, copy_result;
static uint64_t most_pinned;

int memory_take(
    struct gpu_memory *m, uint64_t bytes, cu_stream s, cu_ptr *ret, struct err *err)
{
    (void)m;
    (void)s;
    if (take_result < 0)
        return err_set(err, take_result, "out of memory");
    n_taken++;
    *ret = (uintptr_t)malloc(bytes);
    return 0;
}

void memory_give(struct gpu_memory *m, cu_ptr p, cu_stream s)
{
    (void)m;
    (void)s;
    n_given += p != 0;
    free((void *)(uintptr_t)p);
}

int scratch_pinned(struct gpu_scratch *sc, uint32_t bytes, void **ret, struct err *err)
{
    (void)sc;
    (void)err;
    if (n_busy > 0) {
        n_busy--;
        return -EAGAIN;
    }
    most_pinned = bytes > most_pinned ? bytes : most_pinned;
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

static int copy_up(cu_ptr dst, const void *src, size_t n, cu_stream s)
{
    (void)s;
    n_copies++;
    if (copy_result == 0)
        memcpy((void *)(uintptr_t)dst, src, n);
    return copy_result;
}

static int wait_once(void *arg, struct err *err)
{
    n_waits++;
    return *(const int *)arg < 0 ? err_set(err, *(const int *)arg, "stopped") : 0;
}

static const struct cuda_api api = {.copy_up = copy_up};
static int wait_result;

static int tables_start(void **state)
{
    struct tables *t = malloc(sizeof(*t));
    n_copies = n_taken = n_given = n_busy = n_waits = 0;
    take_result = copy_result = wait_result = 0;
    most_pinned = 0;
    tables_init(t, &api, NULL, NULL, wait_once, &wait_result);
    *state = t;
    return 0;
}

static int tables_end(void **state)
{
    tables_release(*state);
    bool is_even = n_taken == n_given;
    free(*state);
    return is_even ? 0 : -1;
}

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

static void same_content_uploads_once(void **state)
{
    struct tables *t = *state;
    cu_ptr at = table_take_checked(t, 1, 100, first);
    for (int i = 0; i < 50; i++)
        assert_true(table_take_checked(t, 1, 100, first) == at);
    assert_int_equal(n_copies, 1);
    assert_int_equal(t->n_hits, 50);
    assert_int_equal(t->n_uploads, 1);
}

static void changed_pointer_count_or_stream_uploads(void **state)
{
    struct chunk v[2] = {{1, 2, 3, 0}, {4, 5, 6, 0}};
    struct err err = ERR_INIT;
    cu_ptr at;
    assert_int_equal(0, table_take(*state, v, 2, first, &at, &err));
    v[1].src++;
    assert_int_equal(0, table_take(*state, v, 2, first, &at, &err));
    v[1].tensor++;
    assert_int_equal(0, table_take(*state, v, 2, first, &at, &err));
    assert_int_equal(0, table_take(*state, v, 1, first, &at, &err));
    assert_int_equal(n_copies, 4);
    assert_int_equal(0, table_take(*state, v, 2, second, &at, &err));
    assert_int_equal(0, table_take(*state, v, 2, first, &at, &err));
    assert_int_equal(n_copies, 5);
}

static void last_32_are_kept_and_the_oldest_goes(void **state)
{
    for (uint64_t i = 0; i < TABLES_KEPT; i++)
        table_take_checked(*state, i, 70, first);
    table_take_checked(*state, 0, 70, first); /* used again: 1 is the oldest now */
    table_take_checked(*state, 99, 70, first);
    assert_int_equal(n_copies, TABLES_KEPT + 1);
    assert_int_equal(n_given, 0); /* uploaded over the oldest one's memory */
    table_take_checked(*state, 0, 70, first);
    assert_int_equal(n_copies, TABLES_KEPT + 1);
    table_take_checked(*state, 1, 70, first);
    assert_int_equal(n_copies, TABLES_KEPT + 2);
}

static void table_stays_while_31_others_are_taken(void **state)
{
    cu_ptr at = table_take_checked(*state, 1, 5, first);
    struct chunk before[5];
    memcpy(before, (void *)(uintptr_t)at, sizeof(before));
    for (uint64_t i = 0; i < TABLES_KEPT - 1; i++)
        table_take_checked(*state, 100 + i, 5 + (uint32_t)i * 40,
                           i % 2 ? first : second);
    assert_memory_equal((void *)(uintptr_t)at, before, sizeof(before));
}

static void large_table_goes_in_pieces(void **state)
{
    n_busy = 2;
    table_take_checked(*state, 3, 200000, first); /* 4.8 MB */
    assert_int_equal(n_copies, 3);
    assert_int_equal(n_waits, 2);
    assert_true(most_pinned <= PINNED_BYTES / 2);
}

static void failure_leaves_no_half_table(void **state)
{
    struct chunk v[3] = {{1, 2, 3, 0}};
    struct err err = ERR_INIT;
    cu_ptr at;
    take_result = -ENOMEM;
    assert_int_equal(-ENOMEM, table_take(*state, v, 3, first, &at, &err));
    take_result = 0;
    copy_result = 700;
    assert_int_equal(-EIO, table_take(*state, v, 3, first, &at, &err));
    copy_result = 0;
    n_busy = 1;
    wait_result = -ECONNABORTED;
    assert_int_equal(-ECONNABORTED, table_take(*state, v, 3, first, &at, &err));
    wait_result = 0;
    mem_fail_after(0);
    v[0].src = 17;
    assert_int_equal(-ENOMEM, table_take(*state, v, 3, second, &at, &err));
    mem_fail_after(-1);
    unsigned before = n_copies;
    assert_int_equal(0, table_take(*state, v, 3, first, &at, &err));
    assert_int_equal(n_copies, before + 1);
    assert_memory_equal((void *)(uintptr_t)at, v, sizeof(v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_content_uploads_once, tables_start,
                                        tables_end),
        cmocka_unit_test_setup_teardown(changed_pointer_count_or_stream_uploads,
                                        tables_start, tables_end),
        cmocka_unit_test_setup_teardown(last_32_are_kept_and_the_oldest_goes,
                                        tables_start, tables_end),
        cmocka_unit_test_setup_teardown(table_stays_while_31_others_are_taken,
                                        tables_start, tables_end),
        cmocka_unit_test_setup_teardown(large_table_goes_in_pieces, tables_start,
                                        tables_end),
        cmocka_unit_test_setup_teardown(failure_leaves_no_half_table, tables_start,
                                        tables_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

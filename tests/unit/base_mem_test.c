/* SPDX-License-Identifier: Apache-2.0 */
/* mem, arena and strbuf: bounds, overflow, and what happens when memory is out. */
#include <pthread.h>

#include "runtime/base/arena.h"
#include "runtime/base/strbuf.h"
#include "runtime/base/wiped.h"
#include "tests/unit/torture.h"

UNIT_TEST(sizes_that_overflow_give_null)
{
    assert_null(mem_calloc(SIZE_MAX / 2, 3));
    assert_null(mem_realloc_array(NULL, SIZE_MAX / 2, 3));
}

UNIT_TEST(vector_grows_to_its_bound)
{
    void *v = NULL;
    size_t cap = 0;

    for (size_t n = 0; n < 19; n++) {
        assert_int_equal(mem_grow(&v, n, &cap, sizeof(int), 19), 0);
        assert_true(cap > n && cap <= 19);
        ((int *)v)[n] = (int)n;
    }
    assert_int_equal(mem_grow(&v, 19, &cap, sizeof(int), 19), -E2BIG);
    for (int n = 0; n < 19; n++)
        assert_int_equal(((int *)v)[n], n);
    mem_free(v);
}

UNIT_TEST(arena_is_aligned_zeroed_and_bounded)
{
    struct arena a;

    arena_init(&a, 20000);
    for (size_t n = 1; n < 100; n++) {
        unsigned char *p = arena_alloc(&a, n);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    assert_non_null(arena_alloc(&a, 9000)); /* more than a block */
    assert_null(arena_alloc(&a, 20000));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 4));
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 7), "x-7");
    assert_string_equal(arena_strdup(&a, "abc"), "abc");
    arena_release(&a);
    assert_non_null(arena_alloc(&a, 20000)); /* reusable, with its whole bound */
    arena_release(&a);
    arena_release(&a);
}

UNIT_TEST(arena_wipe_leaves_nothing_in_any_block)
{
    char *p[3];
    struct arena a;

    arena_init(&a, 20000);
    arena_wipe(&a); /* empty */
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        p[i] = arena_alloc(&a, 3000 + 2000 * i);
        assert_non_null(p[i]);
        memset(p[i], 'x', 3000 + 2000 * i);
    }
    arena_wipe(&a);
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        assert_int_equal(p[i][0], 0);
        assert_int_equal(p[i][2999 + 2000 * i], 0);
    }
    arena_release(&a);
}

static bool is_zero(const void *p, size_t n)
{
    const unsigned char *b = p;

    while (n > 0 && b[n - 1] == 0)
        n--;
    return n == 0;
}

UNIT_TEST(a_secret_strbuf_is_wiped_when_it_is_cleared)
{
    struct strbuf b;
    char *first;

    strbuf_init_secret(&b, 1000);
    strbuf_puts(&b, "a secret");
    strbuf_clear(&b);
    assert_true(is_zero(b.p, b.cap));
    strbuf_puts(&b, "another");
    first = b.p;
    for (int i = 0; i < 20; i++) /* grows: what it leaves is free, and not looked at */
        strbuf_puts(&b, " secret ");
    assert_ptr_not_equal(b.p, first);
    assert_int_equal(strbuf_status(&b), 0);
    assert_int_equal(b.n, strlen("another") + 20 * strlen(" secret "));
    assert_memory_equal(b.p, "another secret ", 15);
    strbuf_release(&b);
}

UNIT_TEST(wiped_memory_behaves_like_malloc)
{
    char *p, *q;

    wiped_free(NULL);
    p = wiped_strdup("abc");
    assert_string_equal(p, "abc");
    assert_int_equal((uintptr_t)p % 16, 0);
    q = wiped_realloc(p, 1000);
    assert_string_equal(q, "abc");
    memset(q, 1, 1000);
    p = wiped_realloc(q, 2);
    assert_memory_equal(p, "\1\1", 2);
    wiped_free(p);
    p = wiped_realloc(NULL, 5);
    assert_non_null(p);
    wiped_free(p);
    p = wiped_calloc(3, 7);
    assert_true(is_zero(p, 21));
    wiped_free(p);
    assert_null(wiped_calloc(SIZE_MAX / 2, 3));
    assert_null(wiped_alloc(SIZE_MAX - 3));
    mem_fail_after(0);
    assert_null(wiped_alloc(1));
}

static void *take_one(void *arg)
{
    void **ret = arg;

    *ret = mem_alloc(1);
    return NULL;
}

UNIT_TEST(memory_can_run_out_for_one_thread_alone)
{
    void *other = NULL, *p;
    pthread_t t;

    mem_fail_thread_after(1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&t, NULL, take_one, &other), 0);
        assert_int_equal(pthread_join(t, NULL), 0);
        assert_non_null(other);
        mem_free(other);
    }
    assert_false(mem_fail_fired());
    p = mem_alloc(1);
    assert_non_null(p);
    mem_free(p);
    assert_null(mem_alloc(1));
    assert_true(mem_fail_fired());

    mem_fail_after(0); /* again of the whole process */
    assert_int_equal(pthread_create(&t, NULL, take_one, &other), 0);
    assert_int_equal(pthread_join(t, NULL), 0);
    assert_null(other);
    assert_true(mem_fail_fired());
    mem_fail_after(-1);
}

UNIT_TEST(strbuf_appends_until_its_bound)
{
    struct strbuf b;

    strbuf_init(&b, 10);
    assert_string_equal(strbuf_str(&b), "");
    strbuf_puts(&b, "abc");
    strbuf_printf(&b, "%d", 1234567);
    assert_string_equal(strbuf_str(&b), "abc1234567");
    assert_int_equal(strbuf_status(&b), 0);
    strbuf_putc(&b, 'x');
    assert_int_equal(strbuf_status(&b), -E2BIG);
    assert_string_equal(strbuf_str(&b), "abc1234567"); /* never half an append */
    assert_null(strbuf_take(&b));
    strbuf_clear(&b);
    strbuf_add(&b, "q\0r", 3);
    assert_int_equal(b.n, 3);
    char *p = strbuf_take(&b);
    assert_memory_equal(p, "q\0r", 4);
    mem_free(p);
    strbuf_release(&b);
}

static int strbuf_build(void *arg)
{
    CLEANUP(strbuf_release) struct strbuf b;

    (void)arg;
    strbuf_init(&b, 100000);
    for (int i = 0; i < 1000; i++)
        strbuf_printf(&b, "%d,", i);
    int rc = strbuf_status(&b);
    if (rc == 0)
        assert_int_equal(b.n, 3890);
    return rc;
}

static int build_in_arena(void *arg)
{
    CLEANUP(arena_release) struct arena a;

    (void)arg;
    arena_init(&a, 100000);
    for (int i = 0; i < 1000; i++)
        if (!arena_printf(&a, "%d", i))
            return -ENOMEM;
    return 0;
}

UNIT_TEST(lack_of_memory_marks_and_leaks_nothing)
{
    torture(strbuf_build, NULL);
    torture(build_in_arena, NULL);
}

UNIT_MAIN(NULL, NULL)

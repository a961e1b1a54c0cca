/* SPDX-License-Identifier: Apache-2.0 */
/* done.c against a std::function<void()> laid out by hand as libstdc++ does (and as
 * libc++ does). */
#include "tests/unit/unit.h"

#include "runtime/tensorflow/done.h"

struct calls {
    int cloned, destroyed, run;
};

struct function {
    void *storage[2];
    int (*manager)(void *to, const void *from, int operation);
    void (*invoker)(const void *storage);
};

static int function_manager(void *to, const void *from, int operation)
{
    struct function *t = to;
    const struct function *f = from;

    if (operation == 2) {
        t->storage[0] = f->storage[0];
        ((struct calls *)f->storage[0])->cloned++;
    }
    if (operation == 3)
        ((struct calls *)t->storage[0])->destroyed++;
    return 0;
}

static void function_invoker(const void *storage)
{
    const struct function *f = storage;

    ((struct calls *)f->storage[0])->run++;
}

UNIT_TEST(clone_outlives_the_original)
{
    struct calls calls = {0};
    struct function f = {{&calls, NULL}, function_manager, function_invoker};
    struct done *d;

    assert_true(done_is_clonable((const void *)&f));
    d = done_clone((const void *)&f);
    assert_non_null(d);
    memset(&f, 0xee, sizeof(f));
    done_run(d);
    assert_int_equal(calls.cloned, 1);
    assert_int_equal(calls.run, 1);
    assert_int_equal(calls.destroyed, 1);
}

UNIT_TEST(freed_clone_never_runs)
{
    struct calls calls = {0};
    struct function f = {{&calls, NULL}, function_manager, function_invoker};

    done_free(done_clone((const void *)&f));
    done_free(NULL);
    assert_int_equal(calls.run, 0);
    assert_int_equal(calls.destroyed, 1);
}

/* libc++: three words of storage, then the address of an object: here, of one on the
 * stack */
UNIT_TEST(other_layouts_are_refused)
{
    uintptr_t object[4] = {0};
    uintptr_t libcxx[4] = {1, 2, 3, (uintptr_t)object};
    uintptr_t empty[4] = {0};

    assert_false(done_is_clonable((const void *)libcxx));
    assert_false(done_is_clonable((const void *)empty));
    libcxx[2] = (uintptr_t)object;
    assert_false(done_is_clonable((const void *)libcxx));
}

UNIT_MAIN(NULL, NULL)

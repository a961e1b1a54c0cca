/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/err.h"
#include "tests/unit/unit.h"

UNIT_TEST(set_returns_code_and_keeps_text)
{
    struct err e = ERR_INIT;

    assert_int_equal(err_set(&e, -EINVAL, "n: %d exceeds %d", 7, 3), -EINVAL);
    assert_int_equal(e.code, -EINVAL);
    assert_string_equal(e.text, "n: 7 exceeds 3");
    assert_int_equal(err_set(NULL, -EIO, "nobody reads this"), -EIO);
}

UNIT_TEST(errno_text_follows)
{
    struct err e = ERR_INIT;

    assert_int_equal(err_errno(&e, ENOENT, "cannot open %s", "x"), -ENOENT);
    assert_int_equal(e.code, -ENOENT);
    assert_string_equal(e.text, "cannot open x: No such file or directory");
    assert_int_equal(err_errno(NULL, ENOENT, "x"), -ENOENT);
}

UNIT_TEST(prefix_keeps_code)
{
    struct err e = ERR_INIT;

    (void)err_set(&e, -ERANGE, "too large");
    assert_int_equal(err_prefix(&e, "line %d", 4), -ERANGE);
    assert_string_equal(e.text, "line 4: too large");
    assert_int_equal(err_prefix(NULL, "x"), -EIO);
    assert_int_equal(err_recode(&e, -EINVAL), -EINVAL);
    assert_int_equal(e.code, -EINVAL);
    assert_string_equal(e.text, "line 4: too large");
    assert_int_equal(err_recode(NULL, -EINVAL), -EINVAL);
}

UNIT_TEST(long_text_is_cut_and_terminated)
{
    struct err e;
    char big[1000];

    memset(&e, 'x', sizeof(e));
    memset(big, 'a', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    (void)err_errno(&e, EIO, "%s", big);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
    (void)err_prefix(&e, "%s", big);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* Documents that are generated from a table of the program. */
#ifndef TESTS_UNIT_GENERATED_H
#define TESTS_UNIT_GENERATED_H

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "tests/unit/unit.h"

/* Fails unless the text between the line that begins with `begin` and `end` in the file
 * is what put() writes. With GOLDEN_UPDATE=1 in the environment, it is replaced. */
static void assert_generated(const char *path,
                             const char *begin,
                             const char *end,
                             void (*put)(struct strbuf *))
{
    CLEANUP(strbuf_release) struct strbuf want = {0};
    CLEANUP(strbuf_release) struct strbuf whole = {0};
    AUTOFREE char *text = NULL;
    struct err e = ERR_INIT;
    char *from, *to;

    strbuf_init(&want, 1 << 20);
    strbuf_init(&whole, 1 << 20);
    put(&want);
    assert_int_equal(strbuf_status(&want), 0);
    if (fd_read_file(path, 1 << 20, &text, NULL, &e) < 0)
        fail_msg("%s", e.text);
    from = strstr(text, begin);
    assert_non_null(from);
    from += strcspn(from, "\n") + 1;
    to = strstr(from, end);
    assert_non_null(to);
    if ((size_t)(to - from) == want.n && memcmp(from, want.p, want.n) == 0)
        return;
    if (!getenv("GOLDEN_UPDATE"))
        fail_msg("%s differs from its table: run this test with GOLDEN_UPDATE=1", path);
    strbuf_add(&whole, text, (size_t)(from - text));
    strbuf_add(&whole, want.p, want.n);
    strbuf_puts(&whole, to);
    assert_int_equal(fd_write_file(path, whole.p, whole.n, 0644, &e), 0);
}

#endif

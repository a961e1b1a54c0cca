/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's hello: whole, cut at every byte, bent. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/control/address.h"

static int read_back(const struct control_address *a,
                     ssize_t cut,
                     struct control_address *ret,
                     struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    strbuf_init(&b, 256);
    address_write(a, &b);
    strbuf_putc(&b, 'x');
    return address_read((const uint8_t *)b.p, (size_t)((ssize_t)b.n - 1 - cut), 7, ret,
                        err);
}

UNIT_TEST(what_is_written_is_read_back)
{
    static const struct control_address rows[] = {
        {.port = 0},
        {.addr = "10.0.0.1", .port = 1},
        {.addr = "fe80::1%eth0", .port = 65535, .unix_name = "hvd-0123456789abcdef"},
    };
    struct control_address a;
    struct err e = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(read_back(&rows[i], 0, &a, &e), 0);
        assert_memory_equal(&a, &rows[i], sizeof(a));
        for (ssize_t cut = -1; cut < 4; cut++)
            if (cut)
                assert_int_equal(read_back(&rows[i], cut, &a, &e), -EPROTO);
    }
}

UNIT_TEST(what_no_rank_writes_is_refused)
{
    static const struct control_address rows[] = {
        {.addr = "10.0.0.1"},
        {.port = 5},
        {.addr = "10.0.0.1\n[error] fine", .port = 5},
        {.addr = "h", .port = 5, .unix_name = "hvd 1"},
    };
    struct control_address a;
    struct err e = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(read_back(&rows[i], 0, &a, &e), -EPROTO);
        assert_string_equal(e.text, "rank 7 sent a malformed greeting");
    }
}

UNIT_MAIN(NULL, NULL)

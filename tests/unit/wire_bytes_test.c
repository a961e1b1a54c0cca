/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of messages: what was written is read, and nothing beyond the end. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

UNIT_TEST(integers_are_little_endian_at_every_width)
{
    for (size_t n = 1; n <= 8; n++) {
        const uint64_t v = UINT64_C(0x8877665544332211) >> (8 * (8 - n));
        uint8_t p[9] = {[8] = 0xee};

        memset(p, 0xee, sizeof(p));
        bytes_store(p, v, n);
        assert_int_equal(p[0], (uint8_t)v);
        assert_int_equal(p[n - 1], (uint8_t)(v >> (8 * (n - 1))));
        assert_int_equal(p[n], 0xee);
        assert_true(bytes_load(p, n) == v);
    }
}

static void write_all(struct strbuf *out)
{
    strbuf_init(out, 4096);
    bytes_put(out, 0xfedcba9876543210, 8);
    bytes_put_u32(out, 7);
    bytes_put_f64(out, -0.5);
    bytes_put_name(out, "a name that is cut", 7);
    bytes_put_str(out, "text");
    bytes_put_str(out, "host-1.example");
}

/* The number of fields that were read. */
static int read_all(struct bytes_reader *r)
{
    uint64_t v;
    double d;
    char name[7], text[5], host[32];

    if (!bytes_get(r, 8, &v) || v != 0xfedcba9876543210)
        return 0;
    if (bytes_u32(r) != 7 || r->is_bad)
        return 1;
    if (!bytes_get_f64(r, &d) || d != -0.5)
        return 2;
    if (!bytes_get_name(r, name, sizeof(name)) || strcmp(name, "a name") != 0)
        return 3;
    bytes_str(r, text, sizeof(text));
    if (r->is_bad || strcmp(text, "text") != 0)
        return 4;
    bytes_host(r, host, sizeof(host));
    return r->is_bad || strcmp(host, "host-1.example") != 0 ? 5 : 6;
}

UNIT_TEST(what_was_written_is_read)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct bytes_reader r;

    write_all(&b);
    r = (struct bytes_reader){.p = (const uint8_t *)b.p, .left = b.n};
    assert_int_equal(read_all(&r), 6);
    assert_int_equal(bytes_end(&r, "test", NULL), 0);
}

UNIT_TEST(a_message_that_is_cut_is_bad_and_stays_so)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};

    write_all(&b);
    for (size_t n = 0; n < b.n; n++) {
        uint8_t *cut = mem_alloc(n + 1); /* so that ASan sees a read beyond the end */
        struct bytes_reader r = {.p = cut, .left = n};
        uint64_t v;

        assert_non_null(cut);
        memcpy(cut, b.p, n);
        assert_in_range(read_all(&r), 0, 5);
        assert_true(r.is_bad);
        assert_false(bytes_get(&r, 1, &v));
        assert_int_equal(bytes_end(&r, "test", NULL), -EPROTO);
        mem_free(cut);
    }
}

UNIT_TEST(texts_that_do_not_fit_or_have_a_nul_are_bad)
{
    static const struct {
        uint8_t bytes[8];
        size_t n;
    } rows[] = {
        {{4, 0, 0, 0, 'a', 'b', 'c', 'd'}, 8},   /* needs five bytes */
        {{2, 0, 0, 0, 'a', 0}, 6},               /* a NUL */
        {{0xff, 0xff, 0xff, 0xff, 'a', 'b'}, 6}, /* a length beyond the end */
        {{4, 0, 0, 0, 'a', 'b', 'c'}, 7},        /* the same by one */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bytes_reader r = {.p = rows[i].bytes, .left = rows[i].n};
        char text[4] = "old";

        bytes_str(&r, text, sizeof(text));
        assert_true(r.is_bad);
        assert_string_equal(text, "");
    }
}

UNIT_TEST(a_host_has_only_characters_of_hosts)
{
    static const char *const bad[] = {"", "a b", "a/b", "a\nb", "a,b"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct bytes_reader r;
        char host[16];

        strbuf_init(&b, 64);
        bytes_put_str(&b, bad[i]);
        r = (struct bytes_reader){.p = (const uint8_t *)b.p, .left = b.n};
        bytes_host(&r, host, sizeof(host));
        assert_true(r.is_bad);
    }
}

UNIT_MAIN(NULL, NULL)

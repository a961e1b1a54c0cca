/* SPDX-License-Identifier: Apache-2.0 */
/* Wire form: what is written is read back; what is cut or bent is refused, never read
 * beyond. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "runtime/core/message.h"

static struct request sample(void)
{
    struct request r = {.coll = COLL_BROADCAST,
                        .dtype = DT_BF16,
                        .op = OP_AVERAGE,
                        .root = 70000,
                        .process_set = 3,
                        .prescale = 0.1,
                        .postscale = -2e300,
                        .ndim = 3,
                        .shape = {5, 0, 1ll << 40}};

    (void)snprintf(r.name, sizeof(r.name), "layer.1/weight");
    return r;
}

static void requests_come_back_equal(void **state)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct request a = sample(), z = {.coll = COLL_BARRIER, .name = "z"}, got;
    struct message_reader in;

    (void)state;
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    memset(a.name, 'n', sizeof(a.name) - 1); /* the longest name */
    message_begin(&b, MESSAGE_REQUESTS);
    message_put_request(&b, &a);
    message_put_request(&b, &z);
    assert_int_equal(strbuf_status(&b), 0);
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    assert_int_equal(in.kind, MESSAGE_REQUESTS);
    assert_int_equal(message_next_request(&in, &got, NULL), 1);
    assert_memory_equal(&got, &a, sizeof(a));
    assert_int_equal(message_next_request(&in, &got, NULL), 1);
    assert_memory_equal(&got, &z, sizeof(z));
    assert_int_equal(message_next_request(&in, &got, NULL), 0);
}

static void responses_come_back_equal(void **state)
{
    static const uint64_t rows[] = {1, 0, 77};
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct response a = {.kind = RESPONSE_RUN,
                         .coll = COLL_ALLGATHER,
                         .fuse_next = true,
                         .name = "a",
                         .n_counts = 3,
                         .counts = rows};
    struct response f = {.kind = RESPONSE_FAIL,
                         .coll = COLL_ALLREDUCE,
                         .name = "f",
                         .text = "Mismatched data types"};
    struct message_reader in;
    struct response got;
    uint64_t counts[3];

    (void)state;
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    message_begin(&b, MESSAGE_RESPONSES);
    message_put_response(&b, &a);
    message_put_response(&b, &f);
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    assert_int_equal(message_next_response(&in, counts, 3, &got, NULL), 1);
    assert_int_equal(got.kind, RESPONSE_RUN);
    assert_int_equal(got.coll, COLL_ALLGATHER);
    assert_true(got.fuse_next);
    assert_string_equal(got.name, "a");
    assert_memory_equal(got.counts, rows, sizeof(rows));
    assert_int_equal(message_next_response(&in, counts, 3, &got, NULL), 1);
    assert_int_equal(got.kind, RESPONSE_FAIL);
    assert_string_equal(got.text, "Mismatched data types");
    assert_int_equal(message_next_response(&in, counts, 3, &got, NULL), 0);
    /* the same for a world of another size is refused: counts would overflow the
     * caller's array */
    assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
    assert_int_equal(message_next_response(&in, counts, 2, &got, NULL), -EBADMSG);
}

static void every_cut_is_refused(void **state)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct request a = sample(), got;

    (void)state;
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    message_begin(&b, MESSAGE_REQUESTS);
    message_put_request(&b, &a);
    for (size_t n = 0; n < b.n; n++) {
        AUTOFREE uint8_t *cut =
            mem_alloc(n + 1); /* its own block: ASan sees a read beyond */
        struct message_reader in;
        struct err err = ERR_INIT;
        int r;

        assert_non_null(cut);
        cut = mem_realloc_array(cut, n > 0 ? n : 1, 1);
        memcpy(cut, b.p, n);
        r = message_open(&in, cut, n, &err);
        if (n == 4) { /* an empty message is one */
            assert_int_equal(r, 0);
            assert_int_equal(message_next_request(&in, &got, &err), 0);
            continue;
        }
        r = r < 0 ? r : message_next_request(&in, &got, &err);
        assert_int_equal(r, -EBADMSG);
        assert_non_null(strstr(err.text, "control message: bad"));
    }
}

static void bent_fields_are_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
    } bend[] = {
        {4, COLL_COUNT}, {5, DT_COUNT}, {6, OP_COUNT}, {7, TENSOR_MAX_DIMS + 1},
        {39, 0x80}, /* a negative dimension */
        {47, 0x7f}, /* a product beyond 2^62, though another dimension is 0 */
        {56, 0},    /* length of the name 0: the name's bytes are then no request */
        {58, 0},    /* a NUL inside the name */
    };
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct request a = sample(), got;

    (void)state;
    a.shape[1] = 3;
    a.shape[2] = 2;
    strbuf_init(&b, MESSAGE_MAX_BYTES);
    message_begin(&b, MESSAGE_REQUESTS);
    message_put_request(&b, &a);
    for (size_t i = 0; i < ARRAY_LEN(bend); i++) {
        struct message_reader in;
        char old = b.p[bend[i].at];

        b.p[bend[i].at] = (char)bend[i].value;
        assert_int_equal(message_open(&in, b.p, b.n, NULL), 0);
        assert_int_equal(message_next_request(&in, &got, NULL), -EBADMSG);
        b.p[bend[i].at] = old;
    }
}

static void another_version_is_named(void **state)
{
    static const uint8_t v2[] = {2, 1, 0, 0}, kind9[] = {1, 9, 0, 0};
    struct message_reader in;
    struct err err = ERR_INIT;

    (void)state;
    assert_int_equal(message_open(&in, v2, sizeof(v2), &err), -EPROTO);
    assert_string_equal(err.text,
                        "control message: version 2 of a peer, this library speaks 1");
    assert_int_equal(message_open(&in, kind9, sizeof(kind9), &err), -EBADMSG);
}

static void sizes_are_checked_before_they_are_multiplied(void **state)
{
    struct request r = {.dtype = DT_F64, .ndim = 2, .shape = {1ll << 31, 1ll << 31}};
    struct err err = ERR_INIT;
    uint64_t count, bytes;

    (void)state;
    assert_int_equal(request_size(&r, &count, &bytes, &err), -EINVAL);
    assert_string_equal(err.text, "shape: more than 2^62 bytes");
    r.shape[0] = -1;
    assert_int_equal(request_size(&r, &count, &bytes, &err), -EINVAL);
    assert_string_equal(err.text, "shape: dimension 0 is -1, must be >= 0");
    r.ndim = 0;
    assert_int_equal(request_size(&r, &count, &bytes, &err), 0);
    assert_int_equal(count, 1);
    assert_int_equal(bytes, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_back_equal),
        cmocka_unit_test(responses_come_back_equal),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(bent_fields_are_refused),
        cmocka_unit_test(another_version_is_named),
        cmocka_unit_test(sizes_are_checked_before_they_are_multiplied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

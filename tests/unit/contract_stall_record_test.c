/* SPDX-License-Identifier: Apache-2.0 */
/* The file "stall" of rank 0: what is written is read again, and damage is refused. */
#include "runtime/contract/stall_record.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static const struct stall_record full = {
    .since_wall_us = 1790000000123456,
    .seen_wall_us = 1790000063123456,
    .generation = 2,
    .size = 3,
    .pid = 417,
    .op = "ALLREDUCE",
    .tensor = "grad/0 of \"a b\"",
    .n_missing = 20,
    .n_listed = 2,
    .missing = {{1, "BARRIER", "epoch 3"}, {2, "", ""}},
    .deadlock = "2 ranks wait only for each other: rank 0 waits",
};

static void record_pack(const struct stall_record *r, struct strbuf *out)
{
    strbuf_init(out, STALL_FILE_MAX_BYTES);
    stall_record_pack(r, out);
    assert_int_equal(strbuf_status(out), 0);
}

UNIT_TEST(what_is_written_is_read_again)
{
    CLEANUP(strbuf_release) struct strbuf b = {0}, again = {0};
    struct stall_record got;

    record_pack(&full, &b);
    assert_int_equal(stall_record_unpack(b.p, b.n, &got, NULL), 0);
    record_pack(&got, &again);
    assert_string_equal(strbuf_str(&again), strbuf_str(&b));
    assert_string_equal(got.tensor, full.tensor);
    assert_string_equal(got.missing[0].tensor, "epoch 3");
    assert_string_equal(got.missing[0].op, "BARRIER");
    assert_string_equal(got.missing[1].op, "");
    assert_int_equal(got.missing[1].rank, 2);
    assert_string_equal(got.deadlock, full.deadlock);
}

UNIT_TEST(a_name_cannot_add_a_line)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct stall_record r = full, got;

    (void)snprintf(r.tensor, sizeof(r.tensor), "a\npid 1\n");
    record_pack(&r, &b);
    assert_int_equal(stall_record_unpack(b.p, b.n, &got, NULL), 0);
    assert_string_equal(got.tensor, "a?pid 1?");
    assert_int_equal(got.pid, 417);
}

UNIT_TEST(a_file_of_the_program_controls_no_terminal)
{
    static const char text[] = "ringmaster-stall/1\nsince_us 7\nn_missing 1\n"
                               "tensor a\033[2Jb\nmissing 1 OP\r c\177\n";
    struct stall_record r;

    assert_int_equal(stall_record_unpack(text, strlen(text), &r, NULL), 0);
    assert_string_equal(r.tensor, "a?[2Jb");
    assert_string_equal(r.missing[0].op, "OP?");
    assert_string_equal(r.missing[0].tensor, "c?");
    assert_true(stall_record_is_missing(&r, 1));
    assert_false(stall_record_is_missing(&r, 0));
}

UNIT_TEST(the_largest_record_fits_its_file)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct stall_record r = full, got;

    memset(r.tensor, 'x', sizeof(r.tensor) - 1);
    memset(r.deadlock, 'x', sizeof(r.deadlock) - 1);
    r.n_listed = STALL_MISSING_MAX;
    for (uint32_t i = 0; i < STALL_MISSING_MAX; i++) {
        r.missing[i].rank = UINT32_MAX;
        memset(r.missing[i].op, 'X', sizeof(r.missing[i].op) - 1);
        memset(r.missing[i].tensor, 'x', sizeof(r.missing[i].tensor) - 1);
    }
    record_pack(&r, &b);
    assert_int_equal(stall_record_unpack(b.p, b.n, &got, NULL), 0);
    assert_int_equal(got.n_listed, STALL_MISSING_MAX);
}

UNIT_TEST(damage_is_refused_and_unknown_keys_are_not)
{
    static const struct {
        const char *text;
        int rc;
    } rows[] = {
        {"ringmaster-stall/1\nsince_us 7\n", 0},
        {"ringmaster-stall/1\nsince_us 7\nlater x y\n", 0},
        {"", -EPROTO},
        {"ringmaster-stall/2\nsince_us 7\n", -EPROTO},
        {"ringmaster-stall/1\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us 7", -EPROTO},
        {"ringmaster-stall/1\nsince_us x\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us -7\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us 7\nsize 4294967296\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us 7\nmissing 1\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us 7\nn_missing 1\nmissing 1\n", 0},
        {"ringmaster-stall/1\nsince_us 7\nn_missing 1\nmissing 1 \n", 0},
        {"ringmaster-stall/1\nsince_us 7\nn_missing 1\nmissing x\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us 7\nn_missing 1\nmissing 1 BARRIER\n", -EPROTO},
        {"ringmaster-stall/1\nsince_us 7\nword\n", -EPROTO},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct stall_record r;
        int rc = stall_record_unpack(rows[i].text, strlen(rows[i].text), &r, NULL);

        if (rc != rows[i].rc)
            fail_msg("%s: %d", rows[i].text, rc);
    }
}

UNIT_MAIN(NULL, NULL)

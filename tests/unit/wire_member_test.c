/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between a process of an elastic job and its launcher. */
#include "tests/unit/unit.h"

#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/wire/member_message.h"

static const struct member_message examples[] = {
    {.type = MEMBER_READY, .slot = 3, .incarnation = 2, .generation = 65537},
    {.type = MEMBER_COMMIT, .generation = 7},
    {.type = MEMBER_ENDING, .generation = 7, .why = "ended: ValueError"},
    {.type = MEMBER_FORM,
     .generation = 9,
     .place = {2, 5, 1, 2, 0, 3, 0},
     .n_new = 1,
     .rdv_port = 65535,
     .rdv_host = "host-1.example"},
    {.type = MEMBER_BREAK, .generation = 9, .why = "rank 1 (host b): killed"},
    {.type = MEMBER_NOTIFY, .generation = 9, .change = MEMBER_CHANGE_ADDED},
};

static void message_write(const struct member_message *m, struct strbuf *out)
{
    strbuf_init(out, MEMBER_MESSAGE_MAX_BYTES);
    member_message_write(m, out);
    assert_int_equal(strbuf_status(out), 0);
}

UNIT_TEST(each_message_is_read_as_it_was_written)
{
    for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct member_message m;

        message_write(&examples[i], &b);
        assert_int_equal(member_message_read((uint8_t *)b.p, b.n, &m, NULL), 0);
        assert_memory_equal(&m, &examples[i], sizeof(m));
    }
}

UNIT_TEST(a_message_that_is_cut_or_too_long_is_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(examples); i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct member_message m;

        message_write(&examples[i], &b);
        for (size_t n = 0; n < b.n; n++)
            assert_int_equal(member_message_read((uint8_t *)b.p, n, &m, NULL), -EPROTO);
        strbuf_putc(&b, 'x');
        assert_int_equal(member_message_read((uint8_t *)b.p, b.n, &m, NULL), -EPROTO);
    }
}

UNIT_TEST(a_place_that_contradicts_itself_is_refused)
{
    static const struct {
        struct place place;
        uint32_t n_new;
        uint16_t port;
        const char *host;
    } bad[] = {
        {{5, 5, 1, 2, 0, 3, 0}, 1, 1, "h"},   {{2, 5, 2, 2, 0, 3, 0}, 1, 1, "h"},
        {{2, 5, 1, 2, 3, 3, 0}, 1, 1, "h"},   {{2, 5, 1, 2, 0, 3, 0}, 6, 1, "h"},
        {{2, 5, 1, 2, 0, 3, 0}, 1, 0, "h"},   {{2, 5, 1, 2, 0, 3, 0}, 1, 1, ""},
        {{2, 5, 1, 2, 0, 3, 0}, 1, 1, "a b"},
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CLEANUP(strbuf_release) struct strbuf b = {0};
        struct member_message m = {.type = MEMBER_FORM,
                                   .place = bad[i].place,
                                   .n_new = bad[i].n_new,
                                   .rdv_port = bad[i].port};

        (void)snprintf(m.rdv_host, sizeof(m.rdv_host), "%s", bad[i].host);
        message_write(&m, &b);
        assert_int_equal(member_message_read((uint8_t *)b.p, b.n, &m, NULL), -EPROTO);
    }
}

UNIT_TEST(a_cause_cannot_control_a_terminal)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct member_message m = {.type = MEMBER_BREAK, .why = "a\x1b[2Jb\n"};

    message_write(&m, &b);
    assert_int_equal(member_message_read((uint8_t *)b.p, b.n, &m, NULL), 0);
    assert_string_equal(m.why, "a?[2Jb?");
}

UNIT_TEST(an_address_is_read_as_it_was_written)
{
    const struct member_address a = {"hvd-0123456789abcdef", 4294967295u, 3};
    struct member_address b;
    char text[100];

    member_address_write(&a, text, sizeof(text));
    assert_string_equal(text, "hvd-0123456789abcdef:4294967295.3");
    assert_int_equal(member_address_read(text, &b, NULL), 0);
    assert_memory_equal(&a, &b, sizeof(a));
}

UNIT_TEST(another_address_is_refused_with_the_value)
{
    static const char *const bad[] = {"",
                                      "1",
                                      ":1.2",
                                      "a:",
                                      "a:1",
                                      "a:1.",
                                      "a:1.x",
                                      "a:-1.2",
                                      "a:1.2 ",
                                      "a: 1.2",
                                      "a:4294967296.1",
                                      "0123456789012345678901234567890123456789:1.2"};
    struct member_address a;
    struct err err = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(member_address_read(bad[i], &a, &err), -EINVAL);
        if (bad[i][0])
            assert_non_null(strstr(err.text, bad[i]));
    }
}

UNIT_MAIN(NULL, NULL)

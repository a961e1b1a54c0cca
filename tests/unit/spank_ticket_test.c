/* SPDX-License-Identifier: Apache-2.0 */
/* The text between srun and the nodes. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "spank_plugin/ticket.h"

static struct ticket ticket_sample(uint16_t port)
{
    struct ticket t = {.port = port,
                       .gate_port = (uint16_t)(65536u - port),
                       .ends_port = (uint16_t)(port - 1),
                       .generation = port == 1 ? UINT32_MAX : port};
    for (size_t i = 0; i < sizeof(t.token.key); i++)
        t.token.key[i] = (uint8_t)(i * 37 + port);
    return t;
}

UNIT_TEST(what_is_rendered_is_read_back)
{
    const uint16_t ports[] = {1, 40123, 65535};
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        struct ticket t = ticket_sample(ports[i]), back = {0};
        char text[TICKET_MAX_BYTES];
        struct err err = ERR_INIT;
        ticket_render(&t, text);
        assert_int_equal(ticket_parse(text, strlen(text), &back, &err), 0);
        assert_int_equal(back.port, ports[i]);
        assert_int_equal(back.gate_port, t.gate_port);
        assert_int_equal(back.generation, t.generation);
        assert_int_equal(back.ends_port, t.ends_port);
        assert_memory_equal(back.token.key, t.token.key, sizeof(t.token.key));
    }
}

UNIT_TEST(every_cut_or_lengthened_ticket_is_refused)
{
    struct ticket t = ticket_sample(4711), back;
    char text[TICKET_MAX_BYTES + 1];
    struct err err = ERR_INIT;
    ticket_render(&t, text);
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ticket_parse(text, i, &back, &err), -EINVAL);
    strcpy(text + n, "0");
    assert_int_equal(ticket_parse(text, n + 1, &back, &err), -EINVAL);
    strcpy(text + n, " x");
    assert_int_equal(ticket_parse(text, n + 2, &back, &err), -EINVAL);
}

/* Only what ticket_render writes is a ticket. */
UNIT_TEST(another_spelling_is_refused)
{
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    static const char good[] =
        "hvd-step/4 port=40123 gate=40124 ends=40125 generation=0 token=" HEX;
    static const struct {
        const char *text;
        size_t n;
    } rows[] = {
#define ROW(text) {text, sizeof(text) - 1}
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125generation=0 token=" HEX),
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125  generation=0 token=" HEX),
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125\ngeneration=0 token=" HEX),
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125 generation=00 token=" HEX),
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125 generation=4294967296 "
            "token=" HEX),
        ROW("hvd-step/4 port=040123 gate=40124 ends=40125 generation=0 token=" HEX),
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125 generation=0 token=" HEX
            "\0x"),
        ROW("hvd-step/4 port=40123 gate=40124 ends=40125 generation=0 token=" HEX "\n"),
#undef ROW
    };
    struct ticket back;
    struct err err = ERR_INIT;
    assert_int_equal(ticket_parse(good, sizeof(good) - 1, &back, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(ticket_parse(rows[i].text, rows[i].n, &back, &err), -EINVAL);
        assert_string_equal(err.text, "SLURM_HVD_STEP is damaged");
    }
}

UNIT_TEST(another_version_is_reported_as_such)
{
    struct ticket back;
    struct err err = ERR_INIT;
    const char *text = "hvd-step/1 anything else that another version may say here";
    assert_int_equal(ticket_parse(text, strlen(text), &back, &err), -EINVAL);
    assert_non_null(strstr(err.text, "same version"));
}

UNIT_TEST(damage_never_shows_the_token)
{
    struct ticket t = ticket_sample(99), back;
    char text[TICKET_MAX_BYTES];
    struct err err = ERR_INIT;
    ticket_render(&t, text);
    text[strlen(TICKET_VERSION " port=")] = 'x';
    assert_int_equal(ticket_parse(text, strlen(text), &back, &err), -EINVAL);
    assert_string_equal(err.text, "SLURM_HVD_STEP is damaged");
}

UNIT_MAIN(NULL, NULL)

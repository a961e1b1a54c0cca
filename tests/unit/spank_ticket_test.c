/* SPDX-License-Identifier: Apache-2.0 */
/* The text between srun and the nodes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/mem.h"
#include "spank_plugin/ticket.h"

static struct ticket ticket_sample(uint16_t port)
{
    struct ticket t = {.port = port};
    for (size_t i = 0; i < sizeof(t.token.key); i++)
        t.token.key[i] = (uint8_t)(i * 37 + port);
    return t;
}

static void what_is_rendered_is_read_back(void **state)
{
    const uint16_t ports[] = {1, 40123, 65535};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        struct ticket t = ticket_sample(ports[i]), back = {0};
        char text[TICKET_MAX_BYTES];
        struct err err = ERR_INIT;
        ticket_render(&t, text);
        assert_int_equal(ticket_parse(text, strlen(text), &back, &err), 0);
        assert_int_equal(back.port, ports[i]);
        assert_memory_equal(back.token.key, t.token.key, sizeof(t.token.key));
    }
}

static void every_cut_or_lengthened_ticket_is_refused(void **state)
{
    struct ticket t = ticket_sample(4711), back;
    char text[TICKET_MAX_BYTES + 1];
    struct err err = ERR_INIT;
    (void)state;
    ticket_render(&t, text);
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ticket_parse(text, i, &back, &err), -EINVAL);
    strcpy(text + n, "0");
    assert_int_equal(ticket_parse(text, n + 1, &back, &err), -EINVAL);
    strcpy(text + n, " x");
    assert_int_equal(ticket_parse(text, n + 2, &back, &err), -EINVAL);
}

static void another_version_is_reported_as_such(void **state)
{
    struct ticket back;
    struct err err = ERR_INIT;
    const char *text = "hvd-step/2 anything else that a later version may say here";
    (void)state;
    assert_int_equal(ticket_parse(text, strlen(text), &back, &err), -EINVAL);
    assert_non_null(strstr(err.text, "same version"));
}

static void damage_never_shows_the_token(void **state)
{
    struct ticket t = ticket_sample(99), back;
    char text[TICKET_MAX_BYTES];
    struct err err = ERR_INIT;
    (void)state;
    ticket_render(&t, text);
    text[strlen("hvd-step/1 port=")] = 'x';
    assert_int_equal(ticket_parse(text, strlen(text), &back, &err), -EINVAL);
    assert_string_equal(err.text, "SLURM_HVD_STEP is damaged");
}

static void master_port_is_stable_and_in_range(void **state)
{
    struct ticket a = ticket_sample(1), b = ticket_sample(2);
    (void)state;
    assert_int_equal(ticket_master_port(&a), ticket_master_port(&a));
    assert_int_not_equal(ticket_master_port(&a), ticket_master_port(&b));
    assert_in_range(ticket_master_port(&a), 20000, 29999);
    assert_in_range(ticket_master_port(&b), 20000, 29999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_rendered_is_read_back),
        cmocka_unit_test(every_cut_or_lengthened_ticket_is_refused),
        cmocka_unit_test(another_version_is_reported_as_such),
        cmocka_unit_test(damage_never_shows_the_token),
        cmocka_unit_test(master_port_is_stable_and_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

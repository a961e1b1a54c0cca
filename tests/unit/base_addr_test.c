/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of this machine, whatever it has. */
#include "runtime/base/addr.h"
#include "tests/unit/unit.h"

UNIT_TEST(a_list_has_no_loopback_and_whole_addresses)
{
    char all[256], some[40], *save = NULL;

    assert_int_equal(addr_list("", all, sizeof(all), NULL), 0);
    assert_int_equal(addr_list("", some, sizeof(some), NULL), 0);
    assert_true(strlen(some) <= strlen(all));
    for (char *p = strtok_r(some, ",", &save); p; p = strtok_r(NULL, ",", &save))
        assert_non_null(strstr(all, p)); /* none is cut */
    for (char *p = strtok_r(all, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
        char local[64];

        assert_false(addr_is_loopback(p));
        assert_int_not_equal(strncmp(p, "fe80:", 5), 0);
        assert_int_equal(addr_towards(p, local, sizeof(local), NULL), 0);
    }
}

UNIT_TEST(an_interface_by_name_is_taken_as_it_is)
{
    struct err e = ERR_INIT;
    char list[256];

    assert_int_equal(addr_list("lo", list, sizeof(list), &e), 0);
    assert_string_equal(list, "127.0.0.1");
    assert_int_equal(addr_list("none0", list, sizeof(list), &e), -ENODEV);
    assert_non_null(strstr(e.text, "HOROVOD_GLOO_IFACE: no interface \"none0\""));
}

UNIT_MAIN(NULL, NULL)

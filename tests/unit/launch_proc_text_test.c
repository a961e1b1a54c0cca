/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of /proc, as kernels write them, and damaged ones. */
#include "runtime/launch/core/proc_text.h"
#include "tests/unit/unit.h"

static const char stat_text[] =
    "4242 (a) b 7 (x) D 41 4242 41 34816 4242 4194304 935 0 17 0 12 5 0 0 20 0 3 0 "
    "1234567 21000000 2048 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0\n";

UNIT_TEST(stat_is_read_behind_the_name)
{
    struct proc_stat s;

    assert_true(proc_text_stat(stat_text, &s));
    assert_int_equal(s.state, 'D');
    assert_int_equal(s.parent, 41);
    assert_int_equal(s.n_major_faults, 17);
    assert_int_equal(s.cpu_ticks, 17);
    assert_int_equal(s.start_ticks, 1234567);
    assert_false(proc_text_stat("", &s));
    assert_false(proc_text_stat("4242 (a) D 41", &s));
}

UNIT_TEST(lines_of_status_are_found)
{
    static const char text[] = "Name:\tVmSwap: 9\nTracerPid:\t12\nVmSwap:\t  2048 kB\n"
                               "SigBlk:\t0000000000000001\nSigCgt:\t1000000000000002\n";

    assert_int_equal(proc_text_status(text, "VmSwap", 10), 2048);
    assert_int_equal(proc_text_status(text, "TracerPid", 10), 12);
    assert_int_equal(proc_text_status(text, "VmRSS", 10), 0);
    assert_true(proc_text_has_signal(text, "SigCgt", 61));
    assert_true(proc_text_has_signal(text, "SigCgt", 2));
    assert_false(proc_text_has_signal(text, "SigCgt", 1));
    assert_true(proc_text_has_signal(text, "SigBlk", 1));
    assert_false(proc_text_has_signal("", "SigCgt", 61));
}

UNIT_TEST(system_calls_are_read)
{
    static const struct {
        const char *text;
        int64_t syscall;
        uint64_t arg3, sp;
    } rows[] = {
        {"running\n", HANG_RUNNING, 0, 0},
        {"202 0x1 0x80 0x0 0x7f 0x0 0xffffffff 0x7ffc9000 0x7f11\n", 202, 0x7f,
         0x7ffc9000},
        {"-1 0x7ffc9000 0x7f11\n", HANG_NOT_IN_SYSCALL, 0, 0x7ffc9000},
        {"", HANG_UNKNOWN, 0, 0},
        {"202 0x1\n", HANG_UNKNOWN, 0, 0},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hang_thread t;

        memset(&t, 0xff, sizeof(t));
        proc_text_syscall(rows[i].text, &t);
        assert_int_equal(t.syscall, rows[i].syscall);
        assert_int_equal(t.arg[3], rows[i].arg3);
        assert_int_equal(t.sp, rows[i].sp);
    }
}

UNIT_TEST(a_mapping_is_found_by_address)
{
    static const char maps[] =
        "55d0a000-55d0b000 r--p 00000000 fe:01 131 /usr/bin/py\n"
        "55d0b000-55d0f000 r-xp 00001000 fe:01 131     /usr/bin/with space\n"
        "7f000000-7f001000 rw-p 00000000 00:00 0 \n"
        "7f001000-7f002000 r-xp 00000000 00:00 0                  [vdso]\n";
    struct proc_mapping m;

    assert_true(proc_text_mapping(maps, 0x55d0b010, &m));
    assert_string_equal(m.path, "/usr/bin/with space");
    assert_int_equal(m.start, 0x55d0b000);
    assert_int_equal(m.offset, 0x1000);
    assert_true(proc_text_mapping(maps, 0x55d0afff, &m));
    assert_string_equal(m.path, "/usr/bin/py");
    assert_false(proc_text_mapping(maps, 0x7f000010, &m));
    assert_false(proc_text_mapping(maps, 0x7f001010, &m));
    assert_false(proc_text_mapping(maps, 0x10, &m));
    assert_false(proc_text_mapping("", 0x10, &m));
}

UNIT_MAIN(NULL, NULL)

/* SPDX-License-Identifier: Apache-2.0 */
/* verdict.c: the first failure, in every order of arrival; exit codes; the termination
 * message. */
#include "tests/unit/launch_fixture.h"

UNIT_TEST(a_report_of_no_rank_has_nothing_of_an_earlier_one)
{
    static struct report r;

    memset(&r, 'x', sizeof(r));
    report_init(&r, "host-a", 124, 5000);
    assert_int_equal(r.f.rank, -1);
    assert_int_equal(r.blames, -1);
    assert_string_equal(r.f.host, "host-a");
    assert_int_equal(r.f.exit_code, 124);
    assert_int_equal(r.f.signal, 0);
    assert_int_equal(r.f.at_wall_us, 5000);
    assert_string_equal(r.f.why, "");
    assert_int_equal(r.first_rank, 0);
    assert_int_equal(r.n_ranks, 0);
    assert_string_equal(r.tail, "");
}

UNIT_TEST(the_cause_wins_in_every_order_of_arrival)
{
    static const struct {
        int code, sig;
        int32_t blames;
    } cause[] = {{3, 0, -1},       {0, SIGKILL, -1}, {0, SIGSEGV, -1}, {1, 0, -1},
                 {0, SIGABRT, -1}, {0, SIGTERM, -1}, {143, 0, -1}};
    static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t c = 0; c < ARRAY_LEN(cause); c++)
        for (size_t o = 0; o < 6; o++) {
            /* rank 1 is the cause; 0 and 2 name it in their last lines */
            struct report all[3] = {report_of(0, 1, 0, 1, 20),
                                    report_of(1, cause[c].code, cause[c].sig, -1, 10),
                                    report_of(2, 1, 0, 1, 30)};
            CLEANUP(verdict_release) struct launch_verdict v;
            verdict_init(&v);
            for (int i = 0; i < 3; i++)
                assert_int_equal(verdict_add(&v, &all[order[o][i]], (uint64_t)i * MS),
                                 0);
            assert_int_equal(verdict_pick(&v)->f.rank, 1);
        }
}

UNIT_TEST(a_plain_exit_1_gives_way_to_a_signal_only)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report plain = report_of(0, 1, 0, -1, 1),
                  killed = report_of(1, 0, SIGKILL, -1, 2),
                  aborted = report_of(2, 0, SIGABRT, -1, 3),
                  other = report_of(3, 7, 0, -1, 4);
    verdict_init(&v);
    (void)verdict_add(&v, &plain, 0);
    (void)verdict_add(&v, &aborted, 1);
    assert_int_equal(verdict_pick(&v)->f.rank,
                     0); /* both could be consequences: the earlier */
    (void)verdict_add(&v, &killed, 2);
    (void)verdict_add(&v, &other, 3);
    assert_int_equal(verdict_pick(&v)->f.rank, 1);
}

UNIT_TEST(on_one_host_its_clock_decides)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report a = report_of(0, 3, 0, -1, 500), b = report_of(1, 4, 0, -1, 400);
    strcpy(b.f.host, a.f.host);
    verdict_init(&v);
    (void)verdict_add(&v, &a, 0);
    (void)verdict_add(&v, &b, 1);
    assert_int_equal(verdict_pick(&v)->f.rank, 1);
    strcpy(v.v[1].f.host, "elsewhere"); /* clocks of hosts do not compare */
    assert_int_equal(verdict_pick(&v)->f.rank, 0);
}

UNIT_TEST(a_lost_worker_is_what_its_blamed_ranks_mean)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report lost = report_of(-1, 125, 0, -1, 900),
                  early = report_of(0, 1, 0, 5, 1), plain = report_of(1, 2, 0, -1, 2);
    lost.first_rank = 4;
    lost.n_ranks = 4;
    verdict_init(&v);
    (void)verdict_add(&v, &early, 0);
    (void)verdict_add(&v, &plain, 1);
    assert_int_equal(verdict_pick(&v)->f.rank, 1);
    (void)verdict_add(&v, &lost, 2);
    assert_int_equal(verdict_pick(&v)->f.rank, -1);
}

UNIT_TEST(the_decision_waits_for_a_blamed_rank)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report early = report_of(0, 1, 0, 1, 1), cause = report_of(1, 1, 0, -1, 2);
    verdict_init(&v);
    assert_int_equal(verdict_deadline_ns(&v), UINT64_MAX);
    assert_null(verdict_pick(&v));
    (void)verdict_add(&v, &early, 1000 * MS);
    assert_int_equal(verdict_deadline_ns(&v), (1000ull + VERDICT_BLAME_MS) * MS);
    (void)verdict_add(&v, &cause, 1100 * MS);
    assert_int_equal(verdict_deadline_ns(&v), (1000ull + VERDICT_WINDOW_MS) * MS);
}

/* The peers of a stopped process, in the words of the runtime. */
UNIT_TEST(a_rank_that_hangs_is_named_by_those_that_lost_it)
{
    static const char lines[] = "Traceback ...\nHorovodInternalError: rank 1 (host b, "
                                "pid 7) was lost: silent for "
                                "10 s (HVD_PEER_TIMEOUT); see its log\n";
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report a = report_of(0, 1, 0, 1, 10), b = report_of(2, 1, 0, 1, 20);
    struct report own = report_of(1, 0, SIGKILL, -1, 30);
    char sentence[480];

    (void)snprintf(a.tail, sizeof(a.tail), "%s", lines);
    (void)snprintf(b.tail, sizeof(b.tail), "%s", lines);
    verdict_init(&v);
    (void)verdict_add(&v, &a, 1000 * MS);
    (void)verdict_add(&v, &b, 1001 * MS);
    assert_int_equal(verdict_deadline_ns(&v), (1000ull + VERDICT_BLAME_MS) * MS);
    assert_int_equal(verdict_pick(&v)->f.rank, 1);
    assert_string_equal(verdict_pick(&v)->f.host, "b");
    report_sentence(verdict_pick(&v), sentence, sizeof(sentence));
    assert_string_equal(sentence, "rank 1 on b was lost: silent for 10 s "
                                  "(HVD_PEER_TIMEOUT), as rank 0 reported");
    assert_string_equal(verdict_pick(&v)->tail, lines);
    assert_int_equal(failure_exit_code(&verdict_pick(&v)->f), 125);
    (void)verdict_add(&v, &own, 1500 * MS); /* it ends after all: that is the cause */
    assert_int_equal(verdict_pick(&v)->f.signal, SIGKILL);
}

/* It has said goodbye and hangs at its exit. */
UNIT_TEST(a_rank_that_has_failed_is_named_by_those_that_its_goodbye_reached)
{
    static const struct {
        const char *line, *sentence;
        int code;
    } table[] = {
        {"E: rank 1 (host b, pid 7) ended: ValueError: bad batch (train.py:40)\n",
         "rank 1 on b exited with code 1: ValueError: bad batch (train.py:40), as rank "
         "0 "
         "reported",
         1},
        {"E: rank 1 (host b, pid 7) exited with code 7\n",
         "rank 1 on b exited with code 7: as rank 0 reported", 7},
        {"E: rank 1 (host b, pid 7) exited with code 3:\nanother line\n",
         "rank 1 on b exited with code 3: as rank 0 reported", 3},
        {"E: rank 1 (host b, pid 7) exited with code 1: no data\n",
         "rank 1 on b exited with code 1: no data, as rank 0 reported", 1},
        {"cause=\"rank 1 (host b, pid 7) ended by SIGTERM\"\n",
         "rank 1 on b was killed by signal 15 (SIGTERM): as rank 0 reported", 143},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        CLEANUP(verdict_release) struct launch_verdict v;
        struct report r = report_of(0, FAILURE_OTHER_RANK, 0, -1, 10);
        char sentence[480];

        (void)snprintf(r.tail, sizeof(r.tail), "%s", table[i].line);
        report_explain(&r);
        assert_int_equal(r.blames, 1);
        verdict_init(&v);
        (void)verdict_add(&v, &r, 1000 * MS);
        assert_int_equal(verdict_deadline_ns(&v), (1000ull + VERDICT_BLAME_MS) * MS);
        report_sentence(verdict_pick(&v), sentence, sizeof(sentence));
        assert_string_equal(sentence, table[i].sentence);
        assert_int_equal(failure_exit_code(&verdict_pick(&v)->f), table[i].code);
    }
}

/* Also when its output, which names the rank, is in a file of its own. */
UNIT_TEST(the_code_of_a_consequence_is_never_the_first_cause)
{
    static const struct {
        int code, sig;
    } cause[] = {{1, 0}, {2, 0}, {7, 0}, {0, SIGTERM}, {0, SIGSEGV}};

    for (size_t c = 0; c < ARRAY_LEN(cause); c++) {
        CLEANUP(verdict_release) struct launch_verdict v;
        struct report a = report_of(0, FAILURE_OTHER_RANK, 0, -1, 10);
        struct report b = report_of(1, cause[c].code, cause[c].sig, -1, 20);

        verdict_init(&v);
        (void)verdict_add(&v, &a, 1000 * MS);
        assert_int_equal(verdict_deadline_ns(&v), (1000ull + VERDICT_BLAME_MS) * MS);
        (void)verdict_add(&v, &b, 1100 * MS);
        assert_int_equal(verdict_pick(&v)->f.rank, 1);
        assert_int_equal(verdict_deadline_ns(&v), (1000ull + VERDICT_WINDOW_MS) * MS);
    }
}

UNIT_TEST(a_rank_that_others_lost_is_not_named_beside_a_cause)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    struct report a = report_of(0, 1, 0, 1, 10), cause = report_of(2, 3, 0, -1, 20);

    strcpy(a.tail, "rank 1 (host b, pid 7) was lost: connection closed\n");
    verdict_init(&v);
    (void)verdict_add(&v, &a, 0);
    (void)verdict_add(&v, &cause, 1);
    assert_int_equal(verdict_pick(&v)->f.rank, 2);
}

UNIT_TEST(reports_are_bounded)
{
    CLEANUP(verdict_release) struct launch_verdict v;
    verdict_init(&v);
    for (int i = 0; i < VERDICT_MAX_REPORTS + 50; i++) {
        struct report r = report_of(i, 1, 0, -1, 1);
        assert_int_equal(verdict_add(&v, &r, 0), 0);
    }
    assert_int_equal(v.n, VERDICT_MAX_REPORTS);
}

UNIT_TEST(blame_is_read_from_the_last_lines)
{
    static const struct {
        const char *tail;
        int32_t self, blames;
    } table[] = {
        {"", 0, -1},
        {"ValueError: rank 3 is odd\n", 0, -1},
        {"HorovodInternalError: lost rank 3 (host b): connection reset\n", 0, 3},
        {"lost rank 3\n", 3, -1},
        {"rank 2 on host-b was lost: connection closed\n", 0, 2},
        {"rank 7 on a exited with code 3\nrank 1 on a is fine\n", 0, 7},
        {"rank 8 on a was killed by signal 9 (SIGKILL)", 0, 8},
        {"E: rank 1 (host localhost, pid 13372) was lost: connection closed\n", 0, 1},
        {"Horovod has been shut down: rank 1 (host b, pid 7) called shutdown()\n", 0,
         1},
        {"rank 1 (host b, pid 7) ended: ValueError: x (a.py:1)\n", 0, 1},
        {"rank 1 (host b, pid 7) ended by SIGTERM\n", 0, 1},
        {"rank 1 (host b, pid 7) was stopped by its launcher: SIGTERM\n", 0, 1},
        {"rank 1 (host b, pid 7) ended well\n", 0, -1},
        {"rank 1 (host b, pid 7) is late\n", 0, -1},
        {"rank 1 (host b\n) was lost", 0, -1},
        {"rank 8 on\na was lost", 0, -1},
        {"rank 8 ", 0, -1},
        {"rank ", 0, -1},
        {"lost rank -3\nlost rank x\nlost rank \n", 0, -1},
        {"lost rank 99999999999999\n", 0, -1},
        {"lost rank 2\nlater: lost rank 4\n", 0, 4},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        assert_int_equal(blame_scan(table[i].tail, table[i].self), table[i].blames);
}

UNIT_TEST(exit_codes_are_those_of_a_shell)
{
    struct failure f = {.exit_code = 3};
    assert_int_equal(failure_exit_code(&f), 3);
    f = (struct failure){.signal = SIGKILL};
    assert_int_equal(failure_exit_code(&f), 137);
    f = (struct failure){.exit_code = 0};
    assert_int_equal(failure_exit_code(&f), 125);
    f = (struct failure){.exit_code = 256};
    assert_int_equal(failure_exit_code(&f), 125);
}

UNIT_TEST(a_message_fits_and_keeps_the_newest_lines)
{
    CLEANUP(strbuf_release) struct strbuf out;
    struct report r = report_of(1, 3, 0, -1, 77);
    struct failure back;
    struct err err = ERR_INIT;
    memset(r.f.why, 'w', sizeof(r.f.why) - 1);
    size_t n = 0;
    for (int i = 0; n + 100 < sizeof(r.tail); i++)
        n += (size_t)sprintf(r.tail + n, "line %02d %090d\n", i, 0);
    strbuf_init(&out, 2 * MESSAGE_MAX_BYTES);
    report_message(&r, &out);
    assert_true(out.n <= MESSAGE_MAX_BYTES);
    assert_int_equal(failure_parse(strbuf_str(&out), &back, &err), 0);
    assert_int_equal(back.rank, 1);
    assert_int_equal(back.exit_code, 3);
    assert_int_equal(back.at_wall_us, 77);
    const char *last = strrchr(r.tail, 'l');
    assert_string_equal(strbuf_str(&out) + out.n - strlen(last), last);
}

UNIT_MAIN(NULL, NULL)

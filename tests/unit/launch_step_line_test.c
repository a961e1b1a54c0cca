/* SPDX-License-Identifier: Apache-2.0 */
/* core/step_line.c: parts as lines of text. */
#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/launch/core/step_line.h"

/* Takes all lines; the result of the last one. */
static int part_take_all(struct step_part *p, char *lines, struct err *err)
{
    int rc = -1;

    for (char *rest = lines, *line; (line = strsep(&rest, "\n")) && *line;) {
        assert_true(strlen(line) < STEP_LINE_MAX);
        rc = step_part_take(p, line, err);
    }
    return rc;
}

UNIT_TEST(parts_of_all_lengths_come_back)
{
    static const size_t lengths[] = {0, 1, 399, 400, 401, 800, 5000, STEP_PART_MAX};
    struct step_part p = {.is_open = false};
    static uint8_t bytes[STEP_PART_MAX];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        struct err err = ERR_INIT;
        struct strbuf b;

        strbuf_init(&b, 4u * STEP_PART_MAX);
        step_line_put(STEP_FINDING, 7, bytes, lengths[i], &b);
        assert_int_equal(strbuf_status(&b), 0);
        assert_int_equal(part_take_all(&p, b.p, &err), 1);
        assert_int_equal(p.kind, STEP_FINDING);
        assert_int_equal(p.number, 7);
        assert_int_equal(p.data.n, lengths[i]);
        assert_memory_equal(strbuf_str(&p.data), bytes, lengths[i]);
        strbuf_release(&b);
    }
    step_part_release(&p);
}

UNIT_TEST(other_lines_are_refused_and_the_next_part_is_taken)
{
    static const char *const bad[] = {
        "",        "hello world", "X 0 . 00",    "R 0 ! 00",
        "R 0 . 0", "R 0 . zz",    "R -1 x . 00", "slurmstepd: error: gone",
    };
    struct step_part p = {.is_open = false};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = ERR_INIT;

        assert_int_equal(step_part_take(&p, bad[i], &err), -EPROTO);
        assert_non_null(strstr(err.text, "no line of hvd-agent"));
        assert_int_equal(step_part_take(&p, "S 0 . 6162", &err), 1);
        assert_string_equal(strbuf_str(&p.data), "ab");
    }
    step_part_release(&p);
}

UNIT_TEST(a_part_that_another_one_interrupts_is_refused)
{
    struct step_part p = {.is_open = false};
    struct err err = ERR_INIT;

    assert_int_equal(step_part_take(&p, "R 0 + 61", &err), 0);
    assert_int_equal(step_part_take(&p, "S 0 . 62", &err), -EPROTO);
    assert_int_equal(step_part_take(&p, "R 0 + 61", &err), 0);
    for (size_t i = 0; i < STEP_PART_MAX && step_part_take(&p, "R 0 + 61", &err) == 0;
         i++)
        ;
    assert_int_equal(p.is_open, false); /* the bound */
    step_part_release(&p);
}

UNIT_TEST(labels_of_srun)
{
    static const struct {
        const char *line, *rest; /* NULL: there is none */
        uint32_t task;
    } rows[] = {{"0: R 0 . ", "R 0 . ", 0},
                {"  12: x", "x", 12},
                {"007: x", "x", 7},
                {"srun: error: x", NULL, 0},
                {"1:x", NULL, 0},
                {"", NULL, 0},
                {": x", NULL, 0},
                {"99999999999: x", NULL, 0},
                {"999999999999999: x", NULL, 0}};

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *rest = NULL;
        uint32_t task = 0;

        assert_int_equal(step_line_label(rows[i].line, &task, &rest),
                         rows[i].rest != NULL);
        if (rows[i].rest)
            assert_string_equal(rest, rows[i].rest);
        assert_int_equal(task, rows[i].task);
    }
}

UNIT_TEST(hello)
{
    static const char *const bad[] = {"",
                                      "1 0 0 1 5",
                                      "2 0 0 1 5 node1",
                                      "1 3 2 8 5 node1",
                                      "1 0 8 8 5 node1",
                                      "1 0 0 4000000000 5 node1"};
    const struct step_hello h = {2, 4, 7, 8, 1234567890123ull, "node2"};
    struct step_hello got;
    struct err err = ERR_INIT;
    struct strbuf b;

    strbuf_init(&b, 1024);
    step_hello_put(&h, &b);
    assert_int_equal(step_hello_parse(strbuf_str(&b), b.n, &got, &err), 0);
    assert_int_equal(got.n_ranks, 2);
    assert_int_equal(got.first, 4);
    assert_int_equal(got.last, 7);
    assert_int_equal(got.size, 8);
    assert_int_equal(got.run_ms, h.run_ms);
    assert_string_equal(got.host, "node2");
    strbuf_release(&b);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(step_hello_parse(bad[i], strlen(bad[i]), &got, &err), -EPROTO);
}

UNIT_MAIN(NULL, NULL)

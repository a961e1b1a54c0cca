/* SPDX-License-Identifier: Apache-2.0 */
/* The failure line both ways, and lines that are not failure lines. */
#include <limits.h>

#include "tests/unit/unit.h"

#include "runtime/base/mem.h"
#include "runtime/contract/failure.h"
#include "tests/unit/seeded.h"

UNIT_TEST(the_line_is_as_documented)
{
    CLEANUP(strbuf_release) struct strbuf s;
    const struct failure f = {.rank = 1,
                              .host = "demo-worker-1",
                              .exit_code = 3,
                              .at_wall_us = 1790000000123456,
                              .why = "said \"no\" \\ left\n"};

    strbuf_init(&s, 4096);
    failure_render(&f, &s);
    assert_string_equal(
        strbuf_str(&s),
        "ringmaster-failure/1 rank=1 host=demo-worker-1 exit=3 signal=0 "
        "at=1790000000123456 why=\"said \\\"no\\\" \\\\ left \"\n");
}

static void random_failure(struct seeded *r, struct failure *f)
{
    memset(f, 0, sizeof(*f));
    f->rank = (int32_t)seeded_below(r, 1000) - 1;
    if (seeded_below(r, 8))
        (void)snprintf(f->host, sizeof(f->host), "h%u.x-y_z", seeded_below(r, 1000));
    f->exit_code = (int)seeded_below(r, 256);
    f->signal = (int)seeded_below(r, 65);
    f->at_wall_us = seeded_next(r);
    uint32_t n = seeded_below(r, sizeof(f->why));
    for (uint32_t i = 0; i < n; i++) {
        char c = (char)(1 + seeded_below(r, 255));

        f->why[i] = (unsigned char)c < 0x20 || c == 0x7f ? '"' : c;
    }
}

UNIT_TEST(rendered_line_is_parsed_back)
{
    struct seeded r = {.state = 99};

    for (int i = 0; i < 3000; i++) {
        CLEANUP(strbuf_release) struct strbuf s;
        struct failure f, g;
        struct err e = ERR_INIT;

        random_failure(&r, &f);
        memset(&g, 0, sizeof(g));
        strbuf_init(&s, 4096);
        failure_render(&f, &s);
        strbuf_puts(&s, "last line of output\n\"and more");
        int rc = failure_parse(strbuf_str(&s), &g, &e);
        if (rc)
            fail_msg("%s: %s", strbuf_str(&s), e.text);
        assert_int_equal(g.rank, f.rank);
        assert_string_equal(g.host, f.host);
        assert_int_equal(g.exit_code, f.exit_code);
        assert_int_equal(g.signal, f.signal);
        assert_int_equal(g.at_wall_us, f.at_wall_us);
        assert_string_equal(g.why, f.why);
    }
}

UNIT_TEST(every_truncation_is_refused)
{
    static const char line[] =
        "ringmaster-failure/1 rank=1 host=a exit=3 signal=0 at=5 why=\"x \\\" y\"";
    struct failure f;
    char cut[sizeof(line)];

    for (size_t n = 0; n < sizeof(line) - 1; n++) {
        memcpy(cut, line, n);
        cut[n] = '\0';
        assert_int_equal(failure_parse(cut, &f, NULL),
                         n < strlen("ringmaster-failure/1") ? -ENOENT : -EINVAL);
    }
    assert_int_equal(failure_parse(line, &f, NULL), 0);
}

UNIT_TEST(foreign_and_bad_lines)
{
    static const struct {
        const char *line;
        int rc;
    } t[] = {
        {"", -ENOENT},
        {"Traceback (most recent call last):\nringmaster-failure/1 rank=1", -ENOENT},
        {"ringmaster-failure/10 rank=1", -ENOENT},
        {"ringmaster-failure/1 rank=-2 host=a exit=0 signal=0 at=1 why=\"\"", -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a exit=256 signal=0 at=1 why=\"\"", -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a exit=0 signal=128 at=1 why=\"\"", -EINVAL},
        {"ringmaster-failure/1 rank=1 host= exit=0 signal=0 at=1 why=\"\"", -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a exit=0 signal=0 at=-1 why=\"\"", -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a exit=0 signal=0 at=1 why=\"\" x", -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a exit=0 signal=0 at=1 why=\"\\n\"",
         -EINVAL},
        {"ringmaster-failure/1 rank=1 exit=0 host=a signal=0 at=1 why=\"\"", -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a\x01 exit=0 signal=0 at=1 why=\"\"",
         -EINVAL},
        {"ringmaster-failure/1 rank=1 host=a exit=0 signal=0 at=1 why=\"\"", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        struct failure f;

        assert_int_equal(failure_parse(t[i].line, &f, NULL), t[i].rc);
    }
}

UNIT_TEST(causes_are_described)
{
    static const struct {
        struct failure f;
        const char *want;
    } t[] = {
        {{.rank = 1, .host = "demo-worker-1", .exit_code = 3},
         "rank 1 on demo-worker-1 exited with code 3"},
        {{.rank = 0, .host = "a", .signal = 9},
         "rank 0 on a was killed by signal 9 (SIGKILL)"},
        {{.rank = 0, .host = "a", .signal = 40},
         "rank 0 on a was killed by signal 40 (real-time signal)"},
        {{.rank = -1, .host = "b", .exit_code = 127},
         "the agent on b exited with code 127"},
        {{.rank = 2}, "rank 2 on an unknown host was lost"},
    };
    char buf[400];

    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        failure_sentence(&t[i].f, buf, sizeof(buf));
        assert_string_equal(buf, t[i].want);
    }
    for (int sig = 1; sig < 32; sig++)
        assert_memory_equal(signal_name(sig), "SIG", 3);
    assert_string_equal(signal_name(0), "unknown signal");
}

UNIT_MAIN(NULL, NULL)

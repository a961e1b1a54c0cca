/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of ranks: what faulthandler and libhvd write, where a thread is, and equal
 * stacks as one text. */
#include "runtime/launch/core/stacks.h"
#include "runtime/base/mem.h"
#include "tests/unit/unit.h"

static const char sample[] =
    "Thread 0x00007f2100000640 (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n"
    "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n"
    "  File \"/srv/a\", line 7 in b.py\", line 9 in read\n"
    "\n"
    "Current thread 0x00007f2200000740 [MainThread] (most recent call first):\n"
    "  File \"/usr/lib/python3.11/threading.py\", line 1133 in acquire\n"
    "  File \"/srv/train.py\", line 42 in step\n"
    "  File \"/srv/train.py\", line 60 in <module>\n"
    "  ...\n"
    "noise of the program\n"
    "native\n"
    "    futex_wait (libc.so.6)\n"
    "    (python3.11)\n"
    "    std::f(int) (libx.so)\n"
    "end\n"
    "  File \"/srv/late.py\", line 1 in late\n";

UNIT_TEST(a_dump_is_read)
{
    CLEANUP(arena_release) struct arena a;
    struct stack_dump d;

    arena_init(&a, 1u << 20);
    assert_int_equal(stacks_parse(sample, &a, &d), 0);
    assert_true(d.is_whole);
    assert_int_equal(d.n_threads, 2);
    assert_int_equal(d.threads[0].ident, 0x7f2100000640);
    assert_int_equal(d.threads[0].n, 3);
    assert_string_equal(d.threads[0].frames[2].file, "/srv/a\", line 7 in b.py");
    assert_int_equal(d.threads[0].frames[2].line, 9);
    assert_ptr_equal(stacks_main(&d), &d.threads[1]);
    assert_int_equal(d.threads[1].n, 3);
    assert_string_equal(d.threads[1].frames[1].function, "step");
    assert_int_equal(d.native.n, 3);
    assert_string_equal(d.native.frames[0].function, "futex_wait");
    assert_string_equal(d.native.frames[1].function, "");
    assert_string_equal(d.native.frames[1].file, "python3.11");
    assert_string_equal(d.native.frames[2].function, "std::f(int)");
}

UNIT_TEST(a_dump_that_is_cut_off_or_damaged_is_read_as_far_as_it_goes)
{
    for (size_t n = 0; n < sizeof(sample); n++) {
        CLEANUP(arena_release) struct arena a;
        char cut[sizeof(sample)] = "";
        struct stack_dump d;

        memcpy(cut, sample, n);
        arena_init(&a, 1u << 20);
        assert_int_equal(stacks_parse(cut, &a, &d), 0);
        assert_int_equal(d.is_whole, strstr(cut, "\nend") != NULL);
    }
}

UNIT_TEST(the_main_thread_is_the_oldest_where_another_thread_has_answered)
{
    CLEANUP(arena_release) struct arena a;
    struct stack_dump d;

    arena_init(&a, 1u << 20);
    assert_int_equal(stacks_parse("Current thread 0x1 (most recent call first):\n"
                                  "Thread 0x2 (most recent call first):\n"
                                  "other\nend\n",
                                  &a, &d),
                     0);
    assert_true(d.is_by_other);
    assert_ptr_equal(stacks_main(&d), &d.threads[1]);
}

static void assert_place(const char *text, const char *want)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stack_dump d;

    arena_init(&a, 1u << 20);
    strbuf_init(&out, 4096);
    assert_int_equal(stacks_parse(text, &a, &d), 0);
    stack_thread_put_place(d.n_threads ? stacks_main(&d) : &d.native, &out);
    assert_string_equal(strbuf_str(&out), want);
}

UNIT_TEST(a_place_names_the_line_of_the_users_program)
{
    assert_place(sample, "in acquire (threading.py:1133) called by step (train.py:42)");
    assert_place("Thread 0x1 (most recent call first):\n"
                 "  File \"/srv/train.py\", line 42 in step\n",
                 "in step (train.py:42)");
    assert_place("Thread 0x1 (most recent call first):\n"
                 "  File \"/x/site-packages/horovod/a.py\", line 4 in wait\n"
                 "  File \"/x/dist-packages/torch/b.py\", line 5 in backward\n"
                 "  File \"<frozen runpy>\", line 6 in run\n",
                 "in wait (a.py:4)");
    assert_place("Thread 0x1 (most recent call first):\n  <no Python frame>\n", "");
    assert_place("native\n    spin (prog)\n    main (prog)\n", "in spin (prog)");
    assert_place("native\n    (prog)\n", "in a function (prog)");
    assert_place("native\n  )\n    prog)\n(\n\n", "");
}

UNIT_TEST(equal_stacks_are_one_text)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stack_text v[] = {{7, "b\n"}, {3, "a\n"}, {0, "b\n"}, {2, "b\n"},
                             {1, "a\n"}, {4, "a\n"}, {5, "a\n"}, {9, "c\n"}};

    strbuf_init(&out, 4096);
    stacks_group(v, ARRAY_LEN(v), &out);
    assert_string_equal(strbuf_str(&out), "ranks 0, 2, 7:\nb\n"
                                          "ranks 1, 3-5:\na\n"
                                          "rank 9:\nc\n");
}

UNIT_TEST(the_text_has_no_addresses_and_the_main_thread_first)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct stack_dump d;

    arena_init(&a, 1u << 20);
    strbuf_init(&out, 4096);
    assert_int_equal(stacks_parse(sample, &a, &d), 0);
    stacks_put(&d, &out);
    assert_string_equal(strbuf_str(&out), "  main thread\n"
                                          "    acquire (threading.py:1133)\n"
                                          "    step (train.py:42)\n"
                                          "    <module> (train.py:60)\n"
                                          "  another thread\n"
                                          "    wait (threading.py:324)\n"
                                          "    get (queue.py:171)\n"
                                          "    read (a\", line 7 in b.py:9)\n"
                                          "  main thread, native code\n"
                                          "    futex_wait (libc.so.6)\n"
                                          "    a function (python3.11)\n");
}

UNIT_TEST(a_dump_controls_no_terminal)
{
    CLEANUP(arena_release) struct arena a;
    struct stack_dump d;

    arena_init(&a, 1u << 20);
    assert_int_equal(stacks_parse("Thread 0x1 (most recent call first):\n"
                                  "  File \"a\033[2J\", line 1 in f\r\n"
                                  "native\n    g\177 (h\a)\n",
                                  &a, &d),
                     0);
    assert_string_equal(d.threads[0].frames[0].file, "a?[2J");
    assert_string_equal(d.threads[0].frames[0].function, "f?");
    assert_string_equal(d.native.frames[0].function, "g?");
    assert_string_equal(d.native.frames[0].file, "h?");
}

UNIT_TEST(too_many_threads_and_frames_are_left_out)
{
    CLEANUP(arena_release) struct arena a;
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct stack_dump d;

    arena_init(&a, 4u << 20);
    strbuf_init(&text, 4u << 20);
    for (int i = 0; i < STACK_THREADS_MAX + 5; i++)
        strbuf_puts(&text, "Thread 0x1 (most recent call first):\n");
    for (int i = 0; i < STACK_FRAMES_MAX + 5; i++)
        strbuf_puts(&text, "  File \"a\", line 1 in f\n");
    strbuf_puts(&text,
                "Current thread 0x1 (most recent call first):\n  File \"a\", line "
                "1 in f\n");
    assert_int_equal(stacks_parse(strbuf_str(&text), &a, &d), 0);
    assert_int_equal(d.n_threads, STACK_THREADS_MAX);
}

UNIT_MAIN(NULL, NULL)

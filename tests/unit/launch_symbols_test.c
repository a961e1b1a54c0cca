/* SPDX-License-Identifier: Apache-2.0 */
/* Names of addresses, of this process. */
#include "runtime/launch/symbols.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/strbuf.h"
#include "runtime/launch/elf_names.h"
#include "tests/unit/unit.h"

/* Only their addresses are used: a call may be followed by the next function. */
__attribute__((noinline, used)) static int first_function(int x)
{
    return x + 1;
}

__attribute__((noinline, used)) static int second_function(int x)
{
    return x * 3;
}

/* b: NULL: one address. */
static char *dump_new(void *a, void *b)
{
    char text[256], second[32] = "";

    if (b)
        snprintf(second, sizeof(second), "%p\n", b);
    snprintf(text, sizeof(text), "File \"a.py\"\nnative\n%p\n%send\n", a, second);
    return mem_strdup(text);
}

static void the_same_address_is_named_in_each_dump(void **state)
{
    char *a = (char *)(uintptr_t)first_function,
         *b = (char *)(uintptr_t)second_function;
    char *dumps[] = {dump_new(a, b + 1), NULL, dump_new(b, a + 1)};

    (void)state;
    symbols_name_dumps((uint32_t)getpid(), dumps, ARRAY_LEN(dumps));
    assert_string_equal(
        dumps[0], "File \"a.py\"\nnative\n    first_function (launch_symbols_test)\n"
                  "    second_function (launch_symbols_test)\nend\n");
    assert_string_equal(
        dumps[2], "File \"a.py\"\nnative\n    second_function (launch_symbols_test)\n"
                  "    first_function (launch_symbols_test)\nend\n");
    assert_null(dumps[1]);
    mem_free(dumps[0]);
    mem_free(dumps[2]);
}

/* The first one is where the thread is, the next ones are where it returns to. */
static void a_return_address_is_of_the_function_before_it(void **state)
{
    char *a = (char *)(uintptr_t)first_function;
    char *dump = dump_new(a, a);

    (void)state;
    symbols_name_dumps((uint32_t)getpid(), &dump, 1);
    assert_non_null(strstr(dump, "native\n    first_function ("));
    assert_null(strstr(strchr(dump, ')'), "first_function"));
    mem_free(dump);
}

static void an_address_of_a_library_names_the_library(void **state)
{
    char *dump = dump_new((void *)(uintptr_t)getpid, NULL);

    (void)state;
    symbols_name_dumps((uint32_t)getpid(), &dump, 1);
    assert_non_null(strstr(dump, "getpid (libc.so.6)\n"));
    mem_free(dump);
}

static void an_address_without_a_file_has_no_name(void **state)
{
    char *heap = mem_alloc(1), *dump = dump_new(heap, NULL);

    (void)state;
    symbols_name_dumps((uint32_t)getpid(), &dump, 1);
    assert_string_equal(dump, "File \"a.py\"\nnative\n    (generated code)\nend\n");
    mem_free(heap);
    mem_free(dump);
}

static void a_process_that_has_ended_has_no_names(void **state)
{
    char *dump = dump_new((void *)(uintptr_t)getpid, NULL);

    (void)state;
    symbols_name_dumps(UINT32_MAX, &dump, 1);
    assert_string_equal(dump, "File \"a.py\"\nnative\n    (unknown)\nend\n");
    mem_free(dump);
}

static void addresses_beyond_the_limit_are_not_named(void **state)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};
    char *dump;

    (void)state;
    strbuf_init(&out, 1u << 20);
    for (int i = 1; i <= SYMBOLS_MAX_ADDRESSES + 2; i++)
        strbuf_printf(&out, "0x%x\n", 2 * i);
    dump = strbuf_take(&out);
    symbols_name_dumps((uint32_t)getpid(), &dump, 1);
    assert_string_equal(dump + strlen(dump) - 53,
                        "    (generated code)\n    (not named)\n    (not named)\n");
    mem_free(dump);
}

/* The headers of this program, with one number of them changed. */
static int damaged_open(size_t at, uint64_t value)
{
    char path[] = "/tmp/hvd-elf-XXXXXX", buf[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), fd = mkstemp(path);
    ssize_t n;

    assert_true(from >= 0 && fd >= 0);
    unlink(path);
    while ((n = read(from, buf, sizeof(buf))) > 0)
        assert_int_equal(write(fd, buf, (size_t)n), n);
    close(from);
    assert_int_equal(pwrite(fd, &value, sizeof(value), (off_t)at), sizeof(value));
    return fd;
}

static void a_damaged_file_gives_no_names(void **state)
{
    static const struct {
        size_t at;
        uint64_t value;
    } rows[] = {{0, 0},
                {EI_CLASS, ELFCLASS32},
                {offsetof(Elf64_Ehdr, e_shoff), 0},
                {offsetof(Elf64_Ehdr, e_shoff), UINT64_MAX - 63},
                {offsetof(Elf64_Ehdr, e_shoff), 1},
                {offsetof(Elf64_Ehdr, e_phoff), UINT64_MAX},
                {offsetof(Elf64_Ehdr, e_phoff), 1u << 30}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct elf_place place = {.offset = 0x1000, .name = "before"};
        int fd = damaged_open(rows[i].at, rows[i].value);

        elf_name_places(fd, &place, 1);
        assert_string_equal(place.name, "");
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_address_is_named_in_each_dump),
        cmocka_unit_test(a_return_address_is_of_the_function_before_it),
        cmocka_unit_test(an_address_of_a_library_names_the_library),
        cmocka_unit_test(an_address_without_a_file_has_no_name),
        cmocka_unit_test(a_process_that_has_ended_has_no_names),
        cmocka_unit_test(addresses_beyond_the_limit_are_not_named),
        cmocka_unit_test(a_damaged_file_gives_no_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

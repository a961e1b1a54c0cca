/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <sys/stat.h>

#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/contract/token.h"
#include "tests/unit/torture.h"

static char dir[] = "/tmp/contract_token_test.XXXXXX";
static char path[64];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/token", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

/* Reads a file with that content and mode. */
static int
read_text(const char *text, size_t n, mode_t mode, struct token *ret, struct err *err)
{
    assert_int_equal(fd_write_file(path, text, n, mode, NULL), 0);
    return token_read_file(path, ret, err);
}

UNIT_TEST(written_and_read_back_with_mode_0600)
{
    struct token a, b;
    struct stat st;
    struct err e = ERR_INIT;

    assert_int_equal(token_random(&a, &e), 0);
    assert_int_equal(token_write_file(path, &a, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 65);
    assert_int_equal(token_read_file(path, &b, &e), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    struct token c;
    assert_int_equal(token_random(&c, &e), 0);
    assert_memory_not_equal(&a, &c, sizeof(a));
    token_wipe(&a);
    assert_memory_equal(&a, &(struct token){{0}}, sizeof(a));
}

UNIT_TEST(a_secret_of_any_bytes)
{
    char big[5000];
    struct token a, b;
    struct err e = ERR_INIT;

    assert_int_equal(read_text("correct horse battery\n", 22, 0600, &a, &e), 0);
    assert_int_equal(read_text("correct horse battery", 21, 0640, &b, &e), 0);
    assert_memory_equal(&a, &b, sizeof(a)); /* the newline does not count */
    assert_int_equal(read_text("correct horse batterz", 21, 0600, &b, &e), 0);
    assert_memory_not_equal(&a, &b, sizeof(a));
    /* a NUL counts as any byte */
    assert_int_equal(read_text("0123456789abcdef\0more", 21, 0600, &a, &e), 0);
    assert_int_equal(read_text("0123456789abcdef\0mord", 21, 0600, &b, &e), 0);
    assert_memory_not_equal(&a, &b, sizeof(a));
    assert_int_equal(read_text("fifteen bytes..\n", 16, 0600, &b, &e), -EINVAL);
    assert_non_null(strstr(e.text, "has 15 bytes, allowed are 16 to 4096"));
    memset(big, 'x', sizeof(big));
    assert_int_equal(read_text(big, 4096, 0600, &b, &e), 0);
    assert_int_equal(read_text(big, 4097, 0600, &b, &e), -EINVAL);
    assert_int_equal(read_text(big, 5000, 0600, &b, &e), -EFBIG);
}

UNIT_TEST(a_file_readable_by_others_is_refused)
{
    struct token t;
    struct err e = ERR_INIT;

    assert_int_equal(read_text("0123456789abcdef", 16, 0644, &t, &e), -EACCES);
    assert_non_null(strstr(e.text, "mode 0644, which lets every user read it"));
    assert_int_equal(read_text("0123456789abcdef", 16, 0602, &t, &e), -EACCES);
    assert_non_null(strstr(e.text, "lets every user change it"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(token_read_file(path, &t, &e), -ENOENT);
    assert_non_null(strstr(e.text, path));
}

UNIT_TEST(a_descriptor_is_read_once_and_closed)
{
    struct contract c;
    struct token a, b;
    struct err e = ERR_INIT;
    char hex[65];
    int p[2];

    contract_init(&c);
    assert_int_equal(token_random(&a, &e), 0);
    for (int i = 0; i < 32; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", a.key[i]);
    assert_int_equal(pipe(p), 0);
    assert_int_equal(write(p[1], hex, 64), 64);
    fd_close(&p[1]);
    c.token_source = TOKEN_FD;
    c.token_fd = p[0];
    assert_int_equal(token_from_contract(&c, &b, &e), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(fcntl(p[0], F_GETFD), -1);
    assert_int_equal(token_from_contract(&c, &b, &e), -EBADF);
}

UNIT_TEST(no_token_is_enough_for_one_rank_only)
{
    struct contract c;
    struct token t;
    struct err e = ERR_INIT;

    contract_init(&c);
    assert_int_equal(token_from_contract(&c, &t, &e), 0);
    c.place.size = 2;
    assert_int_equal(token_from_contract(&c, &t, &e), -EINVAL);
    assert_non_null(strstr(e.text, "HVD_TOKEN_FILE"));
}

static int read_it(void *arg)
{
    struct token t;

    (void)arg;
    return token_read_file(path, &t, NULL);
}

UNIT_TEST(lack_of_memory_is_an_error)
{
    assert_int_equal(fd_write_file(path, "0123456789abcdef", 16, 0600, NULL), 0);
    torture(read_it, NULL);
}

UNIT_MAIN(set_up, tear_down)

/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/contract/token.h"

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

#define TEXT "00112233445566778899aabbccddeeff0123456789ABCDEF0123456789abcdef"

/* Reads a file with that content and mode. */
static int
read_text(const char *text, size_t n, mode_t mode, struct token *ret, struct err *err)
{
    assert_int_equal(fd_write_file(path, text, n, mode, NULL), 0);
    return token_read_file(path, ret, err);
}

static void
assert_names_file(const struct err *e, const char *before, const char *after)
{
    char want[480];

    (void)snprintf(want, sizeof(want), "job token: %s%s%s", before, path, after);
    assert_string_equal(e->text, want);
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

UNIT_TEST(a_new_file_never_replaces_another)
{
    struct token a, b;
    struct stat st;
    struct err e = ERR_INIT;

    (void)unlink(path);
    assert_int_equal(token_create_file(path, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(token_read_file(path, &a, &e), 0);
    assert_int_equal(token_create_file(path, &e), -EEXIST);
    assert_names_file(&e, "cannot create ", ": File exists");
    assert_int_equal(token_read_file(path, &b, &e), 0);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(token_create_file(path, &e), 0);
    assert_int_equal(token_read_file(path, &b, &e), 0);
    assert_memory_not_equal(&a, &b, sizeof(a));
    assert_int_equal(token_create_file("/no/such", &e), -ENOENT);
}

UNIT_TEST(blanks_at_the_end_do_not_count)
{
    static const char *const texts[] = {TEXT, TEXT "\n", TEXT " \t\r\n\n"};
    struct token a, b;
    struct err e = ERR_INIT;

    assert_int_equal(hex_decode(TEXT, a.key, sizeof(a.key)), 0);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(read_text(texts[i], strlen(texts[i]), 0600, &b, &e), 0);
        assert_memory_equal(&a, &b, sizeof(a));
    }
}

/* They could be guessed from what a stranger is sent. */
UNIT_TEST(other_than_64_hex_digits_is_refused)
{
    static const char *const texts[] = {
        "",       "\n",           "correct horse battery staple", TEXT "0", TEXT TEXT,
        " " TEXT, TEXT "\n" TEXT, TEXT "                \n",      "x" TEXT};
    char bytes[] = TEXT;
    struct token before = {{7}}, t = before;
    struct err e = ERR_INIT;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        assert_int_equal(read_text(texts[i], strlen(texts[i]), 0600, &t, &e), -EINVAL);
        assert_names_file(&e, "",
                          " does not contain 64 hex digits; create a token with: "
                          "hvd-agent token FILE");
    }
    assert_int_equal(read_text(bytes, 63, 0600, &t, &e), -EINVAL);
    for (size_t i = 0; i < 64; i++) {
        char was = bytes[i];

        bytes[i] = i % 2 ? 'g' : '\0';
        assert_int_equal(read_text(bytes, 64, 0600, &t, &e), -EINVAL);
        bytes[i] = was;
    }
    assert_memory_equal(&t, &before, sizeof(t));
}

UNIT_TEST(a_file_that_others_can_use_is_refused)
{
    static const mode_t good[] = {0600, 0400, 0700};
    struct token t;
    struct err e = ERR_INIT;

    for (mode_t bad = 01; bad <= 040; bad <<= 1) {
        char before[120];

        assert_int_equal(read_text(TEXT, 64, 0600 | bad, &t, &e), -EACCES);
        (void)snprintf(
            before, sizeof(before),
            "mode %04o gives access to others than the file's owner; run: chmod 600 ",
            0600 | (unsigned)bad);
        assert_names_file(&e, before, "");
    }
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(read_text(TEXT, 64, good[i], &t, &e), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(token_read_file(path, &t, &e), -ENOENT);
    assert_names_file(&e, "cannot open ", ": No such file or directory");
}

UNIT_TEST(what_is_no_regular_file_is_refused)
{
    static const char want[] =
        " is not a regular file; create a token with: hvd-agent token FILE";
    char other[80];
    struct token t;
    struct err e = ERR_INIT;

    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(token_read_file(path, &t, &e), -EINVAL); /* and does not wait */
    assert_names_file(&e, "", want);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(token_read_file(path, &t, &e), -EINVAL);
    assert_names_file(&e, "", want);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(dir, path), 0);
    assert_int_equal(token_read_file(path, &t, &e), -EINVAL);
    assert_int_equal(unlink(path), 0);
    /* a Secret's file is a link to a regular file */
    (void)snprintf(other, sizeof(other), "%s.data", path);
    assert_int_equal(fd_write_file(other, TEXT, 64, 0600, NULL), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_int_equal(token_read_file(path, &t, &e), 0);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(unlink(path), 0);
}

/* The exit code of a child that is another user: 0 if the token was read, else errno. */
static int read_as(uid_t uid)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct token t;
        int rc = seteuid(uid) < 0 ? -errno : token_read_file(path, &t, NULL);

        _exit(-rc);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

UNIT_TEST(a_file_of_another_user_is_refused)
{
    struct token t;
    struct err e = ERR_INIT;

    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(read_text(TEXT, 64, 0600, &t, &e), 0);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(token_read_file(path, &t, &e), -EACCES);
    assert_names_file(
        &e,
        "the file belongs to user 12345, not to user 0, who runs this; run: chown 0 ",
        "");
    assert_int_equal(read_as(12345), 0);
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(chmod(path, 0644), 0); /* of root, but all can read it */
    assert_int_equal(read_as(12345), EACCES);
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

enum { NO_NAMESPACE = 99 };

/* As another user, in a user namespace of its own or not: 0, or -errno. */
static int read_as_user(bool has_namespace)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct token t;
        int fd, rc = setgroups(0, NULL) < 0 || setuid(65533) < 0;

        if (rc == 0 && has_namespace) {
            (void)prctl(PR_SET_DUMPABLE, 1); /* else /proc/self is root's */
            rc = unshare(CLONE_NEWUSER);
            fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
            rc = rc < 0 || write(fd, "65533 65533 1\n", 14) != 14;
        }
        _exit(rc ? NO_NAMESPACE : -token_read_file(path, &t, NULL));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

/* The Slurm plugin's file, in a rootless container: root's UID has no name there. */
UNIT_TEST(a_file_of_root_is_read_by_a_user_that_root_lets)
{
    struct token t = {{7}};

    if (geteuid() != 0)
        skip();
    assert_int_equal(token_write_file(path, &t, NULL), 0);
    assert_int_equal(chmod(dir, 0710), 0);
    for (int has_namespace = 0; has_namespace < 2; has_namespace++) {
        if (read_as_user(has_namespace) == -NO_NAMESPACE)
            continue;                           /* not allowed here */
        assert_int_equal(chmod(path, 0640), 0); /* the group is root's, and ours */
        assert_int_equal(read_as_user(has_namespace), 0);
        assert_int_equal(chmod(path, 0644), 0);
        assert_int_equal(read_as_user(has_namespace), -EACCES);
        assert_int_equal(chmod(path, 0660), 0);
        assert_int_equal(read_as_user(has_namespace), -EACCES);
    }
}

UNIT_MAIN(set_up, tear_down)

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the job token comes from. The only file of contract/ that reads files and
 * descriptors.
 *
 * A token is 256 random bits and nothing else: a client that has proved nothing gets an
 * HMAC with the token as key, by which a token that a person made up can be guessed
 * offline. A file is opened first and then checked through the descriptor, so that what
 * is checked is what is read. The weak token (foreign launchers) is a hash of what the
 * launcher passes to every rank: it separates jobs, but does not stop attackers. */
#include "runtime/contract/token.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define TOKEN_DIGITS (2 * SHA256_BYTES)
#define TEXT_BYTES   (TOKEN_DIGITS + 16) /* with blanks at the end */
#define OVERFLOW_UID 65534               /* Linux: DEFAULT_OVERFLOWUID */

void token_wipe(struct token *t)
{
    if (t)
        mem_wipe(t, sizeof(*t));
}

int token_random(struct token *ret, struct err *err)
{
    struct token t = {0};
    int rc = random_bytes(t.key, sizeof(t.key));

    if (rc)
        return err_errno(err, -rc, "job token: no random bytes from the system");
    *ret = t;
    token_wipe(&t);
    return 0;
}

static void labelled_hash(const char *label, const void *p, size_t n, struct token *ret)
{
    struct hmac m;

    hmac_init(&m, label, strlen(label));
    hmac_add(&m, p, n);
    hmac_end(&m, ret->key);
}

static bool is_blank(char c)
{
    return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

/* Removes blanks at the end of text. what: name of the source in error messages. */
static int token_from_text(
    const char *what, char *text, size_t n, struct token *ret, struct err *err)
{
    while (n && is_blank(text[n - 1]))
        text[--n] = '\0';
    if (strlen(text) != n || hex_decode(text, ret->key, sizeof(ret->key)) < 0)
        return err_set(err, -EINVAL,
                       "job token: %s does not contain %d hex digits; create a token "
                       "with: hvd-agent token FILE",
                       what, TOKEN_DIGITS);
    return 0;
}

static int token_read_text(const char *what, int fd, struct token *ret, struct err *err)
{
    char text[TEXT_BYTES + 1];
    size_t n = 0;
    int rc = 0;

    while (n < sizeof(text) - 1) {
        ssize_t k = read(fd, text + n, sizeof(text) - 1 - n);

        if (k == 0)
            break;
        if (k > 0) {
            n += (size_t)k;
        } else if (errno != EINTR) {
            rc = err_errno(err, errno, "job token: cannot read %s", what);
            break;
        }
    }
    text[n < sizeof(text) - 1 ? n : 0] = '\0'; /* more bytes may follow */
    if (rc == 0)
        rc = token_from_text(what, text, n, ret, err);
    mem_wipe(text, sizeof(text));
    return rc;
}

/* In a user namespace that does not map root, root's files show as the overflow UID
 * (rootless containers). */
static bool user_is_root(uid_t uid)
{
    AUTOFREE char *map = NULL;
    size_t n;
    unsigned inside, outside, count;

    if (uid == 0)
        return true;
    if (uid != OVERFLOW_UID
        || fd_read_file("/proc/self/uid_map", 4096, &map, &n, NULL) < 0)
        return false;
    return sscanf(map, "%u %u %u", &inside, &outside, &count) == 3
           && !(inside == 0 && outside == 0 && count == UINT32_MAX);
}

/* On a read-only mount others may read: a Secret volume belongs to root, and suits
 * every UID of its pod, which is the boundary. Root may let another user read its file:
 * the Slurm plugin's has an ACL entry for the user, which shows as a bit of the group. */
static int token_check_file(const char *path, int fd, struct err *err)
{
    struct stat st;
    struct statvfs fs;

    if (fstat(fd, &st) < 0 || fstatvfs(fd, &fs) < 0)
        return err_errno(err, errno, "job token: cannot open %s", path);
    mode_t bad = S_IRWXG | S_IRWXO;
    if (fs.f_flag & ST_RDONLY)
        bad = S_IWGRP | S_IWOTH;
    bool is_roots = st.st_uid != geteuid() && user_is_root(st.st_uid);
    if (is_roots)
        bad &= ~(mode_t)S_IRGRP;
    bad &= st.st_mode;
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL,
                       "job token: %s is not a regular file; create a token with: "
                       "hvd-agent token FILE",
                       path);
    if (st.st_uid != geteuid() && (!is_roots || bad))
        return err_set(err, -EACCES,
                       "job token: the file belongs to user %u, not to user %u, who "
                       "runs this; run: chown %u %s",
                       (unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid(),
                       path);
    if (bad)
        return err_set(err, -EACCES,
                       "job token: mode %04o gives access to others than the file's "
                       "owner; run: chmod 600 %s",
                       (unsigned)(st.st_mode & 07777), path);
    return 0;
}

int token_read_file(const char *path, struct token *ret, struct err *err)
{
    /* a FIFO or terminal must not delay or control this process */
    CLEANUP(fd_close)
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0)
        return err_errno(err, errno, "job token: cannot open %s", path);
    int rc = token_check_file(path, fd, err);
    return rc < 0 ? rc : token_read_text(path, fd, ret, err);
}

static void token_format(const struct token *t, char ret[TOKEN_DIGITS + 2])
{
    hex_encode(t->key, sizeof(t->key), ret);
    ret[TOKEN_DIGITS] = '\n';
}

int token_write_file(const char *path, const struct token *t, struct err *err)
{
    char text[TOKEN_DIGITS + 2];

    token_format(t, text);
    int rc = fd_write_file(path, text, TOKEN_DIGITS + 1, 0600, err);
    mem_wipe(text, sizeof(text));
    if (rc)
        (void)err_prefix(err, "job token"); /* rc is returned */
    return rc;
}

int token_create_file(const char *path, struct err *err)
{
    char text[TOKEN_DIGITS + 2];
    struct token t;
    int rc = token_random(&t, err);

    if (rc < 0)
        return rc;
    CLEANUP(fd_close)
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        rc = err_errno(err, errno, "job token: cannot create %s", path);
    token_format(&t, text);
    token_wipe(&t);
    if (rc == 0 && (rc = fd_write_full(fd, text, TOKEN_DIGITS + 1, UINT64_MAX)) < 0) {
        (void)unlink(path); /* the failure is already reported */
        rc = err_errno(err, -rc, "job token: cannot write %s", path);
    }
    mem_wipe(text, sizeof(text));
    return rc;
}

static int token_read_fd(int fd, struct token *ret, struct err *err)
{
    int rc = token_read_text("HVD_TOKEN_FD", fd, ret, err);

    (void)close(fd); /* read once: a child process must not inherit it */
    return rc;
}

int token_from_contract(const struct contract *c, struct token *ret, struct err *err)
{
    switch (c->token_source) {
    case TOKEN_NONE:
        if (c->place.size > 1)
            return err_set(err, -EINVAL,
                           "HVD_TOKEN_FILE and HVD_TOKEN_FD are both unset, but %u "
                           "ranks need a common job token",
                           c->place.size);
        return token_random(ret, err); /* alone: no other rank needs it */
    case TOKEN_FILE:
        return token_read_file(c->token_file, ret, err);
    case TOKEN_FD:
        return token_read_fd(c->token_fd, ret, err);
    case TOKEN_WEAK:
        labelled_hash("ringmaster-weak-token/1", c->weak_seed, strlen(c->weak_seed),
                      ret);
        return 0;
    case TOKEN_CHANNEL:
        break; /* bootstrap_meet gives it */
    }
    return err_set(err, -EINVAL, "job token: unknown source");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Where the job token comes from. The only file of contract/ that reads files and
 * descriptors.
 *
 * A file or pipe that contains 64 hex digits is the key itself; any other 16 to 4096
 * bytes (a Secret that a user wrote) are hashed with a label. Blanks and newlines at
 * the end are ignored, so that `echo` and a Secret without newline give the same key.
 * The weak token (foreign launchers) is a hash of what the launcher passes to every
 * rank: it separates jobs, but does not stop attackers. */
#include "runtime/contract/token.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"

#define TOKEN_MIN_BYTES 16
#define TOKEN_MAX_BYTES 4096

void token_wipe(struct token *t)
{
    if (!t)
        return;
    memset(t, 0, sizeof(*t));
    __asm__ volatile(""
                     :
                     : "r"(t)
                     : "memory"); /* the compiler must not drop the memset */
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

/* Removes blanks at the end of text. what: name of the source in error messages.
 */
static int token_from_text(
    const char *what, char *text, size_t n, struct token *ret, struct err *err)
{
    while (n && is_blank(text[n - 1]))
        text[--n] = '\0';
    if (n < TOKEN_MIN_BYTES || n > TOKEN_MAX_BYTES)
        return err_set(err, -EINVAL,
                       "job token in %s has %zu bytes, allowed are %d to %d", what, n,
                       TOKEN_MIN_BYTES, TOKEN_MAX_BYTES);
    if (n == 2 * sizeof(ret->key) && strlen(text) == n
        && hex_decode(text, ret->key, sizeof(ret->key)) == 0)
        return 0;
    labelled_hash("ringmaster-token/1", text, n, ret);
    return 0;
}

static void wipe_and_free(char **text)
{
    if (*text) {
        memset(*text, 0, strlen(*text));
        __asm__ volatile("" : : "r"(*text) : "memory");
    }
    mem_free(*text);
}

int token_read_file(const char *path, struct token *ret, struct err *err)
{
    CLEANUP(wipe_and_free) char *text = NULL;
    struct stat st;
    struct statvfs fs;
    size_t n = 0;

    if (stat(path, &st) < 0)
        return err_errno(err, errno, "job token: cannot open %s", path);
    mode_t bad = st.st_mode & (S_IROTH | S_IWOTH);
    if (bad == S_IROTH && statvfs(path, &fs) == 0 && (fs.f_flag & ST_RDONLY))
        bad = 0; /* a Secret volume: the pod is the border, and 0444 suits any UID in it
                  */
    if (bad)
        return err_set(err, -EACCES,
                       "job token: %s has mode %04o, which lets every user %s it; must "
                       "be 0600 or 0640",
                       path, (unsigned)(st.st_mode & 07777),
                       bad & S_IWOTH ? "change" : "read");
    int rc = fd_read_file(path, TOKEN_MAX_BYTES + 16, &text, &n, err);
    if (rc) {
        (void)err_prefix(err, "job token"); /* rc is returned */
        return rc;
    }
    return token_from_text(path, text, n, ret, err);
}

int token_write_file(const char *path, const struct token *t, struct err *err)
{
    char hex[2 * sizeof(t->key) + 2];

    hex_encode(t->key, sizeof(t->key), hex);
    hex[2 * sizeof(t->key)] = '\n';
    int rc = fd_write_file(path, hex, sizeof(hex) - 1, 0600, err);
    memset(hex, 0, sizeof(hex));
    __asm__ volatile("" : : "r"(hex) : "memory");
    if (rc)
        (void)err_prefix(err, "job token"); /* rc is returned */
    return rc;
}

static int token_read_fd(int fd, struct token *ret, struct err *err)
{
    char text[TOKEN_MAX_BYTES + 17];
    size_t n = 0;
    int rc = 0;

    while (n < sizeof(text) - 1) {
        ssize_t k = read(fd, text + n, sizeof(text) - 1 - n);

        if (k == 0)
            break;
        if (k > 0) {
            n += (size_t)k;
        } else if (errno != EINTR) {
            rc = err_errno(err, errno, "job token: HVD_TOKEN_FD=%d", fd);
            break;
        }
    }
    (void)close(fd); /* read once: a child process must not inherit it */
    text[n] = '\0';
    if (rc == 0)
        rc = token_from_text("HVD_TOKEN_FD", text, n, ret, err);
    memset(text, 0, sizeof(text));
    __asm__ volatile("" : : "r"(text) : "memory");
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

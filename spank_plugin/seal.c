/* SPDX-License-Identifier: Apache-2.0 */
/* munge, used for encryption only. munged encrypts the payload with the cluster's key
 * and, because of the UID restriction, decodes it only for that user (root of a node
 * has the key and could decode it, but root can read the token anyway). So the
 * credential may be passed in an environment variable and through Slurm's launch
 * message, which is not encrypted before Slurm 25.
 *
 * "Expired" and "replayed" are accepted: a step may be queued for hours after srun
 * created the credential, and all nodes that share a munged decode the same one. munge
 * returns the payload with these two errors and with "rewound" (clock skew); the uid is
 * checked in each case.
 *
 * libmunge writes to a socket that a busy or stopping munged may have closed. SIGPIPE,
 * which srun does not block yet when it reads its options, would end it without a word. */
#include "spank_plugin/seal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <munge.h>

#include "runtime/base/mem.h"

static void ctx_free(munge_ctx_t *ctx)
{
    if (*ctx)
        munge_ctx_destroy(*ctx);
}

/* The socket in AuthInfo, a list such as "ttl=60,socket=/run/munge/munge.socket.2"; ""
 * if it has none. 0, or -ENAMETOOLONG. */
static int socket_of(const char *auth_info, char *ret, size_t size_bytes)
{
    ret[0] = '\0';
    for (const char *p = auth_info; p && *p; p += strcspn(p, ","), p += *p == ',') {
        if (strncmp(p, "socket=", 7) != 0)
            continue;
        size_t n = strcspn(p + 7, ",");
        if (n >= size_bytes)
            return -ENAMETOOLONG;
        memcpy(ret, p + 7, n);
        ret[n] = '\0';
    }
    return 0;
}

static munge_ctx_t ctx_new(const char *auth_info, struct err *err)
{
    char path[256];
    if (socket_of(auth_info, path, sizeof(path))) {
        (void)err_set(err, -ENAMETOOLONG,
                      "slurm.conf: AuthInfo: the socket's name is longer "
                      "than %zu bytes",
                      sizeof(path) - 1);
        return NULL;
    }
    munge_ctx_t ctx = munge_ctx_create();
    if (!ctx) {
        (void)err_set(err, -ENOMEM, "munge: out of memory");
        return NULL;
    }
    if (path[0] && munge_ctx_set(ctx, MUNGE_OPT_SOCKET, path) != EMUNGE_SUCCESS) {
        (void)err_set(err, -EINVAL, "munge: %s", munge_ctx_strerror(ctx));
        munge_ctx_destroy(ctx);
        return NULL;
    }
    return ctx;
}

static int
munge_failed(munge_ctx_t ctx, munge_err_t rc, const char *what, struct err *err)
{
    const char *text = munge_ctx_strerror(ctx);
    return err_set(
        err, rc == EMUNGE_CRED_UNAUTHORIZED ? -EACCES : -EIO,
        "munge cannot %s the job token: %s (--hvd requires munge whatever "
        "AuthType is: install the package munge on the login and compute "
        "nodes, give all of them one /etc/munge/munge.key, and start munged)",
        what, text ? text : munge_strerror(rc));
}

/* --- SIGPIPE of this thread --- */

struct pipe_guard {
    sigset_t old;
    bool was_pending;
};

static void pipe_guard_begin(struct pipe_guard *g)
{
    sigset_t set;

    (void)sigpending(&set);
    g->was_pending = sigismember(&set, SIGPIPE) == 1;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, &g->old);
}

static void pipe_guard_end(struct pipe_guard *g)
{
    const struct timespec now = {0, 0};
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGPIPE);
    while (!g->was_pending && sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
        ;
    (void)pthread_sigmask(SIG_SETMASK, &g->old, NULL);
}

int seal_close(
    const char *auth_info, const void *p, size_t n, char **ret_cred, struct err *err)
{
    CLEANUP(ctx_free) munge_ctx_t ctx = ctx_new(auth_info, err);
    if (!ctx)
        return err ? err->code : -EIO;
    struct pipe_guard guard;
    char *cred = NULL;
    munge_err_t rc = munge_ctx_set(ctx, MUNGE_OPT_UID_RESTRICTION, geteuid());
    pipe_guard_begin(&guard);
    if (rc == EMUNGE_SUCCESS)
        rc = munge_encode(&cred, ctx, p, (int)n);
    pipe_guard_end(&guard);
    if (rc != EMUNGE_SUCCESS)
        return munge_failed(ctx, rc, "encrypt", err);
    char *copy = mem_strdup(cred);
    free(cred); /* allocated by munge with malloc */
    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    *ret_cred = copy;
    return 0;
}

int seal_open(const char *auth_info,
              const char *cred,
              void **ret_p,
              size_t *ret_n,
              struct err *err)
{
    CLEANUP(ctx_free) munge_ctx_t ctx = ctx_new(auth_info, err);
    if (!ctx)
        return err ? err->code : -EIO;
    void *p = NULL;
    int n = 0;
    uid_t uid = (uid_t)-1;
    gid_t gid;
    struct pipe_guard guard;
    pipe_guard_begin(&guard);
    munge_err_t rc = munge_decode(cred, ctx, &p, &n, &uid, &gid);
    pipe_guard_end(&guard);
    bool has_payload = rc == EMUNGE_SUCCESS || rc == EMUNGE_CRED_EXPIRED
                       || rc == EMUNGE_CRED_REPLAYED || rc == EMUNGE_CRED_REWOUND;
    int ret = 0;
    if (!has_payload)
        ret = munge_failed(ctx, rc, "decrypt", err);
    else if (uid != geteuid())
        ret =
            err_set(err, -EACCES,
                    "the job token was created by user %u, not by this step's user %u",
                    (unsigned)uid, (unsigned)geteuid());
    void *copy = ret ? NULL : mem_alloc((size_t)n + 1);
    if (!ret && !copy)
        ret = err_set(err, -ENOMEM, "out of memory");
    if (!ret) {
        memcpy(copy, p, (size_t)n);
        *ret_n = (size_t)n;
        *ret_p = copy;
    }
    if (p) {
        explicit_bzero(p, (size_t)n);
        free(p);
    }
    return ret;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The symbols of a communicator's life: init, split, shrink, revoke, finalize,
 * destroy, abort, asynchronous error. Non-blocking ones return ncclInProgress and
 * continue on their helper thread. As in real NCCL, a child's handle is written there
 * and is valid only when the parent's state is ncclSuccess. Mutable global: how
 * communicators started, under a lock. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/cuda/nccl_fake.h"

int ncclGetVersion(int *ret)
{
    *ret = fake_version();
    return NCCL_OK;
}

int ncclGetUniqueId(struct nccl_id *ret)
{
    static atomic_uint number;

    memset(ret, 0, sizeof(*ret));
    (void)snprintf(ret->bytes, sizeof(ret->bytes), "hvd-fake-nccl-%d-%u-%llx",
                   (int)getpid(), atomic_fetch_add(&number, 1),
                   (unsigned long long)fake_now_us());
    return NCCL_OK;
}

/* --- how they began --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char begun[1 << 16]; /* under lock */

__attribute__((format(printf, 1, 2))) static void begun_log(const char *fmt, ...)
{
    va_list ap;

    LOCK_HERE(&lock);
    size_t n = strlen(begun);
    va_start(ap, fmt);
    (void)vsnprintf(begun + n, sizeof(begun) - n, fmt, ap);
    va_end(ap);
}

char *fake_nccl_begun(void)
{
    LOCK_HERE(&lock);
    return strdup(begun);
}

/* --- config --- */

static bool is_in(int v, int lo, int hi)
{
    return v == INT_MIN || (v >= lo && v <= hi);
}

/* What this version reads of it, as it does: a prefix. */
static int check_config(const struct nccl_config *c, bool *ret_blocks, bool *ret_shares)
{
    const int v = fake_version();
    bool is_good = c->magic == 0xcafebeef
                   && c->size >= offsetof(struct nccl_config, cga_cluster)
                   && is_in(c->blocking, 0, 1);

    if (v >= 21700)
        is_good = is_good && is_in(c->cga_cluster, 0, 8) && is_in(c->min_ctas, 1, 64)
                  && is_in(c->max_ctas, 1, 64);
    if (v >= 21801)
        is_good = is_good && is_in(c->split_share, 0, 1);
    if (v >= 22703)
        is_good = is_good && is_in(c->shrink_share, 0, 1)
                  && (!c->comm_name || c->comm_name[0] != '\0');
    if (!is_good) {
        fake_set_error("config: an invalid field");
        return NCCL_ARGUMENT;
    }
    *ret_blocks = c->blocking != 0;
    *ret_shares = v >= 21801 && c->split_share == 1;
    return NCCL_OK;
}

/* --- init --- */

static int comm_start(void *arg)
{
    struct nccl_comm_s *c = arg;
    int rc = fake_net_join(c), code = fake_fault("init_error", c->rank, 0);

    if (!rc && code) {
        fake_set_error("member %d of %s: an injected error at init", c->rank, c->name);
        return code;
    }
    return rc;
}

static int
comm_init(nccl_comm *ret, int n, struct nccl_id id, int rank, bool blocks, bool shares)
{
    if (n < 1 || n > FAKE_MAX_MEMBERS || rank < 0 || rank >= n
        || !memchr(id.bytes, '\0', FAKE_NAME_BYTES))
        return NCCL_ARGUMENT;
    int code = fake_fault("init_refused", rank, 0);
    if (code) {
        fake_set_error("an injected refusal of member %d", rank);
        return code; /* as without a driver: at once, and there is no communicator */
    }
    struct nccl_comm_s *c = fake_comm_new(id.bytes, rank, n, NULL);
    begun_log("init %d/%d\n", rank, n);
    c->is_blocking = blocks;
    c->shares = shares;
    fake_job_check(c, "ncclCommInitRank");
    if (!blocks) /* an aborting thread may read it */
        __atomic_store_n(ret, c, __ATOMIC_RELEASE);
    int rc = fake_do(c, comm_start, c, false);
    if (blocks && rc == NCCL_OK)
        __atomic_store_n(ret, c, __ATOMIC_RELEASE);
    return rc;
}

int ncclCommInitRank(nccl_comm *ret, int n, struct nccl_id id, int rank)
{
    return comm_init(ret, n, id, rank, true, false);
}

int ncclCommInitRankConfig(
    nccl_comm *ret, int n, struct nccl_id id, int rank, struct nccl_config *config)
{
    const char *env = getenv("NCCL_COMM_BLOCKING");
    bool blocks = true, shares = false;

    if (fake_version() < 21403)
        fake_die("ncclCommInitRankConfig is not in NCCL %d", fake_version());
    int rc = check_config(config, &blocks, &shares);
    if (rc)
        return rc;
    if (env && *env)
        blocks = *env == '1';
    return comm_init(ret, n, id, rank, blocks, shares);
}

/* --- children --- */

struct birth { /* of a child; the helper's */
    struct nccl_comm_s *parent;
    nccl_comm *ret;
    bool shares; /* the child's own wish */
    int color, key;
    int *excluded, n_excluded;
};

static int finish_birth(struct birth *b, const char *what, int rank, int n)
{
    struct nccl_comm_s *p = b->parent, *c;
    char name[2 * FAKE_NAME_BYTES];

    (void)snprintf(name, sizeof(name), "%s/%s", p->name, what);
    if (strlen(name) >= FAKE_NAME_BYTES)
        fake_die("children of children of %s", p->name);
    c = fake_comm_new(name, rank, n, !b->n_excluded && p->shares ? p->family : NULL);
    c->is_blocking = p->is_blocking;
    c->shares = b->shares;
    c->ctx = p->ctx;
    c->parent = p;
    int rc = fake_net_join(c);
    c->parent = NULL;
    if (rc)
        return rc;
    __atomic_store_n(b->ret, c, __ATOMIC_RELEASE);
    return NCCL_OK;
}

static int birth_split(void *arg)
{
    struct birth *b = arg;
    struct nccl_comm_s *p = b->parent;
    struct fake_sign ours = {.coll = FAKE_SPLIT}, signs[FAKE_MAX_MEMBERS];
    int32_t mine[2] = {b->color, b->key}, theirs[FAKE_MAX_MEMBERS][2];
    struct fake_xfer v[4 * FAKE_MAX_MEMBERS];
    char what[32];
    size_t n = 0;
    int rank = 0, size = 0;

    for (int i = 0; i < p->n; i++) {
        if (i == p->rank)
            continue;
        v[n++] = (struct fake_xfer){i, true, NULL, &ours, sizeof(ours), 0};
        v[n++] = (struct fake_xfer){i, true, NULL, mine, sizeof(mine), 0};
        v[n++] = (struct fake_xfer){i, false, &ours, &signs[i], sizeof(ours), 0};
        v[n++] = (struct fake_xfer){i, false, NULL, theirs[i], sizeof(mine), 0};
    }
    memcpy(theirs[p->rank], mine, sizeof(mine));
    int rc = fake_net_run(p, v, n);
    (void)snprintf(what, sizeof(what), "s%u.%d", p->n_children++, b->color);
    for (int i = 0; i < p->n && !rc; i++) {
        if (theirs[i][0] != b->color)
            continue;
        size++;
        rank += theirs[i][1] < b->key || (theirs[i][1] == b->key && i < p->rank);
    }
    if (!rc && b->color != NCCL_NOCOLOR)
        rc = finish_birth(b, what, rank, size);
    free(b);
    return rc;
}

static int birth_shrink(void *arg)
{
    struct birth *b = arg;
    struct nccl_comm_s *p = b->parent;
    char what[32];
    unsigned hash = p->n_children++;
    int below = 0;

    for (int i = 0; i < b->n_excluded; i++) {
        below += b->excluded[i] < p->rank;
        hash = hash * 31 + (unsigned)b->excluded[i];
    }
    (void)snprintf(what, sizeof(what), "k%x", hash);
    int rc = finish_birth(b, what, p->rank - below, p->n - b->n_excluded);
    free(b->excluded);
    free(b);
    return rc;
}

/* As NCCL: the caller does not see that it has only started. */
static int birth_begin(nccl_comm parent, int (*birth)(void *arg), struct birth *b)
{
    int rc = fake_do(parent, birth, b, false);

    return rc == NCCL_IN_PROGRESS ? NCCL_OK : rc;
}

static struct birth *birth_new(nccl_comm parent, nccl_comm *ret)
{
    struct birth *b = fake_zalloc(sizeof(*b));

    b->parent = parent;
    b->ret = ret;
    return b;
}

/* NCCL's guide: no operations may be outstanding. */
static void want_idle(nccl_comm c, const char *call)
{
    LOCK_HERE(&c->lock);
    if (!fake_is_stopped(c) && c->n_ended < c->n_launched)
        fake_die("%s with outstanding operations", call);
}

int ncclCommSplit(
    nccl_comm c, int color, int key, nccl_comm *ret, struct nccl_config *config)
{
    struct birth *b;
    bool blocks = c->is_blocking, shares = false;
    int rc = config ? check_config(config, &blocks, &shares) : NCCL_OK;

    fake_enter(c, "ncclCommSplit", 21801, 0);
    fake_job_check(c, "ncclCommSplit");
    want_idle(c, "ncclCommSplit");
    *ret = NULL;
    rc = rc ? rc : fake_ready(c);
    if (!rc && color < NCCL_NOCOLOR)
        rc = NCCL_ARGUMENT;
    if (!rc) {
        begun_log("split %d of %d/%d%s\n", color, c->rank, c->n,
                  c->shares || color == NCCL_NOCOLOR ? "" : ", alone");
        b = birth_new(c, ret);
        b->color = color;
        b->key = key;
        b->shares = shares;
        rc = birth_begin(c, birth_split, b);
    }
    fake_leave(c);
    return rc;
}

int ncclCommShrink(nccl_comm c,
                   int *excluded,
                   int n,
                   nccl_comm *ret,
                   struct nccl_config *config,
                   int flags)
{
    struct birth *b;

    fake_enter(c, "ncclCommShrink", 22703, FAKE_WHEN_REVOKED);
    fake_job_check(c, "ncclCommShrink");
    if (!c->is_revoked)
        want_idle(c, "ncclCommShrink");
    *ret = NULL;
    int rc = fake_ready(c);
    if (n < 1 || n >= c->n || flags != NCCL_SHRINK_DEFAULT)
        rc = NCCL_ARGUMENT;
    for (int i = 0; i < n && !rc; i++)
        if (excluded[i] < 0 || excluded[i] >= c->n || excluded[i] == c->rank
            || (i && excluded[i] <= excluded[i - 1]))
            rc = NCCL_ARGUMENT;
    if (!rc) {
        begun_log("shrink %d/%d to %d\n", c->rank, c->n, c->n - n);
        b = birth_new(c, ret);
        b->excluded = fake_zalloc((size_t)n * sizeof(int));
        memcpy(b->excluded, excluded, (size_t)n * sizeof(int));
        b->n_excluded = n;
        rc = birth_begin(c, birth_shrink, b);
    }
    fake_leave(c);
    return rc;
}

/* --- ends --- */

static int wait_idle(void *arg)
{
    struct nccl_comm_s *c = arg;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        bool is_idle =
            fake_is_stopped(c) ? c->n_running == 0 : c->n_ended >= c->n_launched;
        pthread_mutex_unlock(&c->lock);
        if (is_idle)
            return NCCL_OK;
        (void)usleep(100);
    }
}

int ncclCommRevoke(nccl_comm c, int flags)
{
    /* it stops what is in progress, so that is no hindrance */
    fake_enter(c, "ncclCommRevoke", 22807, FAKE_WHILE_BUSY);
    fake_job_revoke(c);
    int rc = flags ? NCCL_ARGUMENT : NCCL_OK;
    if (!rc) {
        atomic_store(&c->is_stopped, true);
        fake_join(c);
        pthread_mutex_lock(&c->lock);
        c->is_revoked = true;
        c->async = NCCL_OK;
        pthread_mutex_unlock(&c->lock);
        rc = fake_do(c, wait_idle, c, false);
    }
    fake_leave(c);
    return rc;
}

static int never_idle(void *arg)
{
    fake_hang(arg);
    return NCCL_INTERNAL;
}

int ncclCommFinalize(nccl_comm c)
{
    fake_enter(c, "ncclCommFinalize", 21403, 0);
    fake_job_check(c, "ncclCommFinalize");
    int rc = fake_ready(c);
    if (rc) {
        fake_leave(c);
        return rc;
    }
    pthread_mutex_lock(&c->lock);
    c->is_finalized = true;
    pthread_mutex_unlock(&c->lock);
    bool hangs = fake_fault("finalize_hang", c->rank, 0) != 0;
    /* an abort comes too late */
    (void)usleep(1000u * (unsigned)fake_fault("finalize_slow", c->rank, 0));
    rc = fake_do(c, hangs ? never_idle : wait_idle, c, false);
    fake_leave(c);
    return rc;
}

int ncclCommDestroy(nccl_comm c)
{
    fake_enter(c, "ncclCommDestroy", 0, FAKE_WHEN_REVOKED);
    fake_job_check(c, "ncclCommDestroy");
    int error = fake_ready(c);
    if (error) { /* it is still there, to be aborted */
        fake_leave(c);
        fake_job_destroy_failed();
        return error;
    }
    if (!c->is_finalized && !c->is_revoked)
        want_idle(c, "ncclCommDestroy");
    /* for ranks of the same host */
    (void)usleep(1000u * (unsigned)fake_fault("destroy_slow", c->rank, 0));
    int code = fake_fault("destroy_error", c->rank, 0);
    fake_leave(c);
    fake_end(c);
    if (code)
        fake_job_destroy_failed();
    return code;
}

int ncclCommAbort(nccl_comm c)
{
    fake_enter(c, "ncclCommAbort", 0, FAKE_ANY);
    pthread_mutex_lock(&c->lock);
    if (c->n_inside && !c->is_blocking)
        fake_die("ncclCommAbort while a thread is inside a call of this communicator");
    pthread_mutex_unlock(&c->lock);
    (void)usleep(1000u * (unsigned)fake_fault("abort_slow", c->rank, 0));
    fake_job_abort(c);
    atomic_store(&c->family->is_aborted, true);
    fake_end(c);
    return NCCL_OK;
}

int ncclCommGetAsyncError(nccl_comm c, int *ret)
{
    fake_enter(c, "ncclCommGetAsyncError", 0, FAKE_ANY);
    LOCK_HERE(&c->lock);
    *ret = c->async;
    fake_job_asked(c);
    return NCCL_OK;
}

int ncclCommCount(nccl_comm c, int *ret)
{
    fake_enter(c, "ncclCommCount", 0, FAKE_WHEN_REVOKED);
    fake_job_check(c, "ncclCommCount");
    *ret = c->n;
    int rc = fake_ready(c);
    fake_leave(c);
    return rc;
}

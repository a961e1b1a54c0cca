/* SPDX-License-Identifier: Apache-2.0 */
/* Pods start in any order and their names appear in DNS later. Therefore errors that
 * may be temporary are retried: a name that does not resolve, a refused connection, a
 * connection that breaks in the handshake, and a server of another job (the address of
 * a deleted pod that was reused). A wrong token and another generation of the same job
 * are final. The thread is the only user of the struct until it writes to the pipe. An
 * agent that receives a stop signal meanwhile just exits. Called by agent_hub.c and
 * rsh.c, and by link.c (usually with once set). */
#include "runtime/launch/dial.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/contract/hostlist.h"

#define SLICE_NS     (10 * NS_PER_S) /* one progress message per slice */
#define HANDSHAKE_NS (10 * NS_PER_S)
#define PAUSE_MS     200

struct dial {
    pthread_t thread;
    char host[HOST_NAME_MAX_BYTES];
    struct dial_to to; /* its host points to the copy above */
    struct token token;
    char job_id[JOB_ID_MAX];
    struct auth_id id; /* of the copies above */
    uint64_t deadline_ns;
    int pipe[2];
    /* set by the thread at its end and by dial_abandon; the second one frees. acq_rel:
     * it sees all that the first one wrote */
    _Atomic bool is_over;
    int rc, fd; /* the result */
    struct auth_session session;
    struct err err;
};

static int dial_try_once(struct dial *d)
{
    uint64_t slice = clock_now_ns() + SLICE_NS;
    const struct auth_server server = {d->host, d->to.port, .is_patient = !d->to.once};
    const struct auth_claim claim = {.id = &d->id,
                                     .mine = d->to.mine,
                                     .theirs = d->to.theirs,
                                     .deadline_ns = earlier_ns(slice, d->deadline_ns)};
    d->err = (struct err)ERR_INIT;
    return auth_connect(&server, &claim, &d->fd, &d->session, &d->err);
}

static void dial_free(struct dial *d)
{
    fd_close(&d->pipe[0]);
    fd_close(&d->pipe[1]);
    token_wipe(&d->token);
    auth_session_wipe(&d->session);
    mem_free(d);
}

static void *dial_main(void *arg)
{
    struct dial *d = arg;
    for (;;) {
        d->rc = dial_try_once(d);
        if (d->rc == 0 || d->rc == -EACCES || d->rc == -ESTALE || d->to.once
            || clock_now_ns() >= d->deadline_ns)
            break;
        log_info("not reached yet", "address=%s port=%u cause=\"%s\"", d->host,
                 d->to.port, d->err.text);
        (void)fd_wait(-1, 0, clock_now_ns() + PAUSE_MS * NS_PER_MS);
    }
    (void)!write(d->pipe[1], "", 1); /* cannot fail: the reader is this process */
    if (atomic_exchange_explicit(&d->is_over, true, memory_order_acq_rel)) {
        fd_close(&d->fd);
        dial_free(d);
    }
    return NULL;
}

int dial_start(const struct dial_to *to,
               const struct auth_id *id,
               uint64_t deadline_ns,
               struct dial **ret,
               struct err *err)
{
    struct dial *d = mem_zalloc(sizeof(*d));
    if (!d)
        return err_set(err, -ENOMEM, "out of memory");
    (void)snprintf(d->host, sizeof(d->host), "%s", to->host);
    d->to = *to;
    d->to.host = d->host;
    d->token = *id->token;
    (void)snprintf(d->job_id, sizeof(d->job_id), "%s", id->job_id);
    d->id = (struct auth_id){
        .token = &d->token, .job_id = d->job_id, .generation = id->generation};
    d->deadline_ns = deadline_ns;
    d->fd = d->pipe[0] = d->pipe[1] = -1;
    int rc = pipe2(d->pipe, O_CLOEXEC) < 0 ? -errno : 0;
    if (rc == 0)
        rc = -pthread_create(&d->thread, NULL, dial_main, d);
    if (rc < 0) {
        dial_free(d);
        return err_errno(err, -rc, "cannot start the thread that connects to %s",
                         to->host);
    }
    *ret = d;
    return 0;
}

int dial_fd(const struct dial *d)
{
    return d->pipe[0];
}

void dial_abandon(struct dial *d)
{
    (void)pthread_detach(d->thread);
    if (atomic_exchange_explicit(&d->is_over, true, memory_order_acq_rel)) {
        fd_close(&d->fd);
        dial_free(d);
    }
}

int dial_end(struct dial *d, int *ret_fd, struct auth_session *ret, struct err *err)
{
    (void)pthread_join(d->thread, NULL);
    int rc = d->rc;
    if (rc == 0) {
        *ret_fd = d->fd;
        *ret = d->session;
    } else {
        (void)err_set(err, rc, "%s", d->err.text);
    }
    dial_free(d);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-1: one line to the launcher's proxy, one line back, over an inherited descriptor
 * (PMI_FD) or a connection (PMI_PORT and PMI_ID).
 *
 *   [initack]  init  get_maxes  get_my_kvsname  put  barrier_in  get ...     finalize
 *
 * An MPI library in this process uses the same descriptor, before or after us:
 *
 * - init is answered every time (MPICH 4.0, Intel MPI 2021), so either may come first.
 *   Slurm answers only once, which is why from_slurm.c does not use PMI.
 * - finalize ends the connection for the whole process, so it is not sent after the
 *   exchange but at exit: MPI_Init may still come. It cannot be omitted: Hydra treats a
 *   process that has used PMI and exits without finalize as crashed.
 * - MPI_Finalize closes PMI_FD. We keep a duplicate, because finalize might otherwise
 *   be written to another file with that number. A second finalize finds the connection
 *   closed, which is no error.
 *
 * The library's requests and ours must not overlap in time: hvd.init() and MPI_Init are
 * called one after the other. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/bootstrap/carrier.h"
#include "runtime/bootstrap/pmi_line.h"

#define FINALIZE_MS 1000

struct pmi {
    struct carrier base;
    int fd;
    dev_t dev; /* identity of fd, in case the program closes and reuses it */
    ino_t ino;
    size_t max_value;
    char kvs[256];
    /* Received and not consumed yet: initack is answered by several lines. */
    char in[PMI_LINE_BYTES];
    size_t n_in;
};

static int pmi_lost(int rc, struct err *err)
{
    if (rc == -EPIPE || rc == -ECONNRESET)
        return err_set(err, -EPIPE,
                       "mpiexec has closed its PMI connection to this rank: an earlier "
                       "program of the rank (or its MPI_Finalize) has ended it, or "
                       "another rank has failed");
    return err_errno(err, -rc, "mpiexec's PMI connection");
}

/* One line without its newline. */
static int read_line(struct pmi *p,
                     char ret[PMI_LINE_BYTES],
                     uint64_t deadline_ns,
                     struct err *err)
{
    for (;;) {
        const char *end = memchr(p->in, '\n', p->n_in);

        if (end) {
            size_t n = (size_t)(end - p->in);

            memcpy(ret, p->in, n);
            ret[n] = '\0';
            p->n_in -= n + 1;
            memmove(p->in, end + 1, p->n_in);
            return 0;
        }
        if (p->n_in == sizeof(p->in))
            return err_set(err, -EPROTO, "mpiexec sends a PMI line of over %d bytes",
                           PMI_LINE_BYTES);
        int rc = fd_wait(p->fd, POLLIN, deadline_ns);
        if (rc < 0)
            return rc == -ETIMEDOUT ? rc : pmi_lost(rc, err);
        ssize_t k = recv(p->fd, p->in + p->n_in, sizeof(p->in) - p->n_in, MSG_DONTWAIT);
        if (k == 0)
            return pmi_lost(-EPIPE, err);
        if (k > 0)
            p->n_in += (size_t)k;
        else if (errno != EINTR && errno != EAGAIN)
            return pmi_lost(-errno, err);
    }
}

/* Sends a request and receives its answer, whose command must equal `want`. line is
 * used for both; the request ends with a newline. */
static int pmi_request(struct pmi *p,
                       char line[PMI_LINE_BYTES],
                       const char *want,
                       uint64_t deadline_ns,
                       struct err *err)
{
    char asked[24];

    (void)snprintf(asked, sizeof(asked), "%.*s", (int)strcspn(line, " \n"), line);
    int rc = fd_write_full(p->fd, line, strlen(line), deadline_ns);
    if (rc == 0)
        rc = read_line(p, line, deadline_ns, err);
    else if (rc != -ETIMEDOUT)
        return pmi_lost(rc, err);
    if (rc == -ETIMEDOUT)
        return err_set(err, rc, "mpiexec does not answer \"%s\" on its PMI connection",
                       asked);
    if (rc)
        return rc;
    if (!pmi_is(line, want))
        return err_set(err, -EPROTO,
                       "mpiexec answers \"%s\" on its PMI connection by \"%.80s\"; a "
                       "launcher without PMI-1 is not supported",
                       asked, line);
    if (pmi_number(line, "rc", 0) != 0)
        return err_set(err, -EIO,
                       "mpiexec refuses \"%s\" on its PMI connection: %.120s", asked,
                       line);
    return 0;
}

/* --- opening --- */

static int take_fd(int fd, int *ret, struct err *err)
{
    struct sockaddr_storage peer;
    socklen_t n = sizeof(peer);

    /* A file that has been given its number since is hardly a connected socket. */
    if (getpeername(fd, (struct sockaddr *)&peer, &n) < 0)
        return err_set(err, -ENOENT,
                       "PMI_FD=%d is not mpiexec's connection (any more): a program "
                       "between mpiexec and this one has closed it, or MPI_Finalize "
                       "came before hvd.init()",
                       fd);
    *ret = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *ret < 0 ? err_errno(err, errno, "PMI_FD=%d", fd) : 0;
}

static int pmi_dial(const char *where, uint64_t deadline_ns, int *ret, struct err *err)
{
    char host[HOST_NAME_MAX_BYTES];
    const char *colon = strrchr(where, ':');
    uint32_t port;

    if (!colon || (size_t)(colon - where) >= sizeof(host)
        || parse_u32("PMI_PORT", colon + 1, 1, 65535, &port, NULL))
        return err_set(err, -EINVAL, "PMI_PORT=%.200s is not HOST:PORT", where);
    memcpy(host, where, (size_t)(colon - where));
    host[colon - where] = '\0';
    int rc = tcp_connect(host, (uint16_t)port, deadline_ns, false, ret, err);
    if (rc)
        (void)err_prefix(err, "PMI_PORT"); /* rc is returned */
    return rc;
}

/* Our rank and size, where the environment does not give them: three lines of "set". */
static int
pmi_send_id(struct pmi *p, uint32_t id, uint64_t deadline_ns, struct err *err)
{
    char line[PMI_LINE_BYTES];
    long rank = -1, size = -1;

    (void)snprintf(line, sizeof(line), "cmd=initack pmiid=%u\n", id);
    int rc = pmi_request(p, line, "initack", deadline_ns, err);
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = read_line(p, line, deadline_ns, err);
        if (rc == 0) {
            rank = pmi_number(line, "rank", rank);
            size = pmi_number(line, "size", size);
        }
    }
    if (rc)
        return rc;
    if (size < 1 || size > WORLD_MAX_RANKS || rank < 0 || rank >= size)
        return err_set(
            err, -EPROTO,
            "mpiexec reports no valid rank and size at PMI_PORT (rank %ld of %ld)",
            rank, size);
    p->base.rank = (uint32_t)rank;
    p->base.size = (uint32_t)size;
    return 0;
}

static int pmi_negotiate(struct pmi *p, uint64_t deadline_ns, struct err *err)
{
    char line[PMI_LINE_BYTES] = "cmd=init pmi_version=1 pmi_subversion=1\n";
    int rc = pmi_request(p, line, "response_to_init", deadline_ns, err);

    if (rc)
        return rc;
    (void)snprintf(line, sizeof(line), "cmd=get_maxes\n");
    rc = pmi_request(p, line, "maxes", deadline_ns, err);
    if (rc)
        return rc;
    long max = pmi_number(line, "vallen_max", 0);
    p->max_value = max > 0 ? (size_t)max : 0;
    (void)snprintf(line, sizeof(line), "cmd=get_my_kvsname\n");
    rc = pmi_request(p, line, "my_kvsname", deadline_ns, err);
    if (rc)
        return rc;
    if (!pmi_value(line, "kvsname", p->kvs, sizeof(p->kvs)))
        return err_set(err, -EPROTO, "mpiexec returns no key-value space: %.120s",
                       line);
    (void)snprintf(p->base.job, sizeof(p->base.job), "%.*s", JOB_ID_MAX - 1, p->kvs);
    return 0;
}

static void pmi_free(struct pmi *p)
{
    if (!p)
        return;
    fd_close(&p->fd);
    mem_free(p);
}

static int pmi_open(const struct contract *c,
                    uint64_t deadline_ns,
                    struct carrier **ret,
                    struct err *err)
{
    struct pmi *p = mem_zalloc(sizeof(*p));
    struct stat st = {0};
    int rc;

    if (!p)
        return err_set(err, -ENOMEM, "out of memory");
    p->base = (struct carrier){&carrier_pmi, c->place.rank, c->place.size, ""};
    p->fd = -1;
    if (c->pmi_fd >= 0) {
        rc = take_fd(c->pmi_fd, &p->fd, err);
    } else {
        rc = pmi_dial(c->pmi_port, deadline_ns, &p->fd, err);
        if (rc == 0)
            rc = pmi_send_id(p, c->pmi_id, deadline_ns, err);
    }
    if (rc == 0)
        rc = pmi_negotiate(p, deadline_ns, err);
    if (rc == 0 && fstat(p->fd, &st) < 0)
        rc = err_errno(err, errno, "mpiexec's PMI connection");
    if (rc) {
        pmi_free(p);
        return rc;
    }
    p->dev = st.st_dev;
    p->ino = st.st_ino;
    *ret = &p->base;
    return 0;
}

/* --- put, fence, get --- */

static struct pmi *pmi_of(struct carrier *ch)
{
    return (struct pmi *)(void *)ch;
}

static int
pmi_put(struct carrier *ch, const char *value, uint64_t deadline_ns, struct err *err)
{
    struct pmi *p = pmi_of(ch);
    char line[PMI_LINE_BYTES];

    if (strlen(value) >= p->max_value)
        return err_set(err, -E2BIG,
                       "mpiexec transports values of %zu bytes, this one has %zu",
                       p->max_value, strlen(value));
    (void)snprintf(line, sizeof(line), "cmd=put kvsname=%s key=hvd-%u value=%.*s\n",
                   p->kvs, ch->rank, 2048, value); /* fits */
    return pmi_request(p, line, "put_result", deadline_ns, err);
}

static int pmi_fence(struct carrier *ch, uint64_t deadline_ns, struct err *err)
{
    char line[PMI_LINE_BYTES] = "cmd=barrier_in\n";

    return pmi_request(pmi_of(ch), line, "barrier_out", deadline_ns, err);
}

static int pmi_get(struct carrier *ch,
                   uint32_t rank,
                   char *ret,
                   size_t size_bytes,
                   uint64_t deadline_ns,
                   struct err *err)
{
    struct pmi *p = pmi_of(ch);
    char line[PMI_LINE_BYTES];

    (void)snprintf(line, sizeof(line), "cmd=get kvsname=%s key=hvd-%u\n", p->kvs, rank);
    int rc = pmi_request(p, line, "get_result", deadline_ns, err);
    if (rc == 0 && !pmi_value(line, "value", ret, size_bytes))
        rc = err_set(err, -EPROTO, "mpiexec answers \"get\" by %.120s", line);
    return rc;
}

static void pmi_finish(struct carrier *ch)
{
    struct pmi *p = pmi_of(ch);
    struct stat st;
    char line[PMI_LINE_BYTES] = "cmd=finalize\n";

    if (fstat(p->fd, &st) < 0 || st.st_ino != p->ino || st.st_dev != p->dev) {
        p->fd = -1; /* the program has closed it; the number may be another file's */
        pmi_free(p);
        return;
    }
    /* Already closed when MPI_Finalize has sent it. */
    (void)pmi_request(p, line, "finalize_ack", clock_now_ns() + FINALIZE_MS * NS_PER_MS,
                      NULL);
    pmi_free(p);
}

const struct carrier_ops carrier_pmi = {pmi_open, pmi_put, pmi_fence, pmi_get,
                                        pmi_finish};

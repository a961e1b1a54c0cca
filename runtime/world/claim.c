/* SPDX-License-Identifier: Apache-2.0 */
/* A child has the environment of its parent, and so its rank. If both called init, one
 * would take the place of the other at the rendezvous, or would be taken for a restarted
 * rank. So a process listens at an abstract Unix socket whose name is made of job and
 * rank. Nobody connects to it but a second process of that rank, to read the pid.
 *
 * The claim ends with the world or the process: after shutdown() a program may start
 * another process for its rank. A claim of another user does not count, who could
 * otherwise keep the job from starting, nor one of a process that is gone or not visible
 * here. Whatever the system refuses is no reason to refuse a rank: then there
 * is no check. There is none either for a single rank, or where ranks meet by their
 * launcher's channel, before which the environment need not name the job.
 *
 * In an elastic job ranks change from world to world, and a rank may be another process'
 * before this one has left; so a slot is claimed instead, for as long as the process is
 * connected to its launcher. Called by find.c and membership.c. */
#include "runtime/world/claim.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/base/unix.h"

static void claim_make_name(const char *text, char ret[UNIX_NAME_BYTES])
{
    uint8_t digest[SHA256_BYTES];

    sha256_digest(text, strlen(text), digest);
    memcpy(ret, "hvd-", 4);
    hex_encode(digest, 16, ret + 4);
}

/* The process that has claimed the name; 0: none that counts. */
static pid_t claim_holder(const char *name)
{
    CLEANUP(fd_close) int fd = -1;
    struct ucred peer;

    if (unix_connect(name, &fd, NULL) < 0 || unix_read_peer(fd, &peer) < 0
        || peer.uid != geteuid() || peer.pid <= 0 || peer.pid == getpid()
        || kill(peer.pid, 0) < 0)
        return 0;
    return peer.pid;
}

/* 0, or the process that has claimed it already. */
static pid_t claim_text(const char *text, int *fd)
{
    char name[UNIX_NAME_BYTES];

    claim_make_name(text, name);
    return unix_listen_at(name, fd, NULL) == 0 ? 0 : claim_holder(name);
}

int claim_slot(const char *job_id, const char *address, int *fd, struct err *err)
{
    char text[JOB_ID_MAX + UNIX_NAME_BYTES + 64];
    pid_t holder;

    (void)snprintf(text, sizeof(text), "slot %s %s", job_id, address); /* fits */
    holder = claim_text(text, fd);
    if (holder == 0)
        return 0;
    return err_set(
        err, -EINVAL,
        "HVD_ELASTIC=%.80s is process %d already, and this process (pid %d) has "
        "inherited it: do not call hvd.init() in a worker process, put the main "
        "program under if __name__ == \"__main__\":",
        address, (int)holder, (int)getpid());
}

int claim_rank(const struct contract *c, int *fd, struct err *err)
{
    char text[JOB_ID_MAX + HOST_NAME_MAX_BYTES + 64];
    pid_t holder;

    if (*fd > 0 || c->known != KNOWN_ALL || c->channel != CHANNEL_NONE
        || c->rdv_host[0] == 0 || c->place.size == 1)
        return 0;
    (void)snprintf(text, sizeof(text), "%d %s %u %s %u %u %u", (int)c->launcher,
                   c->job_id, c->generation, c->rdv_host, c->rdv_port, c->place.rank,
                   c->place.size); /* fits */
    holder = claim_text(text, fd);
    if (holder == 0)
        return 0;
    return err_set(
        err, -EINVAL,
        "rank %u is process %d already, and this process (pid %d) was started "
        "with the same rank: a launcher starts one process for each rank; do "
        "not call hvd.init() in a worker process, put the main program under "
        "if __name__ == \"__main__\":, or start more ranks with horovodrun "
        "-np",
        c->place.rank, (int)holder, (int)getpid());
}

void claim_drop(int *fd)
{
    if (*fd > 0)
        fd_close(fd);
    *fd = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Called by local_job.c, remote.c and elastic_live.c, in the main thread. */
#include "runtime/launch/live_door.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"

static int live_door_listen(struct live_door *d, const char *dir, struct err *err)
{
    static const struct accept_kind kind = {
        .name = "status", .mine = ROLE_AGENT_HUB, .theirs = ROLE_READER};
    char path[CONTRACT_PATH_MAX + 16], text[JOB_ID_MAX + 64];
    uint16_t port = 0;
    int n, rc = tcp_listen("127.0.0.1", 0, &d->listen_fd, &port, err);

    rc = rc < 0 ? rc : acceptor_open(&d->acceptor, &kind, err);
    rc = rc < 0 ? rc : door_listen(d->acceptor.door, d->listen_fd, false, err);
    if (rc < 0)
        return rc;
    n = snprintf(text, sizeof(text), "%u %d %s\n", port, (int)getpid(), d->job_id);
    (void)snprintf(path, sizeof(path), "%s/" STATUS_FILE, dir);
    return fd_write_file(path, text, (size_t)n, 0600, err);
}

static void live_door_warn(const struct err *err)
{
    log_warn("--status cannot show this job", "cause=\"%s\"", err->text);
}

void live_door_write_token(const char *dir, const struct token *token)
{
    struct err err = ERR_INIT;
    char path[CONTRACT_PATH_MAX + 16];

    (void)snprintf(path, sizeof(path), "%s/token", dir);
    if (token_write_file(path, token, &err) < 0)
        live_door_warn(&err);
}

void live_door_open(struct live_door *d,
                    const char *dir,
                    const struct token *token,
                    const char *job_id,
                    struct live_lead *lead)
{
    struct err err = ERR_INIT;

    *d = (struct live_door){
        .listen_fd = -1, .token = token, .job_id = job_id, .lead = lead};
    d->is_open = true;
    if (live_door_listen(d, dir, &err) == 0)
        return;
    live_door_warn(&err);
    live_door_close(d);
}

void live_door_close(struct live_door *d)
{
    if (!d->is_open)
        return;
    d->is_open = false;
    acceptor_close(&d->acceptor);
    fd_close(&d->listen_fd);
}

void live_door_fds(const struct live_door *d, struct pollfd *fds)
{
    fds[0] = (struct pollfd){.fd = -1};
    if (d->is_open)
        fds[0] = (struct pollfd){.fd = door_fd(d->acceptor.door), .events = POLLIN};
    readers_fill_fds(&d->lead->readers, fds + 1);
}

static void live_door_admit(void *arg, const struct admitted *m)
{
    struct live_door *d = arg;

    readers_admit(&d->lead->readers, m, clock_now_ns());
}

void live_door_serve(struct live_door *d)
{
    struct auth_id id = {d->token, d->job_id, 0};

    if (d->is_open)
        acceptor_serve(&d->acceptor, &id, live_door_admit, d);
    live_lead_serve(d->lead);
}

uint64_t live_door_next_ns(const struct live_door *d)
{
    uint64_t next = live_lead_next_ns(d->lead);

    return d->is_open ? earlier_ns(next, door_next_ns(d->acceptor.door)) : next;
}

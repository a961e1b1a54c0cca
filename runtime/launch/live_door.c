/* SPDX-License-Identifier: Apache-2.0 */
/* Called by local_job.c, remote.c and elastic_live.c, in the main thread. */
#include "runtime/launch/live_door.h"

#include <stdio.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"

static int entry_open(struct live_entry *x,
                      const char *addr,
                      uint16_t port,
                      const struct token *token,
                      uint16_t *ret_port,
                      struct err *err)
{
    static const struct accept_kind kind = {
        .name = "status", .mine = ROLE_AGENT_HUB, .theirs = ROLE_READER};
    int rc;

    *x = (struct live_entry){.is_open = true, .listen_fd = -1, .token = token};
    rc = tcp_listen(addr, port, &x->listen_fd, ret_port, err);
    rc = rc < 0 ? rc : acceptor_open(&x->acceptor, &kind, err);
    return rc < 0 ? rc : door_listen(x->acceptor.door, x->listen_fd, false, err);
}

static void entry_close(struct live_entry *x)
{
    if (!x->is_open)
        return;
    x->is_open = false;
    acceptor_close(&x->acceptor);
    fd_close(&x->listen_fd);
}

static int live_door_write_file(const struct live_door *d,
                                const char *dir,
                                uint16_t port,
                                struct err *err)
{
    char path[CONTRACT_PATH_MAX + 16], text[JOB_ID_MAX + 64];
    int n = snprintf(text, sizeof(text), "%u %d %s\n", port, (int)getpid(), d->job_id);

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
    struct live_entry *x = &d->entry[LIVE_LOCAL];
    struct err err = ERR_INIT;
    uint16_t port = 0;
    int rc;

    *d = (struct live_door){.job_id = job_id, .lead = lead};
    rc = entry_open(x, "127.0.0.1", 0, token, &port, &err);
    rc = rc < 0 ? rc : live_door_write_file(d, dir, port, &err);
    if (rc == 0)
        return;
    live_door_warn(&err);
    entry_close(x);
}

void live_door_open_network(struct live_door *d,
                            uint16_t port,
                            const struct token *root)
{
    struct live_entry *x = &d->entry[LIVE_NETWORK];
    struct err err = ERR_INIT;

    if (entry_open(x, "::", port, root, NULL, &err) == 0)
        return;
    log_warn("the operator cannot show the progress of this job", "cause=\"%s\"",
             err.text);
    entry_close(x);
}

void live_door_close(struct live_door *d)
{
    for (int i = 0; i < LIVE_ENTRIES; i++)
        entry_close(&d->entry[i]);
}

void live_door_fds(const struct live_door *d, struct pollfd *fds)
{
    for (int i = 0; i < LIVE_ENTRIES; i++) {
        const struct live_entry *x = &d->entry[i];

        fds[i] = (struct pollfd){.fd = -1};
        if (x->is_open)
            fds[i] = (struct pollfd){.fd = door_fd(x->acceptor.door), .events = POLLIN};
    }
    readers_fill_fds(&d->lead->readers, fds + LIVE_ENTRIES);
}

static void live_door_admit(void *arg, const struct admitted *m)
{
    struct live_door *d = arg;

    readers_admit(&d->lead->readers, m, clock_now_ns());
}

void live_door_serve(struct live_door *d)
{
    for (int i = 0; i < LIVE_ENTRIES; i++) {
        struct live_entry *x = &d->entry[i];
        const struct auth_id id = {x->token, d->job_id, 0};

        if (x->is_open)
            acceptor_serve(&x->acceptor, &id, live_door_admit, d);
    }
    live_lead_serve(d->lead);
}

uint64_t live_door_next_ns(const struct live_door *d)
{
    uint64_t next = live_lead_next_ns(d->lead);

    for (int i = 0; i < LIVE_ENTRIES; i++)
        if (d->entry[i].is_open)
            next = earlier_ns(next, door_next_ns(d->entry[i].acceptor.door));
    return next;
}

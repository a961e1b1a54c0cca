/* SPDX-License-Identifier: Apache-2.0 */
/* State machine of a connection to an agent:
 *
 *   NEW -+-> GREETING (ssh, child) --+-> OPEN -> ENDING -> GONE
 *        '-> DIALING (serve) --------'
 *   GREETING and DIALING also go to ENDING when the attempt fails.
 *
 * ssh gets one socket as standard input and output, so that the end of that socket
 * is the end of the channel. What a login shell prints before the agent's first line
 * is skipped. When the socket ends, ssh's standard error is read to its end, for at
 * most half a second, because the cause is printed there and may arrive later. ssh dies
 * with us (pdeathsig and guard), and the agent on the other host when its input ends.
 * Called by links.c. */
#include "runtime/launch/link.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/sha256.h"
#include "runtime/launch/command.h"
#include "runtime/wire/bytes.h"
#include "runtime/launch/session.h"
#include "runtime/launch/spawn.h"

#define GREETING_MAX_BYTES 65536
#define ENDING_NS          (NS_PER_S / 2)

void link_init(
    struct link *l, enum link_kind kind, const char *host, uint32_t first, uint32_t end)
{
    memset(l, 0, sizeof(*l));
    l->kind = kind;
    l->host = host;
    l->first = first;
    l->end = end;
    l->fd = l->err_fd = -1;
    frame_init(&l->channel.conn);
    lines_init(&l->err_lines);
    strbuf_init(&l->greeting, GREETING_MAX_BYTES);
}

void link_adopt(struct link *l, pid_t pid, int fd)
{
    l->pid = pid;
    l->fd = fd;
    l->state = LINK_GREETING;
}

static void link_close(struct link *l)
{
    fd_close(&l->fd);
    channel_release(&l->channel);
}

void link_kill(struct link_common *k, struct link *l)
{
    if (l->pid <= 0)
        return;
    (void)kill(-l->pid, SIGKILL);
    (void)waitpid(l->pid, NULL, WNOHANG);
    guard_remove(k->c.guard, l->pid);
    l->pid = 0;
}

void link_release(struct link_common *k, struct link *l)
{
    link_close(l);
    link_kill(k, l);
    fd_close(&l->err_fd);
    lines_release(&l->err_lines);
    strbuf_release(&l->greeting);
    if (l->dial)
        dial_abandon(l->dial);
}

bool link_is_opening(const struct link *l)
{
    return l->state == LINK_GREETING || l->state == LINK_DIALING;
}

static void link_set_why(struct link *l, const char *why)
{
    if (!*l->why)
        (void)snprintf(l->why, sizeof(l->why), "%s", why);
}

/* --- ssh's standard error --- */

static void link_add_line(void *arg, const char *text, size_t n)
{
    struct link *l = arg;
    size_t have = strlen(l->said);
    if (n > sizeof(l->said) / 2)
        n = sizeof(l->said) / 2;
    if (have + n + 2 > sizeof(l->said)) { /* keep the newest part */
        size_t keep = sizeof(l->said) / 2 - 2;
        keep = keep < have ? keep : have;
        memmove(l->said, l->said + have - keep, keep + 1);
        have = keep;
    }
    memcpy(l->said + have, text, n);
    l->said[have + n] = '\n';
    l->said[have + n + 1] = '\0';
    if (l->state == LINK_OPEN && n)
        log_warn("output of an agent", "host=%s text=\"%.*s\"", l->host, (int)n, text);
    else if (n)
        log_info("output of ssh or srun", "host=%s text=\"%.*s\"", l->host, (int)n,
                 text);
}

static void link_read_stderr(struct link *l)
{
    char buf[4096];
    while (l->err_fd >= 0) {
        ssize_t n = read(l->err_fd, buf, sizeof(buf));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            lines_end(&l->err_lines, link_add_line, l);
            fd_close(&l->err_fd);
            return;
        }
        (void)lines_feed(&l->err_lines, buf, (size_t)n, link_add_line, l);
    }
}

/* --- the end of a link --- */

static void link_finish(struct link_common *k, struct link *l)
{
    char why[240];
    lines_end(&l->err_lines, link_add_line, l);
    fd_close(&l->err_fd);
    link_kill(k, l);
    if (!*l->why) {
        ssh_explain(&k->c.ssh, l->host, l->said, why, sizeof(why));
        link_set_why(l, why);
    }
    l->state = LINK_GONE;
    k->c.on_lost(k->c.arg, l);
}

void link_end(struct link_common *k, struct link *l, const char *why)
{
    if (why)
        link_set_why(l, why);
    link_close(l);
    if (l->dial)
        dial_abandon(l->dial);
    l->dial = NULL;
    l->state = LINK_ENDING;
    l->ending_ns = clock_now_ns() + (l->err_fd < 0 ? 0 : ENDING_NS);
    link_read_stderr(l);
    if (l->err_fd < 0)
        link_finish(k, l);
}

/* --- opening --- */

static void link_open_channel(struct link_common *k,
                              struct link *l,
                              int fd,
                              const struct auth_session *session)
{
    channel_init(&l->channel, fd, session, ERRAND_TO_LAUNCHER_MAX_BYTES,
                 clock_now_ns());
    if (l->kind == LINK_SERVE)
        channel_seal(&l->channel);
    l->state = LINK_OPEN;
    k->c.on_open(k->c.arg, l);
}

static void link_greeted(struct link_common *k, struct link *l)
{
    char answer[sizeof(LINK_ANSWER_TEXT) - 1 + sizeof(k->c.root.key)];
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    memcpy(answer, LINK_ANSWER_TEXT, sizeof(LINK_ANSWER_TEXT) - 1);
    memcpy(answer + sizeof(LINK_ANSWER_TEXT) - 1, k->c.root.key, sizeof(k->c.root.key));
    session_of_job(&k->c.root, true, &session);
    /* a new socket has room for this; the next read detects a broken one */
    (void)!send(l->fd, answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
    int fd = l->fd;
    l->fd = -1;
    link_open_channel(k, l, fd, &session);
}

/* Finds the agent's line after the output of the login shell. */
static void link_read_greeting(struct link_common *k, struct link *l)
{
    char buf[4096], why[200];
    ssize_t n = recv(l->fd, buf, sizeof(buf), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        link_end(k, l, NULL);
        return;
    }
    strbuf_add(&l->greeting, buf, (size_t)n);
    if (strbuf_status(&l->greeting) < 0) {
        link_end(k, l, "its login shell prints too much");
        return;
    }
    const char *line = strstr(strbuf_str(&l->greeting), LINK_GREETING_TEXT);
    const char *version = line ? line + sizeof(LINK_GREETING_TEXT) - 1 : "";
    if (!strchr(version, '\n'))
        return;
    if (!strncmp(version, LINK_PROTOCOL, sizeof(LINK_PROTOCOL) - 1)) {
        link_greeted(k, l);
        return;
    }
    (void)snprintf(why, sizeof(why),
                   "its hvd-agent has another version (%.*s), this horovodrun has "
                   "%s%s: install the same on all hosts",
                   (int)(strcspn(version, "\r\n") < 40 ? strcspn(version, "\r\n") : 40),
                   version, LINK_PROTOCOL, HVD_VERSION_STRING);
    link_end(k, l, why);
}

static void link_dialed(struct link_common *k, struct link *l)
{
    struct err err = ERR_INIT;
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int fd = -1, rc = dial_end(l->dial, &fd, &session, &err);
    char why[240];
    l->dial = NULL;
    if (rc == 0) {
        link_open_channel(k, l, fd, &session);
        return;
    }
    if (rc == -EACCES)
        (void)snprintf(why, sizeof(why),
                       "its hvd-agent serve has another token than --token-file");
    else
        (void)snprintf(why, sizeof(why), "%.170s%s", err.text,
                       rc == -ECONNREFUSED ? ": is hvd-agent serve running there?"
                                           : "");
    link_end(k, l, why);
}

/* Starts a program that becomes an agent, or leads to one, on its standard streams. */
static int link_spawn(struct link_common *k,
                      struct link *l,
                      const char *path,
                      char *const *argv,
                      struct err *err)
{
    struct child child;
    int pair[2], rc;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "a socket for %s", argv[0]);
    struct spawn spawn = {.path = path,
                          .argv = argv,
                          .envp = k->env.v,
                          .stdio_fd = pair[1],
                          .signals = k->c.signals};
    rc = spawn_child(&spawn, &child, err);
    fd_close(&pair[1]);
    if (rc < 0) {
        fd_close(&pair[0]);
        return rc;
    }
    guard_add(k->c.guard, child.pid);
    (void)fd_nonblock(pair[0], true); /* cannot fail for a socket */
    (void)fd_nonblock(child.stderr_fd, true);
    l->pid = child.pid;
    l->fd = pair[0];
    l->err_fd = child.stderr_fd;
    l->state = LINK_GREETING;
    return 0;
}

static int link_start_ssh(struct link_common *k, struct link *l, struct err *err)
{
    struct ssh_command command;
    int rc = ssh_command(&k->c.ssh, l->host, k->c.agent_path, &command, err);
    if (rc < 0)
        return rc;
    if (!*k->ssh_path && command_find(command.v[0], getenv("PATH"), k->ssh_path, err)) {
        k->ssh_path[0] = '\0';
        return -ENOENT;
    }
    return link_spawn(k, l, k->ssh_path, command.v, err);
}

/* An agent of its own for a name of this host. */
static int link_start_local(struct link_common *k, struct link *l, struct err *err)
{
    char path[PATH_MAX], agent[] = "hvd-agent", attach[] = "attach";
    char *argv[] = {agent, attach, NULL};

    if (command_find(k->c.agent_path, getenv("PATH"), path, err))
        return -ENOENT;
    return link_spawn(k, l, path, argv, err);
}

static int link_start_dial(struct link_common *k, struct link *l, struct err *err)
{
    struct auth_id id = {.token = &k->c.root, .job_id = SERVE_JOB_ID};
    struct dial_to to = {.host = l->host,
                         .port = k->c.agent_port,
                         .mine = ROLE_REMOTE_LAUNCHER,
                         .theirs = ROLE_AGENT_SERVE,
                         .once = !k->c.is_patient};
    int rc = dial_start(&to, &id, k->c.deadline_ns, &l->dial, err);
    if (rc == 0)
        l->state = LINK_DIALING;
    return rc;
}

void link_start(struct link_common *k, struct link *l)
{
    struct err err = ERR_INIT;
    int rc = l->kind == LINK_SSH     ? link_start_ssh(k, l, &err)
             : l->kind == LINK_LOCAL ? link_start_local(k, l, &err)
                                     : link_start_dial(k, l, &err);
    if (rc < 0)
        link_end(k, l, err.text);
}

/* --- serving --- */

nfds_t link_pollfds(const struct link *l, struct pollfd *p)
{
    nfds_t n = 0;
    if (l->err_fd >= 0)
        p[n++] = (struct pollfd){.fd = l->err_fd, .events = POLLIN};
    if (l->state == LINK_OPEN)
        p[n++] = (struct pollfd){.fd = l->channel.conn.fd,
                                 .events = channel_events(&l->channel)};
    else if (l->state == LINK_GREETING)
        p[n++] = (struct pollfd){.fd = l->fd, .events = POLLIN};
    else if (l->state == LINK_DIALING)
        p[n++] = (struct pollfd){.fd = dial_fd(l->dial), .events = POLLIN};
    return n;
}

static void link_serve_open(struct link_common *k, struct link *l, uint64_t now_ns)
{
    struct err err = ERR_INIT;
    struct frame f;
    char why[100];
    uint64_t next;
    int rc = 0, lost;
    channel_serve(&l->channel);
    while (l->state == LINK_OPEN
           && (rc = channel_next(&l->channel, now_ns, &f, &err)) > 0) {
        rc = f.type != ERRAND_PING && f.n < 4
                 ? err_set(&err, -EPROTO, "a message is malformed")
                 : k->c.on_frame(k->c.arg, l, &f, &err);
        if (l->state != LINK_OPEN)
            return;
        if (rc < 0)
            break;
    }
    lost = l->channel.lost;
    if (rc < 0) {
        link_end(k, l, err.text);
    } else if (lost) {
        (void)snprintf(why, sizeof(why), "its agent exited or the connection broke%s%s",
                       lost == -EPIPE ? "" : ": ",
                       lost == -EPIPE ? "" : strerror(-lost));
        link_end(k, l, why);
    } else if (channel_tick(&l->channel, ERRAND_PING, k->c.peer_timeout_ns, now_ns,
                            &next)
               < 0) {
        (void)snprintf(why, sizeof(why), "its agent was silent for %llu s",
                       (unsigned long long)(k->c.peer_timeout_ns / NS_PER_S));
        link_end(k, l, why);
    }
}

void link_serve(struct link_common *k, struct link *l, uint64_t now_ns)
{
    struct pollfd p = {.events = POLLIN};
    link_read_stderr(l);
    switch (l->state) {
    case LINK_DIALING:
        p.fd = dial_fd(l->dial);
        if (poll(&p, 1, 0) > 0)
            link_dialed(k, l);
        break;
    case LINK_GREETING:
        link_read_greeting(k, l);
        break;
    case LINK_OPEN:
        link_serve_open(k, l, now_ns);
        break;
    case LINK_ENDING:
        if (l->err_fd < 0 || now_ns >= l->ending_ns)
            link_finish(k, l);
        break;
    case LINK_NEW:
    case LINK_GONE:
        break;
    }
}

uint64_t link_next_ns(const struct link_common *k, const struct link *l)
{
    if (l->state == LINK_ENDING)
        return l->ending_ns;
    if (l->state != LINK_OPEN)
        return UINT64_MAX;
    /* the same intervals as in channel_tick */
    return earlier_ns(l->channel.sent_ns + k->c.peer_timeout_ns / 6,
                      l->channel.received_ns + k->c.peer_timeout_ns);
}

void link_send(struct link_common *k,
               struct link *l,
               enum errand_type type,
               uint32_t host,
               const struct strbuf *payload)
{
    CLEANUP(strbuf_release) struct strbuf all = {0};
    strbuf_init(&all, ERRAND_TO_AGENT_MAX_BYTES);
    bytes_put_u32(&all, host);
    if (payload)
        strbuf_add(&all, strbuf_str(payload), payload->n);
    if (strbuf_status(&all) < 0)
        link_end(k, l, "out of memory for a message to it");
    else /* the next poll detects a broken connection */
        (void)channel_send(&l->channel, (uint8_t)type, strbuf_str(&all), all.n,
                           clock_now_ns());
}

/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-agent rsh HOST COMMAND: a replacement for ssh in MPI launchers, through the
 * hvd-agent serve of the host. core/shell.h defines options and messages; shell.c is
 * the other end.
 *
 *   this host's own name -> exec /bin/sh -c here
 *   connect (dial.c) -> failed: retry after 0.2 s, until HVD_START_TIMEOUT
 *                    -> channel: RUN, then streams until END -> its exit code
 *
 * Pods start in any order. Therefore a name that does not resolve and a refused
 * connection are retried, with a message every 30 s; a wrong token is final. Stop
 * signals are forwarded to the command. A second one ends this process, and with its
 * connection the command. Standard output and error are written only as far as a
 * pipe accepts data without blocking, so that a slow reader is not mistaken for a
 * silent host. One thread, in addition to that of dial.c. Called by agent_main.c. */
#include "runtime/launch/rsh.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/addr.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/launch/channel.h"
#include "runtime/wire/bytes.h"
#include "runtime/launch/core/shell.h"
#include "runtime/launch/dial.h"
#include "runtime/launch/serve_env.h"
#include "runtime/launch/session.h"
#include "runtime/launch/signals.h"

#define PAUSE_NS (NS_PER_S / 5)
/* between messages; at most a quarter of the timeout */
#define SAY_NS   (30 * NS_PER_S)
#define PIPE_OK  4096u /* PIPE_BUF: a writable pipe accepts this much */

struct rsh {
    struct shell_words words;
    const char *command;
    char own[HOST_NAME_MAX_BYTES]; /* our host name */
    struct serve_env env;
    struct token token;
    struct signals signals;
    /* start, next message, deadline, interval */
    uint64_t start_ns, say_ns, last_ns, each_ns;
    struct err why; /* the error of the last attempt */
    struct channel up;
    bool is_input_over;
    int64_t credit;
    uint32_t n_written;   /* output whose credit was not yet given back */
    struct strbuf out[2]; /* queued for our standard output and error */
    bool has_end;
    uint32_t code;
    int stop_signal; /* the first one that was forwarded; 0: none */
};

static int rsh_report_error(const char *what, const char *more)
{
    fprintf(stderr, RSH_NAME ": %s%s\n", what, more);
    return RSH_OWN_CODE;
}

/* --- commands for this host --- */

/* True if every address of the host is ours, or if it does not resolve yet: a launcher
 * that is one of the workers may start a command on itself before its own DNS record
 * exists. */
static bool rsh_is_here(const struct rsh *r)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    bool is_ours = true;
    if (!shell_is_own_name(r->words.host, r->own))
        return false;
    if (getaddrinfo(r->words.host, NULL, &hints, &list) != 0)
        return true;
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        char there[NI_MAXHOST], here[NI_MAXHOST];
        is_ours = is_ours
                  && getnameinfo(a->ai_addr, a->ai_addrlen, there, sizeof(there), NULL,
                                 0, NI_NUMERICHOST)
                         == 0
                  && (addr_is_loopback(there)
                      || (addr_towards(there, here, sizeof(here), NULL) == 0
                          && !strcmp(there, here)));
    }
    freeaddrinfo(list);
    return is_ours;
}

static int rsh_run_here(const struct rsh *r)
{
    int null = r->words.has_input ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null > 0)
        (void)dup2(null, 0);
    fd_close(&null);
    (void)execl("/bin/sh", "sh", "-c", r->command, (char *)NULL);
    return rsh_report_error("/bin/sh cannot be executed: ", strerror(errno));
}

/* --- connecting --- */

/* True if the error may be temporary. */
static bool error_is_temporary(int rc)
{
    return rc != -EACCES && rc != -ESTALE && rc != -EPROTO;
}

static int rsh_begin_dial(struct rsh *r, struct dial **ret)
{
    struct auth_id id = {.token = &r->token, .job_id = SERVE_JOB_ID};
    struct dial_to to = {.host = r->words.host,
                         .port = r->env.port,
                         .mine = ROLE_SHELL,
                         .theirs = ROLE_AGENT_SERVE,
                         .once = true};
    return dial_start(&to, &id, UINT64_MAX, ret, &r->why);
}

static void rsh_log_waiting(struct rsh *r)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns < r->say_ns)
        return;
    r->say_ns = now_ns + r->each_ns;
    fprintf(stderr, RSH_NAME ": waiting for host %s, %llu of %u s: %s\n", r->words.host,
            (unsigned long long)((now_ns - r->start_ns) / NS_PER_S),
            r->env.start_timeout_s, r->why.text);
}

/* Waits for fd (-1: none) or the deadline. Returns a stop signal, or 0. */
static int rsh_wait_fd(struct rsh *r, int fd, uint64_t due_ns)
{
    struct pollfd p[2] = {{.fd = r->signals.fd, .events = POLLIN},
                          {.fd = fd, .events = POLLIN}};
    int sig;
    (void)poll(p, 2, clock_left_ms(due_ns));
    while ((sig = signals_next(&r->signals)) > 0)
        if (signals_is_stop(sig))
            return sig;
    return 0;
}

/* 0: the channel is open; 1: after a stop signal; -errno: see r->why. */
static int rsh_try_once(struct rsh *r, int *ret_sig)
{
    struct dial *dial;
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    int fd = -1, rc = rsh_begin_dial(r, &dial);
    if (rc < 0)
        return rc;
    struct pollfd answer = {.fd = dial_fd(dial), .events = POLLIN};
    while (poll(&answer, 1, 0) <= 0) {
        rsh_log_waiting(r);
        *ret_sig =
            rsh_wait_fd(r, answer.fd, r->say_ns < r->last_ns ? r->say_ns : r->last_ns);
        if (*ret_sig || clock_now_ns() >= r->last_ns) {
            dial_abandon(dial);
            return *ret_sig ? 1 : -ETIMEDOUT;
        }
    }
    if ((rc = dial_end(dial, &fd, &session, &r->why)) < 0)
        return rc;
    channel_init(&r->up, fd, &session, SHELL_MAX_BYTES, clock_now_ns());
    channel_seal(&r->up);
    return 0;
}

/* 0, or the exit code after an error message. */
static int rsh_connect(struct rsh *r)
{
    int sig = 0, rc;
    (void)err_set(&r->why, -ETIMEDOUT, "no answer yet");
    while ((rc = rsh_try_once(r, &sig)) < 0 && error_is_temporary(rc)
           && clock_now_ns() < r->last_ns) {
        rsh_log_waiting(r);
        if ((sig = rsh_wait_fd(r, -1, clock_now_ns() + PAUSE_NS)))
            return 128 + sig;
    }
    if (rc >= 0)
        return sig ? 128 + sig : 0;
    if (rc == -EACCES)
        fprintf(stderr,
                RSH_NAME ": host %s: its hvd-agent serve has another token than "
                         "%s\n",
                r->words.host, r->env.token_file);
    else if (error_is_temporary(rc))
        fprintf(stderr,
                RSH_NAME ": host %s did not answer within %u s (HVD_START_TIMEOUT): "
                         "%s\n",
                r->words.host, r->env.start_timeout_s, r->why.text);
    else
        fprintf(stderr, RSH_NAME ": host %s: %s\n", r->words.host, r->why.text);
    return RSH_OWN_CODE;
}

/* --- running the command --- */

static void rsh_send_up(struct rsh *r, enum shell_type type, const void *p, size_t n)
{
    /* the next poll detects a lost peer */
    (void)channel_send(&r->up, (uint8_t)type, p, n, clock_now_ns());
}

static void rsh_send_number(struct rsh *r, enum shell_type type, uint32_t number)
{
    uint8_t b[4];
    bytes_store(b, number, sizeof(b));
    rsh_send_up(r, type, b, sizeof(b));
}

static int rsh_send_run(struct rsh *r)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct shell_run run = {.has_input = r->words.has_input};
    (void)snprintf(run.from, sizeof(run.from), "%s", r->own);
    strbuf_init(&b, SHELL_MAX_BYTES);
    shell_run_write(&run, r->command, &b);
    if (strbuf_status(&b) < 0)
        return rsh_report_error("out of memory", "");
    rsh_send_up(r, SHELL_RUN, strbuf_str(&b), b.n);
    return 0;
}

static int rsh_take_output(struct rsh *r, const struct frame *f, struct err *err)
{
    struct bytes_reader b = {.p = f->p, .left = f->n};
    uint32_t stream = bytes_u32(&b);
    if (b.is_bad || stream > 1)
        return err_set(err, -EPROTO, "an output message is malformed");
    strbuf_add(&r->out[stream], b.p, b.left);
    return strbuf_status(&r->out[stream]) < 0
               ? err_set(err, -EPROTO, "more output than its credit allows")
               : 0;
}

static int rsh_take_frame(struct rsh *r, const struct frame *f, struct err *err)
{
    uint32_t number = 0;
    int rc = 0;
    switch ((enum shell_type)f->type) {
    case SHELL_OUTPUT:
        return rsh_take_output(r, f, err);
    case SHELL_END:
        rc = shell_number_read(f->p, f->n, &r->code, err);
        r->has_end = rc == 0;
        return rc;
    case SHELL_CREDIT:
        rc = shell_number_read(f->p, f->n, &number, err);
        if (rc == 0 && r->credit < (int64_t)1 << 40)
            r->credit += number;
        return rc;
    case SHELL_PING:
        return 0;
    case SHELL_RUN:
    case SHELL_INPUT:
    case SHELL_CLOSE:
    case SHELL_SIGNAL:
        break;
    }
    return err_set(err, -EPROTO, "message %u is not for a client", f->type);
}

/* 0, or -errno with err: the connection has ended. */
static int rsh_serve_up(struct rsh *r, struct err *err)
{
    struct frame f;
    uint64_t next, now_ns = clock_now_ns();
    int rc = 0, lost;
    channel_serve(&r->up);
    while (!r->has_end && (rc = channel_next(&r->up, now_ns, &f, err)) > 0) {
        rc = rsh_take_frame(r, &f, err);
        if (rc < 0)
            break;
    }
    if (rc < 0 || r->has_end)
        return rc;
    lost = r->up.lost;
    if (lost)
        return err_set(err, lost, "its agent exited or the connection broke%s%s",
                       lost == -EPIPE ? "" : ": ",
                       lost == -EPIPE ? "" : strerror(-lost));
    if (channel_tick(&r->up, SHELL_PING, SHELL_PEER_NS, now_ns, &next) < 0)
        return err_set(err, -ETIMEDOUT, "its agent was silent for %llu s",
                       SHELL_PEER_NS / NS_PER_S);
    return 0;
}

static void rsh_read_input(struct rsh *r)
{
    char buf[SHELL_CHUNK_BYTES];
    size_t most = r->credit < (int64_t)sizeof(buf) ? (size_t)r->credit : sizeof(buf);
    ssize_t n = read(0, buf, most);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        rsh_send_up(r, SHELL_INPUT, buf, (size_t)n);
        r->credit -= n;
        return;
    }
    r->is_input_over = true;
    rsh_send_up(r, SHELL_CLOSE, NULL, 0);
}

/* False: our standard output is closed. */
static bool rsh_write_output(struct rsh *r, int k)
{
    struct strbuf *b = &r->out[k];
    size_t n = b->n < PIPE_OK ? b->n : PIPE_OK;
    ssize_t done = write(1 + k, b->p, n);
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (done < 0 && k == 0 && errno != EBADF)
        return false;
    if (done > 0)
        n = (size_t)done; /* otherwise there is no reader: drop it */
    memmove(b->p, b->p + n, b->n - n);
    b->n -= n;
    r->n_written += (uint32_t)n;
    if (!r->has_end && r->n_written >= SHELL_CREDIT_STEP_BYTES) {
        rsh_send_number(r, SHELL_CREDIT, r->n_written);
        r->n_written = 0;
    }
    return true;
}

/* Returns the exit code after a second stop signal, otherwise 0. */
static int rsh_forward_signals(struct rsh *r)
{
    int sig;
    while ((sig = signals_next(&r->signals)) > 0) {
        if (sig == SIGTSTP)
            signals_suspend();
        if (sig == SIGTSTP || sig == SIGCHLD)
            continue;
        if (signals_is_stop(sig) && r->stop_signal)
            return 128 + sig;
        if (signals_is_stop(sig))
            r->stop_signal = sig;
        rsh_send_number(r, SHELL_SIGNAL, (uint32_t)sig);
    }
    return 0;
}

static int rsh_serve_until_end(struct rsh *r)
{
    struct err err = ERR_INIT;
    while (!r->has_end || r->out[0].n || r->out[1].n) {
        struct pollfd p[6] = {
            {.fd = r->signals.fd, .events = POLLIN},
            {.fd = !r->is_input_over && !r->has_end && r->credit > 0 ? 0 : -1,
             .events = POLLIN},
            {.fd = r->out[0].n ? 1 : -1, .events = POLLOUT},
            {.fd = r->out[1].n ? 2 : -1, .events = POLLOUT}};
        nfds_t n = 4;
        if (!r->has_end) {
            channel_pollfds(&r->up, p + n);
            n += 2;
        }
        (void)poll(p, n, clock_left_ms(clock_now_ns() + SHELL_PEER_NS / 6));
        int code = rsh_forward_signals(r);
        if (code)
            return code;
        for (int k = 0; k < 2; k++)
            if (p[2 + k].revents && !rsh_write_output(r, k))
                return rsh_report_error("cannot write to standard output: ",
                                        strerror(errno));
        if (p[1].revents)
            rsh_read_input(r);
        if (!r->has_end && rsh_serve_up(r, &err) < 0) {
            for (int k = 0; k < 2; k++) /* the output that was still received */
                (void)!write(1 + k, strbuf_str(&r->out[k]), r->out[k].n);
            fprintf(stderr, RSH_NAME ": host %s: %s\n", r->words.host, err.text);
            return RSH_OWN_CODE;
        }
    }
    return (int)r->code;
}

static int rsh_run_there(struct rsh *r)
{
    struct err err = ERR_INIT;
    if (token_read_file(r->env.token_file, &r->token, &err) < 0
        || signals_init(&r->signals, &err) < 0)
        return rsh_report_error(err.text, "");
    int code = rsh_connect(r);
    token_wipe(&r->token);
    if (code)
        return code;
    r->credit = SHELL_CREDIT_BYTES;
    r->is_input_over = !r->words.has_input;
    for (int k = 0; k < 2; k++)
        strbuf_init(&r->out[k], 2 * SHELL_CREDIT_BYTES);
    code = rsh_send_run(r);
    if (!code)
        code = rsh_serve_until_end(r);
    channel_release(&r->up);
    for (int k = 0; k < 2; k++)
        strbuf_release(&r->out[k]);
    return code;
}

int agent_rsh(char *const *argv)
{
    CLEANUP(strbuf_release) struct strbuf command = {0};
    struct rsh r = {0};
    struct err err = ERR_INIT;
    fd_close_from(3); /* like ssh: mpiexec's pipes must end when mpiexec exits */
    r.start_ns = clock_now_ns();
    strbuf_init(&command, SHELL_COMMAND_MAX_BYTES);
    if (shell_words_parse(argv, &r.words, &err) < 0
        || shell_words_join(r.words.command, &command, &err) < 0
        || serve_env_read(&r.env, &err) < 0)
        return rsh_report_error(err.text, "");
    r.command = strbuf_str(&command);
    r.last_ns = r.start_ns + r.env.start_timeout_s * NS_PER_S;
    r.each_ns = (r.last_ns - r.start_ns) / 4;
    if (r.each_ns > SAY_NS)
        r.each_ns = SAY_NS;
    r.say_ns = r.start_ns + r.each_ns;
    if (gethostname(r.own, sizeof(r.own) - 1) < 0)
        r.own[0] = '\0';
    return rsh_is_here(&r) ? rsh_run_here(&r) : rsh_run_there(&r);
}

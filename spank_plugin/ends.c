/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm shows a plugin no exit code in srun, and slurmstepd calls its plugins at the end
 * of a task before it sends the code to srun. So the report below comes first, and before
 * Slurm kills the other tasks:
 *
 *   slurmstepd  task_exit  --failure line-->  srun, a thread of comment.c
 *                                             squeue, scontrol: the job's comment
 *                          <--done----------
 *
 * The node waits, because slurmctld refuses to change a job that has ended, and srun ends
 * its job before it calls plugins. All nodes that report wait alike, so that srun receives
 * the ends from Slurm in the same order.
 *
 * The first report is the cause, but for tasks that ended because of another one: ranks of
 * our runtime then exit with FAILURE_OTHER_RANK. Called by plugin.c and comment.c. */
#include "spank_plugin/ends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define LINE_MAX_BYTES 1024u
#define READ_NS        NS_PER_S /* for a report, after the handshake */

enum end_message { END_FAILURE = 1, END_DONE };

static void end_name(const char *job_id, char ret[JOB_ID_MAX])
{
    (void)snprintf(ret, JOB_ID_MAX, "%.*s/ends", JOB_ID_MAX - 6, job_id);
}

bool end_is_cause(const struct failure *f)
{
    return f->signal || f->exit_code != FAILURE_OTHER_RANK;
}

/* --- srun --- */

int ends_open(struct ends *e,
              int *listen_fd,
              const struct token *token,
              const char *job_id,
              struct err *err)
{
    static const struct accept_kind kind = {
        .name = "ends", .mine = ROLE_AGENT_HUB, .theirs = ROLE_AGENT};
    int rc;

    *e = (struct ends){.listen_fd = -1, .token = *token};
    end_name(job_id, e->name);
    rc = fd_nonblock(*listen_fd, true);
    if (rc)
        return err_errno(err, -rc, "a socket for the ends of tasks");
    rc = acceptor_open(&e->acceptor, &kind, err);
    if (!rc)
        rc = door_listen(e->acceptor.door, *listen_fd, false, err);
    if (rc) {
        acceptor_close(&e->acceptor);
        token_wipe(&e->token);
        return rc;
    }
    e->listen_fd = *listen_fd;
    *listen_fd = -1;
    return 0;
}

int ends_fd(const struct ends *e)
{
    return e->listen_fd < 0 ? -1 : door_fd(e->acceptor.door);
}

uint64_t ends_next_ns(const struct ends *e)
{
    return e->listen_fd < 0 ? UINT64_MAX : door_next_ns(e->acceptor.door);
}

static void ends_take(struct ends *e, const struct failure *f)
{
    if (e->is_certain || (e->has_first && !end_is_cause(f)))
        return;
    e->first = *f;
    e->is_certain = end_is_cause(f);
    e->has_first = true;
    e->first_ns = clock_now_ns();
}

/* The node has the line ready: no other connection waits for long. */
static void ends_admit(void *arg, const struct admitted *m)
{
    struct ends *e = arg;
    struct frame_conn c;
    struct frame f;
    struct failure failure;
    char line[LINE_MAX_BYTES + 1];

    frame_open(&c, m->fd, &m->session, LINE_MAX_BYTES);
    if (frame_recv_until(&c, clock_now_ns() + READ_NS, &f) > 0
        && f.type == END_FAILURE) {
        memcpy(line, f.p, f.n);
        line[f.n] = '\0';
        if (failure_parse(line, &failure, NULL) == 0)
            ends_take(e, &failure);
        if (e->n_held < ENDS_HELD) {
            e->held[e->n_held++] = c;
            return;
        }
    }
    frame_release(&c); /* the node does not wait */
}

void ends_serve(struct ends *e)
{
    const struct auth_id id = {.token = &e->token, .job_id = e->name};

    if (e->listen_fd >= 0)
        acceptor_serve(&e->acceptor, &id, ends_admit, e);
}

void ends_close(struct ends *e)
{
    if (e->listen_fd < 0)
        return;
    acceptor_close(&e->acceptor);
    (void)shutdown(e->listen_fd, SHUT_RDWR); /* srun's helper process has a copy */
    fd_close(&e->listen_fd);
    token_wipe(&e->token);
    for (uint32_t i = 0; i < e->n_held; i++) {
        (void)frame_send(&e->held[i], END_DONE, NULL, 0); /* closing says it, too */
        frame_release(&e->held[i]);
    }
    e->n_held = 0;
}

/* --- a node --- */

int end_report(const struct token *token,
               const char *address,
               uint16_t port,
               const char *job_id,
               const struct failure *f,
               uint64_t deadline_ns,
               struct err *err)
{
    char name[JOB_ID_MAX];
    CLEANUP(auth_session_wipe) struct auth_session session = {0};
    CLEANUP(strbuf_release) struct strbuf line = {0};
    const struct auth_id id = {.token = token, .job_id = name};
    const struct auth_server server = {.host = address, .port = port};
    const struct auth_claim claim = {.id = &id,
                                     .mine = ROLE_AGENT,
                                     .theirs = ROLE_AGENT_HUB,
                                     .deadline_ns = deadline_ns};
    struct frame_conn c;
    struct frame reply;
    int fd = -1, rc;

    end_name(job_id, name);
    strbuf_init(&line, LINE_MAX_BYTES);
    failure_render(f, &line);
    if (strbuf_status(&line))
        return err_set(err, -E2BIG, "the end of rank %d does not fit", f->rank);
    rc = auth_connect(&server, &claim, &fd, &session, err);
    if (rc)
        return rc;
    frame_open(&c, fd, &session, LINE_MAX_BYTES);
    rc = frame_send(&c, END_FAILURE, strbuf_str(&line), line.n);
    if (!rc)
        rc = frame_flush_until(&c, deadline_ns);
    if (!rc)
        rc = frame_recv_until(&c, deadline_ns, &reply);
    frame_release(&c);
    return rc < 0 ? err_errno(err, -rc, "cannot report the end of rank %d to srun",
                              f->rank)
                  : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over one poll(): signals, rank pipes, our own stdout, and the descriptors
 * of the caller.
 *
 *   signalfd -> child exited -> reap -> event (a failure with the last lines) -> caller
 *            |                                            caller -> engine_stop()
 *            '> stop signal  -> job_apply -> forwarded to all process groups
 *   deadline -> job_apply -> SIGKILL
 *   all ranks exited -> output drained (at most 2 s after a stop) -> JOB_ENDED
 *
 * The order of children that exited before the same wake-up is unknown; their
 * reports have the same wall time, and verdict.c decides. A rank's process group is
 * killed at the end of the job, so that no process of a rank survives. Invariants:
 * pid > 0 exactly while a rank runs; group > 0 while its process group may have
 * members. Called by agent.c, horovodrun.c and remote_agent.c. */
#include "runtime/launch/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/launch/spawn.h"

#define FINISH_OUTPUT_NS                                                               \
    (2 * NS_PER_S) /* time for a slow reader of our output, after a stop */

struct rank {
    pid_t pid, group;
    int status;
    uint64_t ended_wall_us;
    bool is_reported; /* the caller has received its exit */
    bool is_expected;
};

struct engine {
    struct engine_config c;
    struct signals *signals;
    struct guard *guard;
    struct launch_job job;
    struct output output;
    struct rank *ranks;
    struct pollfd *fds; /* room for signals, output and the caller's */
    uint32_t n_running;
    bool is_draining; /* all ranks have exited; output is still being written */
    uint64_t drain_deadline_ns;
    int pending_signal, received_signal;
};

int engine_new(const struct engine_config *c,
               struct signals *signals,
               struct guard *guard,
               struct engine **ret,
               struct err *err)
{
    struct engine *e = mem_zalloc(sizeof(*e));
    AUTOFREE uint32_t *numbers = mem_calloc(c->n + 1, sizeof(*numbers));
    if (!e || !numbers) {
        mem_free(e);
        return err_set(err, -ENOMEM, "out of memory for %u ranks", c->n);
    }
    e->c = *c;
    e->signals = signals;
    e->guard = guard;
    job_init(&e->job, c->signal_grace_ns);
    e->ranks = mem_calloc(c->n + 1, sizeof(*e->ranks));
    e->fds = mem_calloc((size_t)c->n * 2 + 1 + OUTPUT_FDS + ENGINE_CALLER_FDS,
                        sizeof(*e->fds));
    for (uint32_t i = 0; i < c->n; i++)
        numbers[i] = c->ranks[i].place.rank;
    struct output_config oc = {.n = c->n,
                               .ranks = numbers,
                               .size = c->size,
                               .out_fd = c->out_fd,
                               .err_fd = c->err_fd,
                               .with_timestamp = c->with_timestamp,
                               .dir = c->output_dir,
                               .forward = c->forward};
    int rc = e->ranks && e->fds
                 ? output_init(&e->output, &oc, err)
                 : err_set(err, -ENOMEM, "out of memory for %u ranks", c->n);
    if (rc < 0) {
        engine_free(e);
        return rc;
    }
    *ret = e;
    return 0;
}

/* Sends sig to every process group that may have members. */
static void engine_signal_groups(struct engine *e, int sig)
{
    for (uint32_t i = 0; i < e->c.n; i++)
        if (e->ranks[i].group > 0)
            (void)kill(-e->ranks[i].group, sig); /* ESRCH: it has exited */
}

static void engine_apply_event(struct engine *e, enum job_event event, int sig)
{
    int out = job_apply(&e->job, event, sig, clock_now_ns());
    if (out)
        engine_signal_groups(e, out);
    if (out && out != SIGKILL)
        engine_signal_groups(e, SIGCONT); /* a stopped process cannot react */
}

void engine_free(struct engine *e)
{
    if (!e)
        return;
    if (e->ranks) {
        engine_signal_groups(e, SIGKILL);
        for (uint32_t i = 0; i < e->c.n; i++) {
            if (e->ranks[i].pid > 0 && e->job.state != JOB_ENDED)
                (void)waitpid(e->ranks[i].pid, NULL, 0);
            if (e->ranks[i].group > 0)
                guard_remove(e->guard, e->ranks[i].group);
        }
    }
    output_release(&e->output);
    mem_free(e->ranks);
    mem_free(e->fds);
    mem_free(e);
}

static int engine_build_environment(const struct engine *e,
                                    uint32_t i,
                                    struct environment *env,
                                    struct err *err)
{
    environment_init(env);
    environment_inherit(env, e->c.env);
    environment_runtime(env, e->c.dir);
    environment_default(env, "PYTHONUNBUFFERED", "1");
    environment_default(env, "HOROVOD_START_TIMEOUT", ENGINE_START_TIMEOUT_S);
    if (e->c.placement && *e->c.placement->threads)
        environment_default(env, "OMP_NUM_THREADS", e->c.placement->threads);
    if (e->c.stats_dir)
        environment_set(env, "HVD_STATS_DIR", e->c.stats_dir);
    int rc = environment_contract(env, &e->c.ranks[i], err);
    for (size_t k = 0; k < e->c.n_vars; k++)
        environment_set(env, e->c.vars[k].name, e->c.vars[k].value);
    return rc;
}

static int engine_start_rank(struct engine *e, uint32_t i, struct err *err)
{
    CLEANUP(environment_release) struct environment env;
    int rc = engine_build_environment(e, i, &env, err);
    if (rc < 0)
        return rc;
    struct spawn s = {.path = e->c.path,
                      .argv = e->c.argv,
                      .envp = env.v,
                      .keeps_stdin = e->c.ranks[i].place.rank == 0 && !isatty(0),
                      .signals = e->signals,
                      .guard = e->guard,
                      .cpus = e->c.placement ? placement_set(e->c.placement, i) : NULL};
    struct child child;
    rc = spawn_child(&s, &child, err);
    if (rc < 0)
        return rc;
    e->ranks[i].pid = e->ranks[i].group = child.pid;
    e->n_running++;
    output_attach(&e->output, i, child.stdout_fd, child.stderr_fd);
    return 0;
}

int engine_start(struct engine *e, int *ret_code, struct err *err)
{
    for (uint32_t i = 0; i < e->c.n; i++) {
        int rc = engine_start_rank(e, i, err);
        if (rc < 0) {
            *ret_code = rc == -ENOENT                     ? 127
                        : rc == -EACCES || rc == -ENOEXEC ? 126
                                                          : 125;
            return rc;
        }
    }
    if (!e->n_running)
        engine_apply_event(e, JOB_ALL_EXITED, 0);
    return 0;
}

static void
engine_rank_exited(struct engine *e, uint32_t i, int status, uint64_t wall_us)
{
    struct rank *r = &e->ranks[i];
    r->pid = 0;
    r->status = status;
    r->ended_wall_us = wall_us;
    r->is_expected = e->job.state != JOB_RUNNING;
    e->n_running--;
    if (kill(-r->group, 0) < 0 && errno == ESRCH) {
        guard_remove(e->guard, r->group);
        r->group = 0; /* the group is empty: its number may be reused */
    }
    output_rank_ended(&e->output, i);
}

static void engine_reap(struct engine *e)
{
    int status;
    pid_t pid;
    uint64_t wall_us = clock_wall_us();
    while ((pid = signals_reap(&status)) > 0) {
        if (e->c.on_reaped)
            e->c.on_reaped(e->c.on_reaped_arg, pid);
        if (pid == e->guard->pid)
            e->guard->pid = 0;
        for (uint32_t i = 0; i < e->c.n; i++)
            if (e->ranks[i].pid == pid) {
                engine_rank_exited(e, i, status, wall_us);
                break;
            }
    }
}

/* Ctrl-Z. The terminal does not signal the ranks, because they have their own process
 * groups. */
static void engine_suspend(struct engine *e)
{
    engine_signal_groups(e, SIGTSTP);
    signals_suspend();
    engine_signal_groups(e, SIGCONT);
}

void engine_signal(struct engine *e, int sig)
{
    if (signals_is_stop(sig)) {
        e->received_signal = e->received_signal ? e->received_signal : sig;
        if (e->job.state == JOB_RUNNING)
            e->pending_signal = sig;
        engine_apply_event(e, JOB_SIGNAL, sig);
    } else {
        /* SIGUSR1, SIGUSR2: only the script knows their meaning */
        engine_signal_groups(e, sig);
    }
}

static void engine_serve_signals(struct engine *e)
{
    bool has_children = false;
    int sig;
    while ((sig = signals_next(e->signals)) > 0) {
        if (sig == SIGCHLD)
            has_children = true;
        else if (sig == SIGTSTP)
            engine_suspend(e);
        else
            engine_signal(e, sig);
    }
    if (has_children)
        engine_reap(e);
}

/* Kills every process that a rank has started. */
static void engine_kill_groups(struct engine *e)
{
    engine_signal_groups(e, SIGKILL);
    for (uint32_t i = 0; i < e->c.n; i++)
        if (e->ranks[i].group > 0) {
            guard_remove(e->guard, e->ranks[i].group);
            e->ranks[i].group = 0;
        }
}

/* Called when no rank runs any more. Without a stop there is no time limit for a slow
 * reader, as for any program in a pipe. */
static void engine_drain(struct engine *e)
{
    uint64_t now_ns = clock_now_ns();
    if (!e->is_draining) {
        e->is_draining = true;
        e->drain_deadline_ns = UINT64_MAX;
        engine_kill_groups(e);
    }
    if (e->job.state != JOB_RUNNING && e->drain_deadline_ns == UINT64_MAX)
        e->drain_deadline_ns = now_ns + FINISH_OUTPUT_NS;
    if (!output_drain(&e->output) && now_ns < e->drain_deadline_ns)
        return;
    output_report_lost(&e->output);
    engine_apply_event(e, JOB_ALL_EXITED, 0);
}

void engine_step(struct engine *e, struct pollfd *fds, nfds_t n, uint64_t deadline_ns)
{
    nfds_t n_all = 0, n_output;
    e->fds[n_all++] = (struct pollfd){.fd = e->signals->fd, .events = POLLIN};
    for (nfds_t i = 0; i < n && i < ENGINE_CALLER_FDS; i++)
        e->fds[n_all++] = fds[i];
    n_output = output_pollfds(&e->output, e->fds + n_all);
    if (e->job.deadline_ns < deadline_ns)
        deadline_ns = e->job.deadline_ns;
    deadline_ns = output_due_ns(&e->output, deadline_ns);
    if (e->is_draining && e->drain_deadline_ns < deadline_ns)
        deadline_ns = e->drain_deadline_ns;
    int ready = poll(e->fds, n_all + n_output, clock_left_ms(deadline_ns));
    if (ready <= 0)
        for (nfds_t i = 0; i < n_all + n_output; i++)
            e->fds[i].revents = 0;
    for (nfds_t i = 0; i < n && i < ENGINE_CALLER_FDS; i++)
        fds[i].revents = e->fds[1 + i].revents;
    output_serve(&e->output, e->fds + n_all, n_output);
    engine_serve_signals(e);
    if (clock_now_ns() >= e->job.deadline_ns)
        engine_apply_event(e, JOB_DEADLINE, 0);
    if (!e->n_running && e->job.state != JOB_ENDED)
        engine_drain(e);
}

static void engine_fill_report(const struct engine *e, uint32_t i, struct report *r)
{
    const struct rank *rank = &e->ranks[i];
    struct strbuf tail;
    memset(r, 0, sizeof(*r));
    r->first_rank = e->c.ranks[i].place.rank;
    r->n_ranks = 1;
    r->f.rank = (int32_t)r->first_rank;
    (void)snprintf(r->f.host, sizeof(r->f.host), "%s", e->c.ranks[i].hostname);
    if (WIFSIGNALED(rank->status))
        r->f.signal = WTERMSIG(rank->status);
    else
        r->f.exit_code = WEXITSTATUS(rank->status);
    r->f.at_wall_us = rank->ended_wall_us;
    strbuf_init(&tail, TAIL_MAX_BYTES - 1);
    tail_render(&e->output.ranks[i].tail, TAIL_MAX_BYTES - 1, &tail);
    (void)snprintf(r->tail, sizeof(r->tail), "%s", strbuf_str(&tail));
    strbuf_release(&tail);
    report_explain(r);
}

bool engine_next(struct engine *e, struct engine_event *ret)
{
    memset(ret, 0, offsetof(struct engine_event, report));
    if (e->pending_signal) {
        ret->kind = ENGINE_SIGNAL;
        ret->signal = e->pending_signal;
        e->pending_signal = 0;
        return true;
    }
    for (uint32_t i = 0; i < e->c.n; i++) {
        struct rank *r = &e->ranks[i];
        if (!r->ended_wall_us || r->is_reported)
            continue;
        r->is_reported = true;
        ret->index = i;
        ret->is_expected = r->is_expected;
        ret->kind = r->status == 0 ? ENGINE_RANK_OK : ENGINE_RANK_FAILED;
        if (r->status != 0)
            engine_fill_report(e, i, &ret->report);
        return true;
    }
    return false;
}

void engine_stop(struct engine *e)
{
    engine_apply_event(e, JOB_STOP, 0);
}

bool engine_has_ended(const struct engine *e)
{
    return e->job.state == JOB_ENDED;
}

uint32_t engine_running(const struct engine *e)
{
    return e->n_running;
}

int engine_forwarded_signal(const struct engine *e)
{
    return e->job.forwarded_signal;
}

int engine_received_signal(const struct engine *e)
{
    return e->received_signal;
}

int engine_search_path(const struct engine_config *c, char *ret, size_t size_bytes)
{
    CLEANUP(environment_release) struct environment env;
    environment_init(&env);
    environment_inherit(&env, c->env);
    environment_runtime(&env, c->dir);
    const char *path = environment_get(&env, "PATH");
    (void)snprintf(ret, size_bytes, "%s", path ? path : "");
    return env.status;
}

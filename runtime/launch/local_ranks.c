/* SPDX-License-Identifier: Apache-2.0 */
/* One loop over one poll(): signals, rank pipes, our own stdout, and the descriptors
 * of the caller.
 *
 *   signalfd -> child exited -> reap -> event (a failure with the last lines) -> caller
 *            |                                            caller -> local_ranks_stop()
 *            '> stop signal  -> job_apply -> forwarded to all process groups
 *   deadline -> job_apply -> SIGKILL
 *   all ranks exited -> output drained (at most 2 s after a stop) -> JOB_ENDED
 *
 * The order of children that exited before the same wake-up is unknown; their
 * reports have the same wall time, and verdict.c decides. A rank's process group is
 * killed at the end of the job, so that no process of a rank survives. Invariants:
 * pid > 0 exactly while a rank runs; group > 0 while its process group may have
 * members. Called by agent.c, local_job.c and remote_agent.c. */
#include "runtime/launch/local_ranks.h"

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
    bool is_stopping;
    uint64_t kill_ns; /* is_stopping: SIGKILL follows */
};

struct local_ranks {
    struct local_ranks_config c;
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

int local_ranks_new(const struct local_ranks_config *c,
                    struct signals *signals,
                    struct guard *guard,
                    struct local_ranks **ret,
                    struct err *err)
{
    struct local_ranks *l = mem_zalloc(sizeof(*l));
    AUTOFREE uint32_t *numbers = mem_calloc(c->n + 1, sizeof(*numbers));
    if (!l || !numbers) {
        mem_free(l);
        return err_set(err, -ENOMEM, "out of memory for %u ranks", c->n);
    }
    l->c = *c;
    l->signals = signals;
    l->guard = guard;
    job_init(&l->job, c->signal_grace_ns);
    l->ranks = mem_calloc(c->n + 1, sizeof(*l->ranks));
    l->fds = mem_calloc((size_t)c->n * 2 + 1 + OUTPUT_FDS + LOCAL_RANKS_CALLER_FDS,
                        sizeof(*l->fds));
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
    int rc = l->ranks && l->fds
                 ? output_init(&l->output, &oc, err)
                 : err_set(err, -ENOMEM, "out of memory for %u ranks", c->n);
    if (rc < 0) {
        local_ranks_free(l);
        return rc;
    }
    *ret = l;
    return 0;
}

/* Sends sig to every process group that may have members. */
static void local_ranks_signal_groups(struct local_ranks *l, int sig)
{
    for (uint32_t i = 0; i < l->c.n; i++)
        if (l->ranks[i].group > 0)
            (void)kill(-l->ranks[i].group, sig); /* ESRCH: it has exited */
}

static void
local_ranks_apply_event(struct local_ranks *l, enum job_event event, int sig)
{
    int out = job_apply(&l->job, event, sig, clock_now_ns());
    if (out)
        local_ranks_signal_groups(l, out);
    if (out && out != SIGKILL)
        local_ranks_signal_groups(l, SIGCONT); /* a stopped process cannot react */
}

void local_ranks_free(struct local_ranks *l)
{
    if (!l)
        return;
    if (l->ranks) {
        local_ranks_signal_groups(l, SIGKILL);
        for (uint32_t i = 0; i < l->c.n; i++) {
            if (l->ranks[i].pid > 0 && l->job.state != JOB_ENDED)
                (void)waitpid(l->ranks[i].pid, NULL, 0);
            if (l->ranks[i].group > 0)
                guard_remove(l->guard, l->ranks[i].group);
        }
    }
    output_release(&l->output);
    mem_free(l->ranks);
    mem_free(l->fds);
    mem_free(l);
}

static int local_ranks_set_tf_config(const struct local_ranks *l,
                                     uint32_t i,
                                     struct environment *env,
                                     struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf text;
    strbuf_init(&text, TF_CONFIG_MAX_BYTES);
    int rc = tf_world_config(l->c.tf, &l->c.ranks[i].place, &text, err);
    if (rc == 0)
        environment_set(env, "TF_CONFIG", strbuf_str(&text));
    return rc;
}

static int local_ranks_build_environment(const struct local_ranks *l,
                                         uint32_t i,
                                         struct environment *env,
                                         struct err *err)
{
    environment_inherit(env, l->c.env);
    environment_runtime(env, l->c.dir);
    environment_default(env, "PYTHONUNBUFFERED", "1");
    if (l->c.placement && *l->c.placement->threads)
        environment_default(env, "OMP_NUM_THREADS", l->c.placement->threads);
    if (l->c.stats_dir)
        environment_set(env, "HVD_STATS_DIR", l->c.stats_dir);
    int rc = environment_contract(env, &l->c.ranks[i], err);
    if (rc == 0 && l->c.tf)
        rc = local_ranks_set_tf_config(l, i, env, err);
    for (size_t k = 0; k < l->c.n_vars; k++)
        environment_set(env, l->c.vars[k].name, l->c.vars[k].value);
    return rc;
}

static int local_ranks_start_rank(struct local_ranks *l, uint32_t i, struct err *err)
{
    CLEANUP(environment_release) struct environment env;
    environment_init(&env);
    int rc = local_ranks_build_environment(l, i, &env, err);
    if (rc < 0)
        return rc;
    struct spawn s = {.path = l->c.path,
                      .argv = l->c.argv,
                      .envp = env.v,
                      .keeps_stdin = l->c.ranks[i].place.rank == 0 && !isatty(0),
                      .signals = l->signals,
                      .guard = l->guard,
                      .cpus = l->c.placement ? placement_set(l->c.placement, i) : NULL};
    struct child child;
    rc = spawn_child(&s, &child, err);
    if (rc < 0)
        return rc;
    l->ranks[i].pid = l->ranks[i].group = child.pid;
    l->n_running++;
    output_attach(&l->output, i, child.stdout_fd, child.stderr_fd);
    return 0;
}

static int start_failure_code(int rc)
{
    return rc == -ENOENT ? 127 : rc == -EACCES || rc == -ENOEXEC ? 126 : 125;
}

int local_ranks_start(struct local_ranks *l, int *ret_code, struct err *err)
{
    for (uint32_t i = 0; i < l->c.n; i++) {
        int rc = local_ranks_start_rank(l, i, err);
        if (rc < 0) {
            *ret_code = start_failure_code(rc);
            return rc;
        }
    }
    if (!l->n_running)
        local_ranks_apply_event(l, JOB_ALL_EXITED, 0);
    return 0;
}

int local_ranks_start_one(struct local_ranks *l,
                          uint32_t i,
                          int *ret_code,
                          struct err *err)
{
    int rc;

    output_detach(&l->output, i);
    l->ranks[i] = (struct rank){0};
    rc = local_ranks_start_rank(l, i, err);
    if (rc < 0)
        *ret_code = start_failure_code(rc);
    return rc;
}

void local_ranks_renumber(struct local_ranks *l, uint32_t first)
{
    for (uint32_t i = 0; i < l->c.n; i++)
        output_set_rank(&l->output, i, first + i);
}

void local_ranks_stop_one(struct local_ranks *l, uint32_t i)
{
    struct rank *r = &l->ranks[i];

    if (r->pid <= 0 || r->is_stopping)
        return;
    r->is_stopping = true;
    r->kill_ns = clock_now_ns() + JOB_STOP_GRACE_MS * NS_PER_MS;
    (void)kill(-r->group, SIGTERM);
    (void)kill(-r->group, SIGCONT);
}

/* Kills the processes of which SIGTERM was not enough. Returns when to come again. */
static uint64_t local_ranks_kill_late(struct local_ranks *l)
{
    uint64_t next_ns = UINT64_MAX;

    for (uint32_t i = 0; i < l->c.n; i++) {
        struct rank *r = &l->ranks[i];

        if (!r->is_stopping || r->pid <= 0 || r->kill_ns == UINT64_MAX)
            continue;
        if (clock_now_ns() >= r->kill_ns) {
            (void)kill(-r->group, SIGKILL);
            r->kill_ns = UINT64_MAX;
        }
        next_ns = earlier_ns(next_ns, r->kill_ns);
    }
    return next_ns;
}

static void
local_ranks_rank_exited(struct local_ranks *l, uint32_t i, int status, uint64_t wall_us)
{
    struct rank *r = &l->ranks[i];
    r->pid = 0;
    r->status = status;
    r->ended_wall_us = wall_us;
    r->is_expected = l->job.state != JOB_RUNNING || r->is_stopping;
    l->n_running--;
    if (l->c.is_elastic) /* its successor needs what its children hold: GPUs, ports */
        (void)kill(-r->group, SIGKILL);
    if (l->c.is_elastic || (kill(-r->group, 0) < 0 && errno == ESRCH)) {
        guard_remove(l->guard, r->group);
        r->group = 0; /* the group is empty: its number may be reused */
    }
    output_rank_ended(&l->output, i);
}

static void local_ranks_reap(struct local_ranks *l)
{
    int status;
    pid_t pid;
    uint64_t wall_us = clock_wall_us();
    while ((pid = signals_reap(&status)) > 0) {
        if (l->c.on_reaped)
            l->c.on_reaped(l->c.on_reaped_arg, pid);
        if (pid == l->guard->pid)
            l->guard->pid = 0;
        for (uint32_t i = 0; i < l->c.n; i++)
            if (l->ranks[i].pid == pid) {
                local_ranks_rank_exited(l, i, status, wall_us);
                break;
            }
    }
}

/* Ctrl-Z. The terminal does not signal the ranks, because they have their own process
 * groups. */
static void local_ranks_suspend(struct local_ranks *l)
{
    local_ranks_signal_groups(l, SIGTSTP);
    signals_suspend();
    local_ranks_signal_groups(l, SIGCONT);
}

void local_ranks_signal(struct local_ranks *l, int sig)
{
    if (signals_is_stop(sig)) {
        if (l->c.on_stop)
            l->c.on_stop(l->c.on_stop_arg);
        l->received_signal = l->received_signal ? l->received_signal : sig;
        if (l->job.state == JOB_RUNNING)
            l->pending_signal = sig;
        local_ranks_apply_event(l, JOB_SIGNAL, sig);
    } else {
        /* SIGUSR1, SIGUSR2: only the script knows their meaning */
        local_ranks_signal_groups(l, sig);
    }
}

static void local_ranks_serve_signals(struct local_ranks *l)
{
    bool has_children = false;
    int sig;
    while ((sig = signals_next(l->signals)) > 0) {
        if (sig == SIGCHLD)
            has_children = true;
        else if (sig == SIGTSTP)
            local_ranks_suspend(l);
        else if (!signals_is_stop(sig) || !l->c.defer_stop
                 || !l->c.defer_stop(l->c.defer_stop_arg, sig))
            local_ranks_signal(l, sig);
    }
    if (has_children)
        local_ranks_reap(l);
}

/* Kills every process that a rank has started. */
static void local_ranks_kill_groups(struct local_ranks *l)
{
    local_ranks_signal_groups(l, SIGKILL);
    for (uint32_t i = 0; i < l->c.n; i++)
        if (l->ranks[i].group > 0) {
            guard_remove(l->guard, l->ranks[i].group);
            l->ranks[i].group = 0;
        }
}

/* Called when no rank runs any more. Without a stop there is no time limit for a slow
 * reader, as for any program in a pipe. */
static void local_ranks_drain(struct local_ranks *l)
{
    uint64_t now_ns = clock_now_ns();
    if (!l->is_draining) {
        l->is_draining = true;
        l->drain_deadline_ns = UINT64_MAX;
        local_ranks_kill_groups(l);
    }
    if (l->job.state != JOB_RUNNING && l->drain_deadline_ns == UINT64_MAX)
        l->drain_deadline_ns = now_ns + FINISH_OUTPUT_NS;
    if (!output_drain(&l->output) && now_ns < l->drain_deadline_ns)
        return;
    output_report_lost(&l->output);
    local_ranks_apply_event(l, JOB_ALL_EXITED, 0);
}

/* No rank runs, and none will be started. */
static bool local_ranks_is_idle(const struct local_ranks *l)
{
    return !l->n_running && l->job.state != JOB_ENDED
           && (!l->c.is_elastic || l->job.state != JOB_RUNNING);
}

void local_ranks_step(struct local_ranks *l,
                      struct pollfd *fds,
                      nfds_t n,
                      uint64_t deadline_ns)
{
    nfds_t n_all = 0, n_output;
    l->fds[n_all++] = (struct pollfd){.fd = l->signals->fd, .events = POLLIN};
    for (nfds_t i = 0; i < n && i < LOCAL_RANKS_CALLER_FDS; i++)
        l->fds[n_all++] = fds[i];
    n_output = output_pollfds(&l->output, l->fds + n_all);
    deadline_ns = earlier_ns(deadline_ns, local_ranks_kill_late(l));
    if (l->job.deadline_ns < deadline_ns)
        deadline_ns = l->job.deadline_ns;
    deadline_ns = output_due_ns(&l->output, deadline_ns);
    if (l->is_draining && l->job.state != JOB_ENDED
        && l->drain_deadline_ns < deadline_ns)
        deadline_ns = l->drain_deadline_ns;
    if (local_ranks_is_idle(l) && !l->is_draining)
        deadline_ns = 0; /* stopped when no rank ran: no event follows */
    int ready = poll(l->fds, n_all + n_output, clock_left_ms(deadline_ns));
    if (ready <= 0)
        for (nfds_t i = 0; i < n_all + n_output; i++)
            l->fds[i].revents = 0;
    for (nfds_t i = 0; i < n && i < LOCAL_RANKS_CALLER_FDS; i++)
        fds[i].revents = l->fds[1 + i].revents;
    output_serve(&l->output, l->fds + n_all, n_output);
    local_ranks_serve_signals(l);
    if (clock_now_ns() >= l->job.deadline_ns)
        local_ranks_apply_event(l, JOB_DEADLINE, 0);
    if (local_ranks_is_idle(l))
        local_ranks_drain(l);
}

static void
local_ranks_fill_report(const struct local_ranks *l, uint32_t i, struct report *r)
{
    const struct rank *rank = &l->ranks[i];
    struct strbuf tail;
    memset(r, 0, sizeof(*r));
    r->first_rank = l->c.ranks[i].place.rank;
    r->n_ranks = 1;
    r->f.rank = (int32_t)r->first_rank;
    (void)snprintf(r->f.host, sizeof(r->f.host), "%s", l->c.ranks[i].hostname);
    if (WIFSIGNALED(rank->status))
        r->f.signal = WTERMSIG(rank->status);
    else
        r->f.exit_code = WEXITSTATUS(rank->status);
    r->f.at_wall_us = rank->ended_wall_us;
    strbuf_init(&tail, TAIL_MAX_BYTES - 1);
    tail_render(&l->output.ranks[i].tail, TAIL_MAX_BYTES - 1, &tail);
    (void)snprintf(r->tail, sizeof(r->tail), "%s", strbuf_str(&tail));
    strbuf_release(&tail);
    report_explain(r);
}

bool local_ranks_next(struct local_ranks *l, struct local_ranks_event *ret)
{
    memset(ret, 0, offsetof(struct local_ranks_event, report));
    if (l->pending_signal) {
        ret->kind = LOCAL_SIGNAL;
        ret->signal = l->pending_signal;
        l->pending_signal = 0;
        return true;
    }
    for (uint32_t i = 0; i < l->c.n; i++) {
        struct rank *r = &l->ranks[i];
        if (!r->ended_wall_us || r->is_reported)
            continue;
        r->is_reported = true;
        ret->index = i;
        ret->is_expected = r->is_expected;
        ret->kind = r->status == 0 ? LOCAL_RANK_OK : LOCAL_RANK_FAILED;
        if (r->status != 0)
            local_ranks_fill_report(l, i, &ret->report);
        return true;
    }
    return false;
}

void local_ranks_stop(struct local_ranks *l)
{
    local_ranks_apply_event(l, JOB_STOP, 0);
}

bool local_ranks_has_ended(const struct local_ranks *l)
{
    return l->job.state == JOB_ENDED;
}

pid_t local_ranks_pid(const struct local_ranks *l, uint32_t index)
{
    return l->ranks[index].pid;
}

uint32_t local_ranks_running(const struct local_ranks *l)
{
    return l->n_running;
}

int local_ranks_forwarded_signal(const struct local_ranks *l)
{
    return l->job.forwarded_signal;
}

int local_ranks_received_signal(const struct local_ranks *l)
{
    return l->received_signal;
}

int local_ranks_search_path(const struct local_ranks_config *c,
                            char *ret,
                            size_t size_bytes)
{
    CLEANUP(environment_release) struct environment env;
    environment_init(&env);
    environment_inherit(&env, c->env);
    environment_runtime(&env, c->dir);
    const char *path = environment_get(&env, "PATH");
    (void)snprintf(ret, size_bytes, "%s", path ? path : "");
    return env.status;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* One thread, which waits for five things:
 *
 *   nodes          ends.c       the first failure
 *   srun           wake_fd      a sentence of the gate, the end of the step
 *   hvd-status     watcher      lines of the live report, once all ranks have met
 *   squeue         update       the comment as it is now
 *   scontrol       update       has written the next one
 *
 *   line = comment_line(facts)  --comment_due_ns-->  squeue  -->  scontrol update
 *
 * Before each update the comment is read again, so a text that the user sets meanwhile
 * stays. hvd-status runs a step of its own beside the ranks; it is started in
 * a step that trains for COMMENT_FIRST_S / 2, never in a short one.
 *
 * srun ends without delay: with nothing to write comment_end returns at once, and it ends
 * the programs when its time is over. Started and ended by srun.c. */
#include "spank_plugin/comment.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/launch/core/verdict.h"
#include "spank_plugin/ends.h"
#include "spank_plugin/program.h"

#define LOOK_NS      NS_PER_S        /* between two looks at the counts */
#define UPDATE_NS    (10 * NS_PER_S) /* for squeue, and for scontrol */
#define RETRY_NS     (2 * NS_PER_S)  /* after one that failed */
#define WATCH_NS     (60 * NS_PER_S) /* before hvd-status is started again */
#define WATCH_AGE_NS (COMMENT_FIRST_S / 2 * NS_PER_S) /* of the step, at first */
#define REAP_NS      (20 * NS_PER_MS) /* it has closed its output and not ended yet */
#define WINDOW_NS    (VERDICT_WINDOW_MS * NS_PER_MS)
#define ERRORS_MAX   3
#define STOP_MS      500u
#define OUTPUT_BYTES 65536u

enum update_state { UPDATE_NONE, UPDATE_READS, UPDATE_WRITES };

struct comment {
    struct comment_config config;
    char squeue[PATH_MAX], scontrol[PATH_MAX], status[PATH_MAX]; /* "": there is none */
    char **env;
    pthread_t thread;
    int wake_fd;
    /* under lock */
    pthread_mutex_t lock;
    comment_count_fn count; /* NULL: none; called with the lock, which keeps it valid */
    void *count_arg;
    bool is_over;
    uint64_t end_ns; /* of is_over: the thread's last moment */
    char sentence[STEP_COMMENT_MAX];
    /* of the thread */
    struct ends ends;
    struct comment_pace pace;
    struct strbuf line; /* the next one */
    uint32_t n_ready, n_joined;
    struct program watcher, update;
    enum update_state state;
    uint64_t watch_ns, update_ns; /* watcher: not before; update: its deadline */
    struct strbuf said, read;     /* what they have written */
    char report[STEP_COMMENT_MAX];
    char writes[STEP_COMMENT_MAX]; /* the line of the update */
    uint64_t retry_ns;
    unsigned n_errors;
};

/* --- the report of hvd-status ------------------------------------------------------ */

static void comment_start_watcher(struct comment *c, uint64_t now_ns)
{
    char word[32], watch[] = "--watch", line[] = "--line";
    char *argv[] = {c->status, watch, line, word, NULL};

    if (!*c->status || c->watcher.pid > 0 || now_ns < c->watch_ns)
        return;
    (void)snprintf(word, sizeof(word), "%u.%u", c->config.job, c->config.step);
    c->watch_ns = now_ns + WATCH_NS;
    strbuf_clear(&c->said);
    (void)program_start(&c->watcher, argv, c->env, NULL); /* without: no progress */
}

/* Keeps its last complete line. */
static void comment_read_watcher(struct comment *c)
{
    int status;
    char *from, *end;

    if (!program_read(&c->watcher, &c->said)
        && program_has_ended(&c->watcher, &status)) {
        c->report[0] = '\0';
        return;
    }
    if (strbuf_status(&c->said))
        strbuf_clear(&c->said);
    if (c->said.n == 0)
        return;
    from = c->said.p;
    while ((end = strchr(from, '\n')) != NULL) {
        *end = '\0';
        (void)snprintf(c->report, sizeof(c->report), "%s", from); /* cut */
        from = end + 1;
    }
    c->said.n -= (size_t)(from - c->said.p);
    memmove(c->said.p, from, c->said.n + 1);
}

/* --- an update ----------------------------------------------------------------------- */

static void comment_end_update(struct comment *c, bool is_written, uint64_t now_ns)
{
    program_stop(&c->update, STOP_MS);
    c->state = UPDATE_NONE;
    if (is_written) {
        memcpy(c->pace.last, c->writes, sizeof(c->pace.last));
        c->pace.last_ns = now_ns;
        c->n_errors = 0;
        return;
    }
    c->n_errors++;
    c->retry_ns = now_ns + RETRY_NS;
}

static void comment_run(struct comment *c,
                        enum update_state state,
                        char *const *argv,
                        uint64_t now_ns)
{
    strbuf_clear(&c->read);
    c->state = state;
    c->update_ns = now_ns + UPDATE_NS;
    /* One that cannot start counts as one that failed. */
    (void)program_start(&c->update, argv, c->env, NULL);
}

static void comment_start_update(struct comment *c, uint64_t now_ns)
{
    char h[] = "-h", all[] = "--states=all", j[] = "-j", o[] = "-o";
    char format[] = STEP_COMMENT_FORMAT, job[16];
    char *argv[] = {c->squeue, h, all, j, job, o, format, NULL};

    (void)snprintf(job, sizeof(job), "%u", c->config.job);
    (void)snprintf(c->writes, sizeof(c->writes), "%s", strbuf_str(&c->line)); /* cut */
    comment_run(c, UPDATE_READS, argv, now_ns);
}

/* squeue has ended. Slurm may have started the plugin for another component of a
 * heterogeneous job than the first one, which has the comment. */
static void comment_write(struct comment *c, uint64_t now_ns)
{
    CLEANUP(strbuf_release) struct strbuf text = {0};
    struct job_record record;
    char update[] = "update", job[64];
    char *argv[] = {c->scontrol, update, job, NULL, NULL};
    int rc =
        c->read.n > 0 ? job_record_read(c->read.p, c->config.job, &record) : -ENOENT;

    if (!rc && job_record_lead(&record) != c->config.job) {
        c->config.job = job_record_lead(&record);
        comment_start_update(c, now_ns);
        return;
    }
    strbuf_init(&text, 2 * STEP_COMMENT_MAX);
    strbuf_puts(&text, "Comment=");
    if (!rc)
        rc = step_comment_put(record.comment, c->config.job, c->config.step, c->writes,
                              &text);
    if (rc == -E2BIG || rc == -EINVAL) { /* the user's own text leaves no room */
        comment_end_update(c, true, now_ns);
        return;
    }
    if (rc) {
        comment_end_update(c, false, now_ns);
        return;
    }
    (void)snprintf(job, sizeof(job), "JobId=%s", record.word);
    argv[3] = text.p;
    comment_run(c, UPDATE_WRITES, argv, now_ns);
}

static void comment_continue_update(struct comment *c, uint64_t now_ns)
{
    int status = -1;

    if (c->state == UPDATE_NONE)
        return;
    if (program_read(&c->update, &c->read) || !program_has_ended(&c->update, &status)) {
        if (now_ns >= c->update_ns)
            comment_end_update(c, false, now_ns);
    } else if (status != 0) {
        comment_end_update(c, false, now_ns);
    } else if (c->state == UPDATE_READS) {
        comment_write(c, now_ns);
    } else {
        comment_end_update(c, true, now_ns);
    }
}

/* --- the thread ----------------------------------------------------------------------- */

/* A task that failed because of another one may be reported before that one. */
static bool comment_knows_first(const struct comment *c, uint64_t now_ns)
{
    return c->ends.has_first
           && (c->ends.is_certain || now_ns >= c->ends.first_ns + WINDOW_NS);
}

/* The line for what is known now; *ret_over: the step is over. Returns the last moment of
 * the thread. */
static uint64_t comment_make_line(struct comment *c, uint64_t now_ns, bool *ret_over)
{
    struct comment_facts f = {.n_tasks = c->config.n_tasks, .report = c->report};
    char sentence[STEP_COMMENT_MAX];
    uint64_t end_ns;

    (void)pthread_mutex_lock(&c->lock); /* a default mutex does not fail */
    if (c->count)
        c->count(c->count_arg, &c->n_ready, &c->n_joined);
    f.is_over = c->is_over;
    end_ns = c->end_ns;
    memcpy(sentence, c->sentence, sizeof(sentence));
    (void)pthread_mutex_unlock(&c->lock);
    f.sentence = sentence;
    f.n_ready = c->n_ready;
    f.n_joined = c->n_joined;
    if (comment_knows_first(c, now_ns) || (c->ends.has_first && f.is_over))
        f.first = &c->ends.first;
    strbuf_clear(&c->line);
    comment_line(c->config.mode, &f, &c->line);
    *ret_over = f.is_over;
    return end_ns;
}

/* When the line may be written. */
static uint64_t comment_line_ns(const struct comment *c)
{
    uint64_t due_ns = comment_due_ns(&c->pace, strbuf_str(&c->line));

    if (c->n_errors >= ERRORS_MAX)
        return UINT64_MAX;
    return due_ns < c->retry_ns ? c->retry_ns : due_ns;
}

/* When there may be something to do, besides what descriptors show. */
static uint64_t
comment_next_ns(const struct comment *c, uint64_t now_ns, uint64_t due_ns)
{
    uint64_t next_ns = ends_next_ns(&c->ends);

    if (c->config.mode == COMMENT_PROGRESS)
        next_ns = earlier_ns(next_ns, now_ns + LOOK_NS);
    if (c->ends.has_first && !comment_knows_first(c, now_ns))
        next_ns = earlier_ns(next_ns, c->ends.first_ns + WINDOW_NS);
    if (c->state == UPDATE_NONE)
        return earlier_ns(next_ns, due_ns);
    return earlier_ns(next_ns, c->update.out_fd < 0 ? now_ns + REAP_NS : c->update_ns);
}

/* Does what is due; *ret_next_ns: when it must be called again. False: the end. */
static bool comment_step(struct comment *c, uint64_t now_ns, uint64_t *ret_next_ns)
{
    bool is_over = false;
    uint64_t end_ns = comment_make_line(c, now_ns, &is_over);
    uint64_t due_ns = comment_line_ns(c);

    if (c->state == UPDATE_NONE && due_ns == UINT64_MAX
        && comment_knows_first(c, now_ns))
        ends_close(&c->ends); /* it is written, or cannot be */
    if (is_over && (now_ns >= end_ns || (c->state == UPDATE_NONE && due_ns > end_ns)))
        return false;
    if (c->state == UPDATE_NONE && due_ns <= now_ns)
        comment_start_update(c, now_ns);
    if (!is_over && c->config.mode == COMMENT_PROGRESS
        && c->n_joined >= c->config.n_tasks
        && now_ns >= c->pace.start_ns + WATCH_AGE_NS)
        comment_start_watcher(c, now_ns);
    *ret_next_ns = comment_next_ns(c, now_ns, due_ns);
    if (is_over)
        *ret_next_ns = earlier_ns(*ret_next_ns, end_ns);
    return true;
}

static void *comment_main(void *arg)
{
    struct comment *c = arg;
    uint64_t next_ns = 0;

    do {
        struct pollfd p[] = {{.fd = c->wake_fd, .events = POLLIN},
                             {.fd = ends_fd(&c->ends), .events = POLLIN},
                             {.fd = c->watcher.out_fd, .events = POLLIN},
                             {.fd = c->update.out_fd, .events = POLLIN}};
        uint64_t count;

        (void)poll(p, ARRAY_LEN(p), clock_left_ms(next_ns));
        if (p[0].revents && read(c->wake_fd, &count, sizeof(count)) < 0) {
            /* EAGAIN: it was read before */
        }
        ends_serve(&c->ends);
        comment_read_watcher(c);
        comment_continue_update(c, clock_now_ns());
    } while (comment_step(c, clock_now_ns(), &next_ns));
    program_stop(&c->update, STOP_MS);
    program_stop(&c->watcher, STOP_MS);
    return NULL;
}

/* --- srun ----------------------------------------------------------------------------- */

/* squeue and scontrol are beside srun; hvd-status is part of the runtime, or in PATH. */
static void comment_find_programs(struct comment *c)
{
    const char *path = getenv("PATH");
    char dir[PATH_MAX - 16];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
    char *slash;

    dir[n > 0 ? n : 0] = '\0';
    slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    if (c->config.slurm_dir)
        (void)snprintf(dir, sizeof(dir), "%s", c->config.slurm_dir);
    (void)snprintf(c->squeue, sizeof(c->squeue), "%s/squeue", dir);
    (void)snprintf(c->scontrol, sizeof(c->scontrol), "%s/scontrol", dir);
    (void)snprintf(c->status, sizeof(c->status), "%s/bin/hvd-status", c->config.dir);
    while (access(c->status, X_OK) != 0) {
        size_t k = path ? strcspn(path, ":") : 0;

        c->status[0] = '\0';
        if (k == 0)
            return;
        (void)snprintf(c->status, sizeof(c->status), "%.*s/hvd-status",
                       (int)(k < PATH_MAX - 16 ? k : 0), path);
        path = path[k] ? path + k + 1 : NULL;
    }
}

static void comment_free(struct comment *c)
{
    if (!c)
        return;
    ends_close(&c->ends);
    fd_close(&c->wake_fd);
    (void)pthread_mutex_destroy(&c->lock); /* not held any more */
    strbuf_release(&c->line);
    strbuf_release(&c->said);
    strbuf_release(&c->read);
    mem_free(c->env);
    mem_free(c);
}

int comment_start(int *listen_fd,
                  const struct comment_config *config,
                  struct comment **ret,
                  struct err *err)
{
    struct comment *c = mem_zalloc(sizeof(*c));
    int rc;

    if (!c)
        return err_set(err, -ENOMEM, "out of memory");
    c->config = *config;
    c->ends.listen_fd = c->watcher.out_fd = c->update.out_fd = -1;
    c->pace.start_ns = config->start_ns;
    strbuf_init(&c->line, 2 * STEP_COMMENT_MAX);
    strbuf_init(&c->said, OUTPUT_BYTES);
    strbuf_init(&c->read, OUTPUT_BYTES);
    (void)pthread_mutex_init(&c->lock,
                             NULL); /* a default mutex: cannot fail on Linux */
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->env = program_environment(environ);
    comment_find_programs(c);
    rc = c->wake_fd < 0 ? err_errno(err, errno, "eventfd") : 0;
    if (!rc && !c->env)
        rc = err_set(err, -ENOMEM, "out of memory");
    if (!rc)
        rc = ends_open(&c->ends, listen_fd, config->token, config->job_id, err);
    if (!rc) {
        rc = -thread_start(&c->thread, comment_main, c);
        if (rc)
            (void)err_errno(err, -rc, "cannot start a thread for the job's comment");
    }
    if (rc) {
        comment_free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

static void comment_wake(struct comment *c)
{
    uint64_t one = 1;

    if (write(c->wake_fd, &one, sizeof(one)) < 0) {
        /* only EAGAIN, at 2^64 - 2 unread wake-ups: the thread is awake */
    }
}

void comment_take_sentence(struct comment *c, const char *sentence)
{
    (void)pthread_mutex_lock(&c->lock);
    if (!c->sentence[0])
        (void)snprintf(c->sentence, sizeof(c->sentence), "%s", sentence); /* cut */
    (void)pthread_mutex_unlock(&c->lock);
    comment_wake(c);
}

void comment_count_by(struct comment *c, comment_count_fn count, void *arg)
{
    (void)pthread_mutex_lock(&c->lock);
    c->count = count;
    c->count_arg = arg;
    (void)pthread_mutex_unlock(&c->lock);
}

void comment_end(struct comment *c)
{
    if (!c)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->is_over = true;
    c->count = NULL;
    c->end_ns = clock_now_ns() + COMMENT_END_S * NS_PER_S;
    (void)pthread_mutex_unlock(&c->lock);
    comment_wake(c);
    (void)pthread_join(c->thread, NULL);
    comment_free(c);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Looks once a second which tasks the step has on this node (contract/step_pages.h), and
 * sends what the agents of other launchers send (live_host.c). A node has one folder of
 * the step, or several where components of a heterogeneous step share it.
 *
 *   standard input   "E NUMBER\n"  examine the ranks
 *                    "\n"          the reader is alive
 *
 * Called by agent_main.c. */
#include "runtime/launch/step_node.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/step_pages.h"
#include "runtime/launch/core/step_line.h"
#include "runtime/launch/live_host.h"
#include "runtime/launch/process.h"

#define STEP_DIRS_MAX 16
/* The reader samples at most every LIVE_EVERY_S seconds: the second record must not come
 * just before. */
#define LATER_NS      (NS_PER_S / 2)
#define LOOK_NS       NS_PER_S
#define WRITE_NS      (30 * NS_PER_S)
#define SILENCE_NS    (60 * NS_PER_S) /* of the reader */
#define TASKS_MAX     65536u

struct step_task {
    uint32_t rank, size;
    int32_t pid;
    uint64_t start_wall_us;
    char stats_dir[CONTRACT_PATH_MAX];
};

struct step_dir {
    char path[300];
    char stats_dir[CONTRACT_PATH_MAX];
    uint32_t n, size;
    uint64_t start_wall_us;  /* of the first task */
    struct contract *ranks;  /* [n] by rank */
    pid_t *pids, *first_pid; /* [n]: now, 0: it has exited; as in the files */
    struct live_host live;
    bool is_new; /* its first records have not been sent */
};

struct step_node {
    char prefix[64]; /* of the names of its folders */
    struct step_dir dirs[STEP_DIRS_MAX];
    size_t n_dirs;
    char in[64];
    size_t n_in;
    bool is_broken; /* the output */
};

static void step_dir_release(struct step_dir *d)
{
    live_host_end(&d->live);
    mem_free(d->ranks);
    mem_free(d->pids);
    mem_free(d->first_pid);
    *d = (struct step_dir){.n = 0};
}

/* --- output ----------------------------------------------------------------------- */

static void step_node_print(struct step_node *s,
                            enum step_kind kind,
                            uint32_t number,
                            const struct strbuf *b)
{
    CLEANUP(strbuf_release) struct strbuf lines = {0};

    strbuf_init(&lines, 4u * STEP_PART_MAX);
    step_line_put(kind, number, strbuf_str(b), b->n, &lines);
    if (!s->is_broken
        && fd_write_full(1, strbuf_str(&lines), lines.n, clock_now_ns() + WRITE_NS) < 0)
        s->is_broken = true;
}

static void
step_node_send(void *arg, enum live_part part, uint32_t number, const struct strbuf *b)
{
    switch (part) {
    case LIVE_PART_RECORD:
        step_node_print(arg, STEP_RECORD, number, b);
        break;
    case LIVE_PART_STALL:
        step_node_print(arg, STEP_STALL, number, b);
        break;
    case LIVE_PART_FINDING:
        step_node_print(arg, STEP_FINDING, number, b);
        break;
    }
}

static void step_node_put_host(struct step_hello *h)
{
    const char *name = getenv("SLURMD_NODENAME");

    if (name && *name)
        (void)snprintf(h->host, sizeof(h->host), "%s", name);
    else if (gethostname(h->host, sizeof(h->host) - 1) != 0 || !*h->host)
        (void)snprintf(h->host, sizeof(h->host), "unknown");
}

static void step_node_hello(struct step_node *s)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct step_hello h = {.first = UINT32_MAX};
    uint64_t now_us = clock_wall_us(), start_us = now_us;

    for (size_t i = 0; i < s->n_dirs; i++) {
        const struct step_dir *d = &s->dirs[i];

        if (d->n == 0)
            continue;
        h.n_ranks += d->n;
        h.size = d->size;
        if (d->ranks[0].place.rank < h.first)
            h.first = d->ranks[0].place.rank;
        if (d->ranks[d->n - 1].place.rank > h.last)
            h.last = d->ranks[d->n - 1].place.rank;
        start_us = earlier_ns(start_us, d->start_wall_us);
    }
    if (h.n_ranks == 0)
        h.first = 0;
    h.run_ms = (now_us - start_us) / 1000;
    step_node_put_host(&h);
    strbuf_init(&b, 1024);
    step_hello_put(&h, &b);
    step_node_print(s, STEP_HELLO, 0, &b);
}

/* --- tasks ------------------------------------------------------------------------ */

/* False: not a file of a task, or not yet complete. */
static bool step_task_read(int dir_fd, const char *name, struct step_task *ret)
{
    char text[CONTRACT_PATH_MAX + 32];
    struct stat st;
    size_t prefix = strlen(STEP_TASK_PREFIX);

    if (strncmp(name, STEP_TASK_PREFIX, prefix) != 0
        || parse_u32("rank", name + prefix, 0, WORLD_MAX_RANKS - 1, &ret->rank, NULL)
               < 0)
        return false;
    CLEANUP(fd_close)
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n <= 0 || text[n - 1] != '\n' || fstat(fd, &st) != 0)
        return false;
    text[n - 1] = '\0';
    _Static_assert(sizeof(ret->stats_dir) == 1024, "the width below");
    if (sscanf(text, "%d %u %1023[^\n]", &ret->pid, &ret->size, ret->stats_dir) != 3
        || ret->pid <= 0 || ret->size > WORLD_MAX_RANKS || ret->rank >= ret->size)
        return false;
    ret->start_wall_us =
        (uint64_t)st.st_mtim.tv_sec * 1000000u + (uint64_t)st.st_mtim.tv_nsec / 1000u;
    return true;
}

static int step_task_compare(const void *a, const void *b)
{
    const struct step_task *x = a, *y = b;

    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* The tasks of a folder of this user, by rank. */
static struct step_task *step_tasks_read(const char *path, size_t *ret_n)
{
    AUTOFREE void *v = NULL;
    size_t n = 0, cap = 0;
    const struct dirent *entry;
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d =
        fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() ? fdopendir(fd) : NULL;

    *ret_n = 0;
    if (!d) {
        fd_close(&fd);
        return NULL;
    }
    while ((entry = readdir(d)) != NULL) {
        struct step_task t;

        if (step_task_read(fd, entry->d_name, &t)
            && mem_grow(&v, n, &cap, sizeof(t), TASKS_MAX) == 0)
            ((struct step_task *)v)[n++] = t;
    }
    (void)closedir(d);
    if (n > 0)
        qsort(v, n, sizeof(struct step_task), step_task_compare);
    *ret_n = n;
    return TAKE(v);
}

static void step_dir_begin(struct step_node *s,
                           struct step_dir *d,
                           const struct step_task *tasks,
                           size_t n)
{
    struct live_host_config c = {.dir = d->stats_dir, .send = step_node_send, .arg = s};

    mem_free(d->ranks);
    mem_free(d->pids);
    mem_free(d->first_pid);
    d->n = 0;
    d->ranks = mem_calloc(n, sizeof(*d->ranks));
    d->pids = mem_calloc(n, sizeof(*d->pids));
    d->first_pid = mem_calloc(n, sizeof(*d->first_pid));
    if (!d->ranks || !d->pids || !d->first_pid)
        return;
    d->n = (uint32_t)n;
    d->size = tasks[0].size;
    d->start_wall_us = UINT64_MAX;
    (void)snprintf(d->stats_dir, sizeof(d->stats_dir), "%s", tasks[0].stats_dir);
    for (size_t i = 0; i < n; i++) {
        contract_init(&d->ranks[i]);
        d->ranks[i].place.rank = tasks[i].rank;
        d->pids[i] = d->first_pid[i] = tasks[i].pid;
        d->start_wall_us = earlier_ns(d->start_wall_us, tasks[i].start_wall_us);
    }
    c.ranks = d->ranks;
    c.pids = d->pids;
    c.n = d->n;
    live_host_begin(&d->live, &c);
    d->is_new = true;
}

static struct step_dir *step_node_find(struct step_node *s, const char *path)
{
    for (size_t i = 0; i < s->n_dirs; i++)
        if (strcmp(s->dirs[i].path, path) == 0)
            return &s->dirs[i];
    if (s->n_dirs == STEP_DIRS_MAX)
        return NULL;
    (void)snprintf(s->dirs[s->n_dirs].path, sizeof(s->dirs[0].path), "%s", path);
    return &s->dirs[s->n_dirs++];
}

static void step_dir_check_processes(struct step_dir *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        struct proc_stat p;

        if (d->pids[i] > 0
            && (!process_read_stat((uint32_t)d->pids[i], &p) || p.state == 'Z'))
            d->pids[i] = 0;
    }
}

/* True: it has other tasks than before. */
static bool step_dir_look(struct step_node *s, struct step_dir *d)
{
    size_t n;
    AUTOFREE struct step_task *tasks = step_tasks_read(d->path, &n);
    bool is_new = n != d->n;

    for (size_t i = 0; !is_new && i < n; i++)
        is_new =
            tasks[i].rank != d->ranks[i].place.rank || tasks[i].pid != d->first_pid[i];
    if (n == 0 && is_new) { /* it was removed: slot and name stay */
        char path[sizeof(d->path)];

        memcpy(path, d->path, sizeof(path));
        step_dir_release(d);
        memcpy(d->path, path, sizeof(path));
    } else if (is_new) {
        step_dir_begin(s, d, tasks, n);
    }
    step_dir_check_processes(d);
    return is_new;
}

/* True: the ranks of this node have changed. */
static bool step_node_look(struct step_node *s)
{
    DIR *parent = opendir(STEP_PAGES_PARENT);
    const struct dirent *entry;
    bool has_changed = false;

    while (parent && (entry = readdir(parent)) != NULL) {
        char path[sizeof(s->dirs[0].path)];

        if (strncmp(entry->d_name, s->prefix, strlen(s->prefix)) != 0)
            continue;
        (void)snprintf(path, sizeof(path), STEP_PAGES_PARENT "/%s", entry->d_name);
        (void)step_node_find(s, path);
    }
    if (parent)
        (void)closedir(parent);
    for (size_t i = 0; i < s->n_dirs; i++)
        if (step_dir_look(s, &s->dirs[i]))
            has_changed = true;
    return has_changed;
}

/* --- input ------------------------------------------------------------------------ */

static void step_node_take_line(struct step_node *s, const char *line)
{
    uint32_t number;

    if (strncmp(line, "E ", 2) != 0
        || parse_u32("examination", line + 2, 0, UINT32_MAX, &number, NULL) < 0)
        return;
    for (size_t i = 0; i < s->n_dirs; i++)
        if (s->dirs[i].n > 0)
            live_host_examine(&s->dirs[i].live, number);
}

/* False: the reader has gone. */
static bool step_node_read(struct step_node *s)
{
    ssize_t n = read(0, s->in + s->n_in, sizeof(s->in) - 1 - s->n_in);
    char *end;

    if (n <= 0)
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    s->n_in += (size_t)n;
    s->in[s->n_in] = '\0';
    while ((end = strchr(s->in, '\n')) != NULL) {
        *end = '\0';
        step_node_take_line(s, s->in);
        s->n_in -= (size_t)(end + 1 - s->in);
        memmove(s->in, end + 1, s->n_in + 1);
    }
    if (s->n_in == sizeof(s->in) - 1)
        s->n_in = 0;
    return true;
}

static void step_dir_tick(struct step_dir *d, uint64_t *ret_next_ns)
{
    live_host_tick(&d->live, NULL, ret_next_ns);
    if (d->is_new)
        d->live.records_ns += LATER_NS;
    d->is_new = false;
}

static void step_node_run(struct step_node *s)
{
    uint64_t look_ns = 0, heard_ns = clock_now_ns(), next_ns = 0;
    bool is_first = true;

    while (!s->is_broken && clock_now_ns() < heard_ns + SILENCE_NS) {
        struct pollfd fd = {.fd = 0, .events = POLLIN};

        (void)poll(&fd, 1, clock_left_ms(next_ns));
        if (fd.revents && !step_node_read(s))
            return;
        if (fd.revents)
            heard_ns = clock_now_ns();
        if (clock_now_ns() >= look_ns) {
            if (step_node_look(s) || is_first)
                step_node_hello(s);
            is_first = false;
            look_ns = clock_now_ns() + LOOK_NS;
        }
        next_ns = look_ns;
        for (size_t i = 0; i < s->n_dirs; i++)
            if (s->dirs[i].n > 0)
                step_dir_tick(&s->dirs[i], &next_ns);
    }
}

int agent_step(char *const *argv)
{
    AUTOFREE struct step_node *s = mem_zalloc(sizeof(*s));
    unsigned job, step;
    int end = 0;

    if (!argv[0] || argv[1] || sscanf(argv[0], "%u.%u%n", &job, &step, &end) != 2
        || argv[0][end]) {
        fprintf(stderr, "hvd-agent: step takes JOB.STEP (hvd-status starts it)\n");
        return 2;
    }
    if (!s) {
        fprintf(stderr, "hvd-agent: step: out of memory\n");
        return 1;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    (void)snprintf(s->prefix, sizeof(s->prefix), STEP_PAGES_PREFIX "%u.%u.", job, step);
    step_node_run(s);
    for (size_t i = 0; i < s->n_dirs; i++)
        step_dir_release(&s->dirs[i]);
    return s->is_broken;
}

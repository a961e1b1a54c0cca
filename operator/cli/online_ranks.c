/* SPDX-License-Identifier: Apache-2.0 */
/* top, stacks, logs, timeline: what only the pods know. top and stacks ask worker 0's agent,
 * or the launcher of an elastic job, by kubectl exec; nothing else has its address and
 * token. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "operator/cli/online.h"
#include "operator/core/inject.h"
#include "operator/core/labels.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define TOP_EVERY_MS   5000
#define LINE_MAX_BYTES (1u << 20)

/* kubectl exec; the caller adds the command. */
static struct kubectl *
exec_in(struct cli *c, const struct job_view *v, const char *pod, const char *container)
{
    const char *const words[] = {"exec", pod, "-c", container, NULL};
    struct kubectl *k = kubectl_new(c, v->ns, words);

    kubectl_add(k, "--");
    return k;
}

static const char *asked_name(const struct job_view *v)
{
    return v->is_elastic ? "the launcher" : "worker 0";
}

static struct kubectl *
ask_agent(struct cli *c, const struct job_view *v, const char *const *words)
{
    const char *container;
    char pod[128];
    struct kubectl *k;

    if (online_agent(v, pod, &container) != 0)
        return NULL;
    k = exec_in(c, v, arena_strdup(&c->arena, pod), container);
    kubectl_add(k, AGENT_COMMAND);
    kubectl_add(k, "report");
    for (; *words; words++)
        kubectl_add(k, *words);
    return k;
}

/* --- top ------------------------------------------------------------------------- */

static int top_draw(struct cli *c, const struct job_view *v)
{
    static const char *const words[] = {"--json", "--ranks", NULL};
    struct build b = {.arena = &c->arena};
    struct show s = online_show(c);
    const struct kubectl *k = ask_agent(c, v, words);
    const struct node *ranks = NULL;
    struct err err = ERR_INIT;
    struct show_table t;
    struct node *tree;

    if (!k)
        return 1;
    if (kubectl_json(c, k, asked_name(v), &ranks, &err) < 0)
        return online_fail(v, err.text);
    tree = top_tree(&b, v, ranks);
    if (!cli_wants_table(c))
        return online_tree(c, &b, tree, "table, wide, json, yaml or jsonpath=");
    table_init(&t, &c->arena);
    top_table(&t, tree, s.is_wide);
    table_write(&t, s.has_headers, s.has_colour, &c->out);
    return tree ? 0 : cli_fail("out of memory");
}

int online_top(struct cli *c)
{
    struct job_view v;
    int rc;

    for (;;) {
        if (online_job(c, c->args.word[0], &v) != 0)
            return 1;
        if (cli_has(&c->args, CLI_OPT_WATCH))
            watch_clear(c);
        rc = top_draw(c, &v);
        if (!cli_has(&c->args, CLI_OPT_WATCH) || rc != 0 || v.is_final)
            return rc;
        if (cli_print(c) != 0)
            return 1;
        arena_release(&c->arena);
        (void)poll(NULL, 0, TOP_EVERY_MS);
    }
}

int online_stacks(struct cli *c)
{
    const char *const words[] = {
        cli_has(&c->args, CLI_OPT_EXAMINE) ? "--examine" : "--stacks", NULL};
    CLEANUP(strbuf_release) struct strbuf out = {0};
    struct err err = ERR_INIT;
    const struct kubectl *k;
    struct job_view v;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    k = ask_agent(c, &v, words);
    if (!k)
        return 1;
    strbuf_init(&out, CLI_MAX_BYTES);
    if (kubectl_read(k, &out, asked_name(&v), &err) < 0)
        return online_fail(&v, err.text);
    if (out.n == 0)
        cli_note(
            "no examination yet: one is made when a collective stalls; --examine makes "
            "one now");
    text_put_safe(&c->out, strbuf_str(&out), out.n, true);
    return 0;
}

/* --- logs ------------------------------------------------------------------------ */

struct log_reader {
    struct cli *c;
    int64_t rank; /* -1: all */
    struct strbuf line;
};

static void log_line(struct log_reader *r)
{
    const char *p = strbuf_str(&r->line);
    size_t n = r->line.n, at = 0;
    int64_t rank = r->rank < 0 ? -1 : log_line_rank(p, n, &at);

    if (rank == r->rank) {
        if (r->c->is_terminal)
            text_put_safe(&r->c->out, p + at, n - at, true);
        else
            strbuf_add(&r->c->out, p + at, n - at);
        strbuf_putc(&r->c->out, '\n');
    }
    strbuf_clear(&r->line);
}

static int log_copy(struct log_reader *r, int fd)
{
    char part[65536];
    ssize_t n;
    int rc = 0;

    while (rc == 0
           && ((n = read(fd, part, sizeof(part))) > 0 || (n < 0 && errno == EINTR))) {
        for (ssize_t i = 0; i < n; i++) {
            bool is_end = part[i] == '\n' || (part[i] == '\r' && r->c->is_terminal);

            if (is_end || r->line.n >= LINE_MAX_BYTES)
                log_line(r);
            if (!is_end)
                strbuf_putc(&r->line, part[i]);
        }
        rc = cli_print(r->c);
    }
    if (rc == 0 && r->line.n > 0)
        log_line(r);
    return rc;
}

/* Runs kubectl logs and passes its lines on. */
static int logs_run(struct cli *c, const struct kubectl *k, int64_t rank)
{
    struct log_reader r = {.c = c, .rank = rank};
    struct err err = ERR_INIT;
    int fd = -1, rc, status;
    pid_t pid = 0;

    if (kubectl_spawn(k, false, &fd, &pid, &err) < 0)
        return cli_fail(err.text);
    strbuf_init(&r.line, LINE_MAX_BYTES + 1);
    rc = log_copy(&r, fd);
    fd_close(&fd);
    strbuf_release(&r.line);
    if (rc != 0)
        (void)kill(pid, SIGTERM);
    status = kubectl_wait(pid);
    return rc ? rc : status == 127 ? cli_fail("kubectl is not in PATH") : status;
}

static void logs_options(struct cli *c, struct kubectl *k, bool is_all)
{
    const char *const *value = c->args.value;

    if (cli_has(&c->args, CLI_OPT_FOLLOW))
        kubectl_add(k, "--follow");
    if (cli_has(&c->args, CLI_OPT_PREVIOUS))
        kubectl_add(k, "--previous");
    if (value[CLI_OPT_SINCE]) {
        kubectl_add(k, "--since");
        kubectl_add(k, value[CLI_OPT_SINCE]);
    }
    if (value[CLI_OPT_TAIL] || is_all) { /* kubectl's default for a selector is 10 */
        kubectl_add(k, "--tail");
        kubectl_add(k, value[CLI_OPT_TAIL] ? value[CLI_OPT_TAIL] : "-1");
    }
}

/* Of a job with a launcher: the launcher's pod, or the pods of an MPIJob's launcher. */
static struct kubectl *
logs_of_launcher(struct cli *c, const struct job_view *v, const char *container)
{
    const char *role = v->kind == KUBE_MPIJOB ? MPI_LABEL_JOB_ROLE : LABEL_JOB_ROLE;
    const char *selector =
        arena_printf(&c->arena, "%s,%s=launcher", job_pod_selector(&c->arena, v), role);
    const char *const words[] = {"logs",
                                 "-l",
                                 selector ? selector : "",
                                 "-c",
                                 container ? container : "launcher",
                                 NULL};

    return kubectl_new(c, v->ns, words);
}

static struct kubectl *
logs_of_worker(struct cli *c, const struct job_view *v, const struct log_place *place)
{
    const char *pod = arena_printf(&c->arena, "%s-worker-%u", v->name, place->index);
    const char *const words[] = {"logs", pod, "-c", place->container, NULL};

    return pod && place->container ? kubectl_new(c, v->ns, words) : NULL;
}

static struct kubectl *
logs_of_workers(struct cli *c, const struct job_view *v, const char *container)
{
    const char *most =
        arena_printf(&c->arena, "--max-log-requests=%u", v->n_workers + 8);
    const char *const words[] = {"logs",
                                 "-l",
                                 job_pod_selector(&c->arena, v),
                                 most ? most : "--max-log-requests=1000",
                                 "-c",
                                 container ? container : "train",
                                 NULL};

    return kubectl_new(c, v->ns, words);
}

int online_logs(struct cli *c)
{
    const char *value = c->args.value[CLI_OPT_RANK];
    struct log_place place;
    struct err err = ERR_INIT;
    struct kubectl *k;
    struct job_view v;
    uint32_t rank = 0;
    int rc;

    if (value && parse_u32("--rank", value, 0, 1u << 20, &rank, &err) < 0)
        return cli_fail(err.text);
    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    rc = log_place_find(&v, value ? (int64_t)rank : -1, &place, &err);
    if (rc == -ENOTSUP)
        return online_fail(
            &v, "has no ranks (framework tensorflow); kubectl logs shows a pod");
    if (rc < 0) {
        (void)err_prefix(&err, "--rank");
        return cli_fail(err.text);
    }
    if (v.has_launcher)
        k = logs_of_launcher(c, &v, place.container);
    else if (value)
        k = logs_of_worker(c, &v, &place);
    else
        k = logs_of_workers(c, &v, place.container);
    if (!k)
        return 1;
    logs_options(c, k, v.has_launcher || !value);
    return logs_run(c, k, value ? (int64_t)rank : -1);
}

/* --- timeline -------------------------------------------------------------------- */

/* The value of a variable of the pod's first container; NULL: it is not set. */
static const char *pod_env(const struct node *pod, const char *name)
{
    const struct node *env =
        node_get(node_item(node_at(pod, "spec.containers"), 0), "env");

    return node_str(node_with(env, "name", name), "value");
}

/* The file of HOROVOD_TIMELINE in worker 0; NULL: printed why there is none. */
static const char *timeline_path(const struct job_view *v, const struct node *pod)
{
    const char *path = pod_env(pod, "HOROVOD_TIMELINE");

    if (path && *path && strcmp(path, "DYNAMIC") != 0)
        return path;
    (void)online_fail(
        v, path ? "its timeline is DYNAMIC: the program chooses the file"
                : "records no timeline; set HOROVOD_TIMELINE to a file in its "
                  "environment (HVD_TIMELINE_ALL=1 for all ranks)");
    return NULL;
}

/* Rank 0 collects and writes the timeline of all ranks, on its own clock, if that is on:
 * no other pod has a file that could be merged here. */
static void timeline_note_ranks(const struct job_view *v, const struct node *pod)
{
    const char *all = pod_env(pod, "HVD_TIMELINE_ALL");
    bool has_all = false;

    if (all)
        (void)parse_bool("HVD_TIMELINE_ALL", all, &has_all, NULL);
    if (!has_all && (uint64_t)v->n_workers * v->slots > 1)
        cli_note("the timeline shows rank 0 only; set HVD_TIMELINE_ALL=1 in the job's "
                 "environment for all ranks");
}

static int timeline_copy(struct cli *c,
                         const struct job_view *v,
                         const char *pod,
                         const char *container,
                         const char *path)
{
    const char *to = c->args.value[CLI_OPT_OUTPUT];
    struct kubectl *k = exec_in(c, v, pod, container);
    char name[300];
    int fd, rc;

    kubectl_add(k, "cat");
    kubectl_add(k, path);
    (void)snprintf(name, sizeof(name), "%.200s-timeline.json", v->name);
    to = to ? to : name;
    if (strcmp(to, "-") == 0)
        return kubectl_copy(k, STDOUT_FILENO);
    fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        (void)snprintf(name, sizeof(name), "%.200s: %s", to, strerror(errno));
        return cli_fail(name);
    }
    rc = kubectl_copy(k, fd);
    if (close(fd) != 0)
        rc = cli_fail("the timeline cannot be written");
    if (rc == 0) {
        strbuf_puts(&c->out, "timeline written to ");
        text_put_safe(&c->out, to, strlen(to), false);
        strbuf_puts(&c->out, "; open it with chrome://tracing or ui.perfetto.dev\n");
    }
    return rc;
}

int online_timeline(struct cli *c)
{
    const struct node *pod = NULL;
    const char *container, *path, *name;
    struct err err = ERR_INIT;
    struct job_view v;
    char text[128];
    int rc;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (v.is_elastic)
        return online_fail(
            &v, "rank 0, which has the timeline, may be in any pod of an elastic job");
    if (online_agent(&v, text, &container) != 0)
        return 1;
    name = arena_strdup(&c->arena, text);
    if (!name)
        return cli_fail("out of memory");
    if (kubectl_json(
            c,
            kubectl_new(c, v.ns,
                        (const char *const[]){"get", "pod", name, "-o", "json", NULL}),
            "worker 0", &pod, &err)
        < 0)
        return online_fail(&v, err.text);
    path = timeline_path(&v, pod);
    rc = path ? timeline_copy(c, &v, name, container, path) : 1;
    if (rc == 0)
        timeline_note_ranks(&v, pod);
    return rc;
}

/* --- completion ------------------------------------------------------------------ */

/* Names of jobs that start with the last word. */
static void complete_jobs(struct cli *c, const char *start)
{
    static const char *const words[] = {"get", "horovodjobs.v1beta1.ringmaster.dev",
                                        "-o", "name", NULL};
    CLEANUP(strbuf_release) struct strbuf out;
    struct kubectl *k = kubectl_new(c, NULL, words);

    strbuf_init(&out, CLI_MAX_BYTES);
    kubectl_add(k, "--request-timeout=3s");
    if (kubectl_read(k, &out, NULL, NULL) < 0)
        return;
    for (const char *p = strbuf_str(&out); *p;) {
        size_t n = strcspn(p, "\n");
        const char *name = memchr(p, '/', n);
        size_t len = name ? (size_t)(p + n - name - 1) : 0;

        if (len > 0 && len >= strlen(start)
            && strncmp(name + 1, start, strlen(start)) == 0)
            strbuf_printf(&c->out, "%.*s\n", (int)len, name + 1);
        p += n + (p[n] == '\n');
    }
}

/* For kubectl's completion: one word in each line, then cobra's directive: 4, no files. */
int online_complete(struct cli *c)
{
    const char *const *word = c->args.word;
    size_t n = c->args.n_words;

    for (size_t i = 0; i + 1 < n; i++) {
        if (strcmp(word[i], "-n") == 0 || strcmp(word[i], "--namespace") == 0)
            c->args.value[CLI_OPT_NAMESPACE] = word[i + 1];
    }
    if (cli_complete(word, n, &c->out))
        complete_jobs(c, n ? word[n - 1] : "");
    else if (c->out.n == 0)
        strbuf_puts(&c->out, ":0\n");
    if (strbuf_str(&c->out)[0] != ':')
        strbuf_puts(&c->out, ":4\n");
    return 0;
}

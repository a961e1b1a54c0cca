/* SPDX-License-Identifier: Apache-2.0 */
/* validate, render, convert: files in, text out, no cluster. The decisions are in
 * core/job_*.c; here files are read and notes get their file and line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "operator/cli/cli.h"
#include "operator/cli/core/job_file.h"
#include "operator/cli/core/show_text.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

#define FILE_MAX (64u << 20)

struct offline {
    struct cli *cli;
    struct build b;
    const char *file; /* the current one, as it is shown */
    unsigned n_jobs, n_bad;
    struct node *results;
};

typedef void (*offline_fn)(struct offline *o, const struct node *object);

static const char *offline_ns(const struct offline *o)
{
    const char *ns = o->cli->args.value[CLI_OPT_NAMESPACE];

    return ns ? ns : "default";
}

/* "FILE:LINE: TEXT" to standard error. */
static void
put_problem(const struct offline *o, uint32_t line, const char *text, size_t n)
{
    struct strbuf b;

    strbuf_init(&b, 1u << 20);
    text_put_safe(&b, o->file, strlen(o->file), false);
    if (line)
        strbuf_printf(&b, ":%u", line);
    strbuf_puts(&b, ": ");
    text_put_safe(&b, text, n, false);
    (void)fprintf(stderr, "%s\n", strbuf_str(&b));
    strbuf_release(&b);
}

/* True if the line occurs in the text before it. */
static bool is_repeated(const char *all, const char *line, size_t n)
{
    for (const char *p = all; p < line; p += strcspn(p, "\n") + 1) {
        if (strcspn(p, "\n") == n && memcmp(p, line, n) == 0)
            return true;
    }
    return false;
}

/* Each line of a text "PATH: ...". object NULL: without line numbers. */
static void
put_problems(const struct offline *o, const struct node *object, const char *all)
{
    for (const char *p = all; *p;) {
        size_t n = strcspn(p, "\n");

        if (n > 0 && !is_repeated(all, p, n))
            put_problem(o, object ? job_file_line(object, p) : 0, p, n);
        p += n + (p[n] == '\n');
    }
}

static int read_stdin(char **ret_text, size_t *ret_n)
{
    struct strbuf b;
    char part[65536];
    ssize_t n;

    strbuf_init(&b, FILE_MAX);
    while ((n = read(STDIN_FILENO, part, sizeof(part))) > 0)
        strbuf_add(&b, part, (size_t)n);
    if (n < 0 || strbuf_status(&b)) {
        strbuf_release(&b);
        return cli_fail("standard input: cannot be read, or has more than 64 MiB");
    }
    *ret_n = b.n;
    *ret_text = strbuf_take(&b);
    if (!*ret_text)
        *ret_text = mem_strdup("");
    return *ret_text ? 0 : cli_fail("out of memory");
}

static int offline_file(struct offline *o, const char *file, offline_fn fn)
{
    struct err err = ERR_INIT;
    const struct node *all = NULL;
    AUTOFREE char *text = NULL;
    uint32_t line = 0;
    size_t n = 0;
    bool is_stdin = strcmp(file, "-") == 0;

    o->file = is_stdin ? "stdin" : file;
    if (is_stdin && read_stdin(&text, &n) != 0)
        return 1;
    if (!is_stdin && fd_read_file(file, FILE_MAX, &text, &n, &err) < 0)
        return cli_fail(err.text);
    if (job_file_read(&o->cli->arena, text, n, &all, &line, &err) < 0) {
        put_problem(o, line, err.text, strlen(err.text));
        return 1;
    }
    for (const struct node *c = all->first; c; c = c->next)
        fn(o, c);
    if (o->b.status)
        return cli_fail("out of memory");
    return 0;
}

/* Runs fn for each object of all files. */
static int offline_files(struct offline *o, offline_fn fn)
{
    const struct cli_args *a = &o->cli->args;
    int rc = 0;

    if (a->n_files + a->n_words == 0)
        return cli_fail("no file is given; write -f FILE, or -f - for standard input");
    for (size_t i = 0; i < a->n_files; i++)
        rc |= offline_file(o, a->file[i], fn);
    for (size_t i = 0; i < a->n_words; i++)
        rc |= offline_file(o, a->word[i], fn);
    if (rc == 0 && o->n_jobs + o->n_bad == 0)
        return cli_fail("no job is in these files");
    return rc | (o->n_bad > 0);
}

static struct offline offline_start(struct cli *c)
{
    struct offline o = {.cli = c, .b = {.arena = &c->arena}};

    o.results = node_array(&o.b);
    return o;
}

static const char *name_of(const struct node *o)
{
    const char *name = node_str(o, "metadata.name");

    return name ? name : "";
}

/* --- validate -------------------------------------------------------------------- */

/* True if the object is a job that is checked; another kind of job is a problem. */
static bool is_own_job(struct offline *o, const struct node *object)
{
    const char *kind = node_str(object, "kind"),
               *version = node_str(object, "apiVersion");
    size_t n = kind ? strlen(kind) : 0;
    char text[300];

    if (job_file_kind(object) >= 0) {
        o->n_jobs++;
        return true;
    }
    if (object->type != NODE_OBJECT || !kind || !version) {
        (void)snprintf(text, sizeof(text), "%s: missing",
                       object->type != NODE_OBJECT ? "kind"
                       : kind                      ? "apiVersion"
                                                   : "kind");
    } else if (strcmp(kind, "HorovodJob") == 0 || strcmp(kind, "MPIJob") == 0) {
        (void)snprintf(text, sizeof(text),
                       "apiVersion: \"%.100s\" is not one that hvd-operator serves%s",
                       version,
                       *kind == 'M' ? "; see kubectl hvd convert"
                                    : "; write ringmaster.dev/v1beta1");
    } else if (strncmp(version, "kubeflow.org/", 13) == 0 && n > 3
               && strcmp(kind + n - 3, "Job") == 0) {
        (void)snprintf(
            text, sizeof(text),
            "kind: %.100s is not one that hvd-operator serves; see kubectl hvd "
            "convert",
            kind);
    } else {
        return false; /* a Service, say */
    }
    o->n_bad++;
    put_problem(o, job_file_line(object, text), text, strlen(text));
    return false;
}

/* Opens the job and prints its problems. NULL: it has some. */
static const struct job_meta *open_valid(struct offline *o, const struct node *object)
{
    const struct job_meta *job;
    struct strbuf problems;

    strbuf_init(&problems, 4u << 20);
    job = job_file_open(&o->b, object, offline_ns(o), &problems);
    put_problems(o, object, strbuf_str(&problems));
    if (!job)
        o->b.status = -ENOMEM;
    if (problems.n > 0 || !job) {
        o->n_bad++;
        job = NULL;
    }
    strbuf_release(&problems);
    return job;
}

static void validate_one(struct offline *o, const struct node *object)
{
    const char *kind = job_file_kind(object) == KUBE_MPIJOB ? "mpijob" : "horovodjob";

    if (!is_own_job(o, object) || !open_valid(o, object))
        return;
    text_put_safe(&o->cli->out, o->file, strlen(o->file), false);
    strbuf_printf(&o->cli->out, ": %s/%s is valid\n", kind, name_of(object));
}

int offline_validate(struct cli *c)
{
    struct offline o = offline_start(c);

    return offline_files(&o, validate_one);
}

/* --- render, convert ------------------------------------------------------------- */

/* Prints the results as documents, or as one List. */
static int put_results(struct offline *o)
{
    struct node *list;

    switch (cli_format(o->cli)) {
    case FORMAT_TABLE:
    case FORMAT_YAML:
        for (const struct node *n = o->results->first; n; n = n->next) {
            strbuf_puts(&o->cli->out, "---\n");
            yaml_write(n, &o->cli->out);
        }
        return 0;
    case FORMAT_JSON:
        list = node_object(&o->b);
        node_set_str(&o->b, list, "apiVersion", "v1");
        node_set_str(&o->b, list, "kind", "List");
        node_set(&o->b, list, "items", o->results);
        if (!o->b.status)
            json_write_pretty(list, &o->cli->out);
        return o->b.status ? cli_fail("out of memory") : 0;
    case FORMAT_WIDE:
    case FORMAT_JSONPATH:
    case FORMAT_KUBECTL:
        break;
    }
    return cli_fail("--output: must be yaml or json");
}

static void render_one(struct offline *o, const struct node *object)
{
    const char *const *value = o->cli->args.value;
    const char *gang = value[CLI_OPT_GANG] ? value[CLI_OPT_GANG] : "";
    const struct object_config cfg = {
        .runtime_image = value[CLI_OPT_RUNTIME_IMAGE] ? value[CLI_OPT_RUNTIME_IMAGE]
                                                      : DEFAULT_RUNTIME_IMAGE,
        .cluster_domain =
            value[CLI_OPT_CLUSTER_DOMAIN] ? value[CLI_OPT_CLUSTER_DOMAIN] : "",
        .gang = gang_of(gang),
        .gang_scheduler = gang};
    struct err err = ERR_INIT;
    struct strbuf notes;
    struct node *all;

    if (!is_own_job(o, object) || !open_valid(o, object))
        return;
    strbuf_init(&notes, 1u << 20);
    all = job_render(&o->b, object, offline_ns(o), &cfg, &notes, &err);
    put_problems(o, NULL, strbuf_str(&notes));
    strbuf_release(&notes);
    if (!all) {
        o->n_bad++;
        put_problem(o, object->line, err.text, strlen(err.text));
        return;
    }
    for (struct node *n = all->first, *next; n; n = next) {
        next = n->next;
        node_add(&o->b, o->results, n);
    }
}

int offline_render(struct cli *c)
{
    struct offline o = offline_start(c);
    int rc = offline_files(&o, render_one);

    return rc | put_results(&o);
}

static void convert_one(struct offline *o, const struct node *object)
{
    struct err err = ERR_INIT;
    struct strbuf notes;
    struct node *job;

    if (job_file_kind(object) == KUBE_JOB) {
        o->n_jobs++;
        put_problem(o, object->line, "is a HorovodJob already",
                    strlen("is a HorovodJob already"));
        node_add(&o->b, o->results, node_copy(&o->b, object));
        return;
    }
    strbuf_init(&notes, 1u << 20);
    job = job_convert(&o->b, object, &notes, &err);
    put_problems(o, object, strbuf_str(&notes));
    strbuf_release(&notes);
    if (!job) {
        o->n_bad++;
        put_problem(o, object->line, err.text, strlen(err.text));
        return;
    }
    o->n_jobs++;
    strbuf_init(&notes, 4u << 20);
    if (!job_file_open(&o->b, job, offline_ns(o), &notes))
        o->b.status = -ENOMEM;
    if (notes.n > 0) { /* the operator would refuse it: the user must complete it */
        o->n_bad++;
        put_problem(
            o, 0, "the result is not complete:", strlen("the result is not complete:"));
        put_problems(o, NULL, strbuf_str(&notes));
    }
    strbuf_release(&notes);
    node_add(&o->b, o->results, job);
}

int offline_convert(struct cli *c)
{
    struct offline o = offline_start(c);
    int rc = offline_files(&o, convert_one);

    return rc | put_results(&o);
}

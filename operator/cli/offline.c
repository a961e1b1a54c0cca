/* SPDX-License-Identifier: Apache-2.0 */
/* validate, render, convert: files in, text out, no cluster. The decisions are in
 * core/job_*.c; here files are read and notes get their file and line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/cli/cli.h"
#include "operator/cli/core/show_text.h"
#include "operator/cli/job_input.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"

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

static int offline_file(struct offline *o, const char *file, offline_fn fn)
{
    struct err err = ERR_INIT;
    const struct node *all = NULL;
    int rc = job_input_read(&o->cli->arena, file, &all, &err);

    o->file = job_input_name(file);
    if (rc < 0)
        return cli_fail(err.text);
    for (const struct node *c = rc == 0 ? all->first : NULL; c; c = c->next)
        fn(o, c);
    if (o->b.status)
        return cli_fail("out of memory");
    return rc;
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
    char text[JOB_FILE_TEXT];

    if (job_file_kind(object) >= 0) {
        o->n_jobs++;
        return true;
    }
    if (job_file_refuses(object, text)) {
        o->n_bad++;
        problem_put(o->file, job_file_line(object, text), text);
    }
    return false;
}

/* Opens the job and prints its problems. NULL: it has some. */
static const struct job_meta *open_valid(struct offline *o, const struct node *object)
{
    const struct job_meta *job;
    struct strbuf problems;

    strbuf_init(&problems, 4u << 20);
    job = job_file_open(&o->b, object, offline_ns(o), &problems);
    problems_put(o->file, object, strbuf_str(&problems));
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
    problems_put(o->file, NULL, strbuf_str(&notes));
    strbuf_release(&notes);
    if (!all) {
        o->n_bad++;
        problem_put(o->file, object->line, err.text);
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
        problem_put(o->file, object->line, "is a HorovodJob already");
        node_add(&o->b, o->results, node_copy(&o->b, object));
        return;
    }
    strbuf_init(&notes, 1u << 20);
    job = job_convert(&o->b, object, &notes, &err);
    problems_put(o->file, object, strbuf_str(&notes));
    strbuf_release(&notes);
    if (!job) {
        o->n_bad++;
        problem_put(o->file, object->line, err.text);
        return;
    }
    o->n_jobs++;
    strbuf_init(&notes, 4u << 20);
    if (!job_file_open(&o->b, job, offline_ns(o), &notes))
        o->b.status = -ENOMEM;
    if (notes.n > 0) { /* the operator would refuse it: the user must complete it */
        o->n_bad++;
        problem_put(o->file, 0, "the result is not complete:");
        problems_put(o->file, NULL, strbuf_str(&notes));
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

/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a job and what belongs to it. */
#include "operator/cli/online.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/cli/core/jsonpath.h"
#include "operator/core/inject.h"
#include "operator/doc/json.h"
#include "operator/doc/yaml.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

struct show online_show(const struct cli *c)
{
    return (struct show){.now_s = clock_wall_s(),
                         .has_colour = c->has_colour,
                         .is_wide = cli_format(c) == FORMAT_WIDE,
                         .has_headers = !cli_has(&c->args, CLI_OPT_NO_HEADERS),
                         .has_namespaces = cli_has(&c->args, CLI_OPT_ALL)};
}

const char *online_resource(enum kube_kind kind)
{
    return kind == KUBE_MPIJOB ? "mpijobs.v2beta1.kubeflow.org"
                               : "horovodjobs.v1beta1.ringmaster.dev";
}

int online_fail(const struct job_view *v, const char *text)
{
    char line[1024];

    (void)snprintf(line, sizeof(line), "job %.200s: %s", v->name, text);
    return cli_fail(line);
}

/* Splits "mpijob/NAME"; -1: the word names no kind. */
static int split_job(const char *word, const char **ret_name)
{
    static const struct {
        const char *word;
        enum kube_kind kind;
    } kinds[] = {{"horovodjob/", KUBE_JOB},
                 {"horovodjobs/", KUBE_JOB},
                 {"hvdjob/", KUBE_JOB},
                 {"horovodjob.ringmaster.dev/", KUBE_JOB},
                 {"mpijob/", KUBE_MPIJOB},
                 {"mpijobs/", KUBE_MPIJOB},
                 {"mpijob.kubeflow.org/", KUBE_MPIJOB}};

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        size_t n = strlen(kinds[i].word);

        if (strncmp(word, kinds[i].word, n) == 0) {
            *ret_name = word + n;
            return (int)kinds[i].kind;
        }
    }
    *ret_name = word;
    return -1;
}

static int get_job(struct cli *c,
                   enum kube_kind kind,
                   const char *name,
                   const struct node **ret,
                   struct err *err)
{
    const char *const words[] = {
        "get", online_resource(kind), name, "--ignore-not-found", "-o", "json", NULL};

    return kubectl_json(c, kubectl_new(c, NULL, words), NULL, ret, err);
}

int online_job(struct cli *c, const char *word, struct job_view *ret)
{
    struct build b = {.arena = &c->arena};
    struct err err = ERR_INIT, other = ERR_INIT;
    const struct node *o = NULL;
    const char *name, *ns = c->args.value[CLI_OPT_NAMESPACE];
    int kind = split_job(word, &name), rc = 0;
    char text[600];

    if (!*name || *name == '-')
        return cli_fail("the name of the job is missing");
    rc = get_job(c, kind < 0 ? KUBE_JOB : (enum kube_kind)kind, name, &o, &err);
    if (kind < 0 && !o && (rc == 0 || rc == -ENOTSUP || rc == -EACCES)) {
        int second = get_job(c, KUBE_MPIJOB, name, &o, &other);

        if (second == 0 && o)
            rc = 0;
    }
    if (rc < 0)
        return cli_fail(err.text);
    if (!o) {
        (void)snprintf(
            text, sizeof(text),
            "job %.200s: not found in %s%.200s; kubectl hvd list -A shows the "
            "jobs of all namespaces",
            name, ns ? "namespace " : "the namespace of this context", ns ? ns : "");
        return cli_fail(text);
    }
    rc = job_view_make(&b, o, ret);
    if (rc < 0)
        return cli_fail(rc == -ENOMEM ? "out of memory"
                                      : "the API server's answer is not a job");
    return 0;
}

static const struct node *
list_or_note(struct cli *c, const struct kubectl *k, const char *what)
{
    struct err err = ERR_INIT;
    const struct node *o = NULL;

    if (kubectl_json(c, k, NULL, &o, &err) < 0) {
        (void)err_prefix(&err, "%s cannot be shown", what);
        cli_note(err.text);
    }
    return o;
}

const struct node *online_pods(struct cli *c, const struct job_view *v)
{
    const char *const words[] = {"get", "pods", "-l", job_pod_selector(&c->arena, v),
                                 "-o",  "json", NULL};

    return list_or_note(c, kubectl_new(c, v->ns, words), "pods");
}

const struct node *online_events_of(struct cli *c, const struct job_view *v)
{
    static const char *const words[] = {"get", "events", "-o", "json", NULL};

    return list_or_note(c, kubectl_new(c, v->ns, words), "events");
}

const struct node *
online_optional(struct cli *c, const struct job_view *v, const char *resource)
{
    const char *const words[] = {"get", resource, "-o", "json", NULL};
    struct err err = ERR_INIT;
    const struct node *o = NULL;
    int rc = kubectl_json(c, kubectl_new(c, v->ns, words), NULL, &o, &err);

    if (rc < 0 && rc != -ENOTSUP) {
        (void)err_prefix(&err, "%s cannot be shown", resource);
        cli_note(err.text);
    }
    return o;
}

static int tree_write(struct cli *c, const struct node *tree, struct strbuf *out)
{
    struct err err = ERR_INIT;
    enum cli_format f = cli_format(c);

    if (f == FORMAT_JSON)
        json_write_pretty(tree, out);
    else if (f == FORMAT_YAML)
        yaml_write(tree, out);
    else if (jsonpath_write(tree, c->args.value[CLI_OPT_OUTPUT] + strlen(CLI_JSONPATH),
                            out, &err)
             < 0)
        return cli_fail(err.text);
    return strbuf_status(out) < 0 ? cli_fail("out of memory") : 0;
}

int online_refuse_format(const char *allowed)
{
    char text[120];

    (void)snprintf(text, sizeof(text), "--output: must be %s", allowed);
    return cli_fail(text);
}

int online_tree(struct cli *c,
                struct build *b,
                const struct node *tree,
                const char *allowed)
{
    CLEANUP(strbuf_release) struct strbuf out = {0};

    if (cli_format(c) == FORMAT_KUBECTL)
        return online_refuse_format(allowed);
    strbuf_init(&out, CLI_MAX_BYTES);
    if (!tree || b->status)
        return cli_fail("out of memory");
    if (tree_write(c, tree, &out) != 0)
        return 1;
    if (c->is_terminal) /* a program that reads it gets it unchanged */
        text_put_safe(&c->out, strbuf_str(&out), out.n, true);
    else
        strbuf_add(&c->out, strbuf_str(&out), out.n);
    return 0;
}

int online_agent(const struct job_view *v,
                 char ret_pod[128],
                 const char **ret_container)
{
    if (!v->is_agent && !v->is_elastic)
        return online_fail(v,
                           v->is_tensorflow ? "its ranks have no agent that reports: "
                                              "framework tensorflow"
                           : v->kind == KUBE_MPIJOB
                               ? "its ranks have no agent that reports: an MPIJob"
                               : "its ranks have no agent that reports: its launcher "
                                 "starts them");
    (void)snprintf(ret_pod, 128, "%.100s-%s-0", v->name,
                   v->is_elastic ? "launcher" : "worker");
    *ret_container = job_container(v, v->is_elastic ? ROLE_LAUNCHER : ROLE_WORKER);
    if (!*ret_container)
        return cli_fail("the job has no container");
    return 0;
}

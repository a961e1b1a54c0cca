/* SPDX-License-Identifier: Apache-2.0 */
/* scale, suspend, resume, restart: one patch of the spec each; the operator does the rest.
 * What a change costs is printed with it. */
#include <stdio.h>
#include <string.h>

#include "operator/cli/online.h"
#include "operator/core/hvd/hvd_job.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

static void put_done(struct cli *c, const struct job_view *v, const char *text)
{
    strbuf_printf(&c->out, "%s/", job_kind_word(v->kind));
    text_put_safe(&c->out, v->name, strlen(v->name), false);
    strbuf_printf(&c->out, " %s\n", text);
}

static int change_patch(struct cli *c, const struct job_view *v, const char *patch)
{
    const char *const words[] = {
        "patch", online_resource(v->kind), v->name, "--type=merge", "-p", patch, NULL};
    CLEANUP(strbuf_release) struct strbuf out;
    struct err err = ERR_INIT;
    char what[300];

    strbuf_init(&out, CLI_MAX_BYTES);
    (void)snprintf(what, sizeof(what), "job %.200s", v->name);
    if (kubectl_read(kubectl_new(c, v->ns, words), &out, what, &err) < 0)
        return online_fail(v, err.text);
    return 0;
}

static int change_suspend(struct cli *c, const struct job_view *v, bool is_suspended)
{
    return change_patch(c, v,
                        is_suspended
                            ? "{\"spec\":{\"runPolicy\":{\"suspend\":true}}}"
                            : "{\"spec\":{\"runPolicy\":{\"suspend\":false}}}");
}

static void note_queue(const struct job_view *v)
{
    char text[500];

    if (!v->queue)
        return;
    (void)snprintf(
        text, sizeof(text),
        "job %.200s: is in queue %.100s of Kueue, which sets suspend itself and "
        "may undo this; spec.active of its Workload stops it for good",
        v->name, v->queue);
    cli_note(text);
}

int online_suspend(struct cli *c)
{
    struct job_view v;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (v.is_final)
        return online_fail(&v, "has finished; suspend has no effect");
    if (v.is_suspended) {
        put_done(c, &v, "is suspended already");
        return 0;
    }
    note_queue(&v);
    if (change_suspend(c, &v, true) != 0)
        return 1;
    put_done(c, &v,
             "suspended: its pods are deleted; kubectl hvd resume starts it again");
    return 0;
}

int online_resume(struct cli *c)
{
    struct job_view v;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (v.is_final)
        return online_fail(&v, "has finished and cannot be resumed; create it again");
    if (!v.is_suspended) {
        put_done(c, &v, "is not suspended");
        return 0;
    }
    note_queue(&v);
    if (change_suspend(c, &v, false) != 0)
        return 1;
    put_done(c, &v, "resumed: its pods are created");
    return 0;
}

int online_scale(struct cli *c)
{
    struct job_view v;
    struct err err = ERR_INIT;
    uint32_t n;
    char patch[120], text[240];

    if (parse_u32("N", c->args.word[1], 1, JOB_MAX_REPLICAS, &n, &err) < 0)
        return cli_fail(err.text);
    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (v.is_final)
        return online_fail(&v, "has finished; scale has no effect");
    (void)snprintf(patch, sizeof(patch),
                   "{\"spec\":{\"%s\":{\"Worker\":{\"replicas\":%u}}}}",
                   v.kind == KUBE_MPIJOB ? "mpiReplicaSpecs" : "replicaSpecs", n);
    if (n
        == (uint32_t)node_int(v.spec,
                              v.kind == KUBE_MPIJOB ? "mpiReplicaSpecs.Worker.replicas"
                                                    : "replicaSpecs.Worker.replicas",
                              1)) {
        (void)snprintf(text, sizeof(text), "has %u workers already", n);
        put_done(c, &v, text);
        return 0;
    }
    if (change_patch(c, &v, patch) != 0)
        return 1;
    (void)snprintf(text, sizeof(text), "scaled from %u to %u workers%s", v.n_workers, n,
                   v.is_suspended          ? "; it is suspended"
                   : v.kind == KUBE_MPIJOB ? "; a running mpirun keeps its hosts"
                   : v.is_agent            ? ": the ranks start again, from their last "
                                             "checkpoint, when all pods are there"
                                           : ": all pods are recreated");
    put_done(c, &v, text);
    return 0;
}

/* --- restart ---------------------------------------------------------------------- */

/* Waits until the operator has reported that no pod is left. */
static int wait_suspended(struct cli *c, const struct job_view *v)
{
    const char *t = c->args.value[CLI_OPT_TIMEOUT];
    const char *timeout = arena_printf(&c->arena, "--timeout=%s", t ? t : "5m");
    const char *const words[] = {"wait",  online_resource(v->kind),
                                 v->name, "--for=condition=Suspended",
                                 timeout, NULL};
    const char *const pods[] = {
        "wait",         "pods",  "-l", job_pod_selector(&c->arena, v),
        "--for=delete", timeout, NULL};
    CLEANUP(strbuf_release) struct strbuf out;
    struct err err = ERR_INIT;
    int rc;

    strbuf_init(&out, CLI_MAX_BYTES);
    if (!timeout)
        return cli_fail("out of memory");
    rc = kubectl_read(kubectl_new(c, v->ns, words), &out, NULL, &err);
    if (rc == 0)
        rc = kubectl_read(kubectl_new(c, v->ns, pods), &out, NULL, &err);
    if (rc == 0 || strstr(err.text, "no matching resources"))
        return 0;
    (void)err_prefix(&err, "its old pods are not gone");
    return online_fail(v, err.text);
}

int online_restart(struct cli *c)
{
    struct job_view v;

    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    if (v.is_final)
        return online_fail(&v, "has finished and cannot be restarted; create it again");
    if (v.is_suspended)
        return online_fail(&v, "is suspended; kubectl hvd resume starts it");
    note_queue(&v);
    if (change_suspend(c, &v, true) != 0)
        return 1;
    put_done(c, &v,
             "suspended; if this is interrupted now, kubectl hvd resume starts it");
    if (cli_print(c) != 0 || wait_suspended(c, &v) != 0)
        return online_fail(&v, "stays suspended; kubectl hvd resume starts it");
    if (change_suspend(c, &v, false) != 0)
        return 1;
    put_done(c, &v,
             "resumed: all its pods are new, no restart is counted, and "
             "activeDeadlineSeconds count from now");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A heterogeneous job has components, which Slurm counts as jobs of their own: "12+1" is
 * also job 13. A step over several of them has the same number in each. Each component is
 * asked by an srun of its own: one srun for all (srun A : B) passes what it reads to one of
 * them, whichever is first. Called by step_status.c. */
#include "runtime/launch/step_target.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define QUERY_MAX (1u << 20)

void step_target_release(struct step_target *t)
{
    for (uint32_t i = 0; t->hosts && i < t->found.n_parts; i++)
        hostlist_release(&t->hosts[i]);
    mem_free(t->hosts);
    strbuf_release(&t->nodes);
    strbuf_release(&t->steps);
}

/* --- squeue ----------------------------------------------------------------------- */

static int target_find_job(struct step_target *t,
                           struct slurm_commands *s,
                           const struct step_word *w,
                           const char *number,
                           struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf jobs = {0};
    char squeue[] = "squeue", h[] = "-h", j[] = "-j", o[] = "-o",
         all[] = "--states=all";
    char format[] = STEP_JOB_FORMAT, job[sizeof(w->job)];
    char *argv[] = {squeue, h, all, j, job, o, format, NULL};
    int rc;

    strbuf_init(&jobs, QUERY_MAX);
    (void)snprintf(job, sizeof(job), "%s", number);
    rc = slurm_commands_run(s, argv, SLURM_COMMAND_MS, &jobs, err);
    if (rc == -EINVAL && jobs.n == 0 && !s->stop) /* squeue has said why */
        rc = 0;
    return rc < 0 ? rc : step_list_job(strbuf_str(&jobs), w, geteuid(), &t->job, err);
}

static int target_find_step(struct step_target *t,
                            struct slurm_commands *s,
                            const struct step_word *w,
                            struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf jobs = {0};
    char squeue[] = "squeue", h[] = "-h", steps[] = "-s", j[] = "-j", o[] = "-o";
    char format[] = STEP_STEP_FORMAT;
    int rc;

    strbuf_init(&jobs, 12u * STEP_PARTS_MAX);
    for (uint32_t i = 0; i < t->job.n; i++)
        strbuf_printf(&jobs, "%s%u", i > 0 ? "," : "", t->job.parts[i]);
    if (strbuf_status(&jobs) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    char *argv[] = {squeue, h, steps, j, jobs.p, o, format, NULL};
    strbuf_init(&t->steps, QUERY_MAX);
    rc = slurm_commands_run(s, argv, SLURM_COMMAND_MS, &t->steps, err);
    return rc < 0 ? rc
                  : step_list_choose(strbuf_str(&t->steps), w, &t->job, &t->found, err);
}

static int target_read_nodes(struct step_target *t, struct err *err)
{
    CLEANUP(strbuf_release) struct strbuf one = {0};
    int rc = 0;

    t->hosts = mem_calloc(t->found.n_parts, sizeof(*t->hosts));
    strbuf_init(&one, QUERY_MAX);
    strbuf_init(&t->nodes, QUERY_MAX);
    for (uint32_t i = 0; t->hosts && rc == 0 && i < t->found.n_parts; i++) {
        const struct step_component *c = &t->found.parts[i];

        strbuf_clear(&one);
        strbuf_add(&one, c->nodes, c->nodes_len);
        strbuf_printf(&t->nodes, "%s%s", i > 0 ? "," : "", strbuf_str(&one));
        rc = hostlist_parse_slurm(strbuf_str(&one), &t->hosts[i], err);
        t->n_tasks += t->hosts[i].n;
    }
    if (rc == 0
        && (!t->hosts || strbuf_status(&one) < 0 || strbuf_status(&t->nodes) < 0))
        rc = err_set(err, -ENOMEM, "out of memory");
    return rc;
}

int step_target_find(struct step_target *t,
                     struct slurm_commands *s,
                     const struct step_word *w,
                     struct err *err)
{
    int rc = target_find_job(t, s, w, w->job, err);
    char lead[16];

    if (rc == 0 && !t->job.has_all) {
        (void)snprintf(lead, sizeof(lead), "%u", t->job.lead);
        rc = target_find_job(t, s, w, lead, err);
    }
    if (rc == 0 && !t->job.has_all)
        rc = err_set(err, -EPROTO, "squeue does not list all components of job %u",
                     t->job.lead);
    rc = rc < 0 ? rc : target_find_step(t, s, w, err);
    if (rc < 0)
        return rc;
    return target_read_nodes(t, err);
}

/* --- srun ------------------------------------------------------------------------- */

int step_target_ask(const struct step_target *t,
                    uint32_t i,
                    struct slurm_commands *s,
                    struct slurm_srun *ret,
                    struct err *err)
{
    const struct step_component *c = &t->found.parts[i];
    char words[][24] = {"srun",
                        "--overlap",
                        "--mem=0",
                        "--gres=none",
                        "--ntasks-per-node=1",
                        "--cpus-per-task=1",
                        "--mpi=none",
                        "--quiet",
                        "--label",
                        "--kill-on-bad-exit=0",
                        "--export=NONE",
                        "--chdir=/"};
    char jobid[32], group[32], nodes[32], tasks[32], step[32];
    AUTOFREE char *list = mem_alloc(c->nodes_len + 32);
    char agent[] = "step", name[] = "--job-name=" STEP_STATUS_NAME;
    char *argv[ARRAY_LEN(words) + 10];
    size_t n = 0;

    if (!list)
        return err_set(err, -ENOMEM, "out of memory");
    (void)snprintf(list, c->nodes_len + 32, "--nodelist=%.*s", (int)c->nodes_len,
                   c->nodes);
    (void)snprintf(jobid, sizeof(jobid), "--jobid=%u", t->job.lead);
    (void)snprintf(group, sizeof(group), "--het-group=%u", c->index);
    (void)snprintf(nodes, sizeof(nodes), "--nodes=%zu", t->hosts[i].n);
    (void)snprintf(tasks, sizeof(tasks), "--ntasks=%zu", t->hosts[i].n);
    (void)snprintf(step, sizeof(step), "%u.%u", c->job, t->found.step);
    for (; n < ARRAY_LEN(words); n++)
        argv[n] = words[n];
    argv[n++] = name;
    argv[n++] = jobid;
    if (t->job.is_het)
        argv[n++] = group;
    argv[n++] = nodes;
    argv[n++] = tasks;
    argv[n++] = list;
    argv[n++] = s->self;
    argv[n++] = agent;
    argv[n++] = step;
    argv[n] = NULL;
    return slurm_srun_start(s, argv, ret, err);
}

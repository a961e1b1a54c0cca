/* SPDX-License-Identifier: Apache-2.0 */
/* squeue shows the batch script, an interactive shell and the external step by name, the
 * steps of srun by number. Called by step_target.c. */
#include "runtime/launch/core/step_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/parse.h"

static int
step_field_u32(const char *p, size_t n, uint32_t *ret) /* digits only, else -EINVAL */
{
    char text[12];

    if (n == 0 || n >= sizeof(text))
        return -EINVAL;
    memcpy(text, p, n);
    text[n] = '\0';
    return parse_u32("number", text, 0, UINT32_MAX, ret, NULL);
}

int step_word_parse(const char *word, struct step_word *ret, struct err *err)
{
    size_t n = strcspn(word, "."), digits = strspn(word, "0123456789"), job_n = digits;
    struct step_word w = {.step = 0};
    bool is_part = word[digits] == '+';

    if (word[digits] == '_' || is_part)
        digits += 1 + strspn(word + digits + 1, "0123456789");
    if (!is_part)
        job_n = digits;
    if (job_n == 0 || job_n >= sizeof(w.job) || digits != n || word[n - 1] == '_'
        || word[n - 1] == '+' || word[0] == '_'
        || (word[n] && step_field_u32(word + n + 1, strlen(word + n + 1), &w.step) < 0))
        return err_set(err, -EINVAL,
                       "\"%.60s\" is not a job or a step of one, like 123, 123.0 or "
                       "123_4.0",
                       word);
    memcpy(w.job, word, job_n);
    w.has_step = word[n] == '.';
    *ret = w;
    return 0;
}

/* --- jobs --- */

struct job_line {
    uint32_t job, owner, lead, index;
    bool is_het;
    char state[32], user[64];
};

static bool job_line_parse(const char *text, struct job_line *ret)
{
    struct job_line l = {.job = 0};
    char name[64]; /* "12", "12_3", or "12+1" of a heterogeneous job */

    if (sscanf(text, "%u|%u|%31[^|\n]|%63[^|\n]|%63[^\n]", &l.job, &l.owner, l.state,
               name, l.user)
        != 5)
        return false;
    l.is_het = sscanf(name, "%u+%u", &l.lead, &l.index) == 2;
    if (!l.is_het) {
        l.lead = l.job;
        l.index = 0;
    }
    *ret = l;
    return true;
}

static int job_line_check(const struct job_line *l,
                          const struct step_word *w,
                          uid_t uid,
                          struct err *err)
{
    if (strcmp(l->state, "RUNNING") != 0)
        return err_set(err, -ESRCH, "job %s is %s: only a running job has ranks",
                       w->job, l->state);
    if (l->owner != uid)
        return err_set(err, -EACCES, "job %s is user %s's: only its owner can ask it",
                       w->job, l->user);
    return 0;
}

int step_list_job(const char *text,
                  const struct step_word *w,
                  uid_t uid,
                  struct step_job *ret,
                  struct err *err)
{
    struct step_job job = {.n = 0};
    struct job_line l;

    for (const char *p = text; *p && job_line_parse(p, &l);) {
        int rc = job_line_check(&l, w, uid, err);

        if (rc < 0)
            return rc;
        if (l.index < STEP_PARTS_MAX) {
            job.lead = l.lead;
            job.is_het = l.is_het;
            job.parts[l.index] = l.job;
            job.n = l.index >= job.n ? l.index + 1 : job.n;
        }
        p += strcspn(p, "\n");
        p += *p == '\n';
    }
    if (job.n == 0)
        return err_set(err, -ENOENT, "job %s does not exist, or ended long ago",
                       w->job);
    job.has_all = true;
    for (uint32_t i = 0; i < job.n; i++)
        job.has_all = job.has_all && job.parts[i] != 0;
    *ret = job;
    return 0;
}

/* --- steps --- */

/* False: srun has not started it, or it is one of our own. */
static bool step_line_parse(const char *line,
                            size_t n,
                            uint32_t *ret_step,
                            struct step_component *ret)
{
    const char *dot = memchr(line, '.', n), *end = line + n, *bar, *tasks, *nodes;

    bar = memchr(line, '|', n);
    if (!dot || !bar || dot > bar
        || step_field_u32(dot + 1, (size_t)(bar - dot - 1), ret_step) < 0)
        return false;
    if (step_field_u32(line, (size_t)(dot - line), &ret->job) < 0)
        ret->job = 0; /* 12_3, of an array */
    tasks = bar + 1;
    bar = memchr(tasks, '|', (size_t)(end - tasks));
    nodes = end;
    while (nodes > line && nodes[-1] != '|') /* a node list has none */
        nodes--;
    if (!bar || nodes == bar + 1
        || step_field_u32(tasks, (size_t)(bar - tasks), &ret->n_tasks) < 0)
        return false;
    ret->nodes = nodes;
    ret->nodes_len = (size_t)(end - nodes);
    return (size_t)(nodes - bar - 2) != strlen(STEP_STATUS_NAME)
           || strncmp(bar + 1, STEP_STATUS_NAME, strlen(STEP_STATUS_NAME)) != 0;
}

/* The next line of the component that is a step of ranks; NULL: there is none. */
static const char *step_next_line(const char *p,
                                  const struct step_job *job,
                                  uint32_t index,
                                  uint32_t *ret_step,
                                  struct step_component *ret)
{
    while (*p) {
        size_t n = strcspn(p, "\n");
        bool is_step = step_line_parse(p, n, ret_step, ret);

        p += n + (p[n] == '\n');
        if (is_step && (job->n == 1 || ret->job == job->parts[index])) {
            ret->job = job->parts[index];
            ret->index = index;
            return p;
        }
    }
    return NULL;
}

int step_list_choose(const char *text,
                     const struct step_word *w,
                     const struct step_job *job,
                     struct step_found *ret,
                     struct err *err)
{
    struct step_found found = {.n_parts = 0};
    uint32_t step, other = 0, n_other = 0;
    struct step_component c = {.job = 0};

    for (uint32_t i = 0; i < job->n; i++)
        for (const char *p = text; (p = step_next_line(p, job, i, &step, &c));) {
            if (w->has_step && step != w->step)
                continue;
            if (found.n_parts > 0 && step != found.step) {
                other = step;
                n_other++;
                continue;
            }
            found.step = step;
            found.n_tasks += c.n_tasks;
            found.parts[found.n_parts++] = c;
            if (w->has_step || found.n_parts == STEP_PARTS_MAX)
                break;
        }
    if (found.n_parts == 0 && w->has_step)
        return err_set(err, -ENOENT, "job %s has no step %u that runs", w->job,
                       w->step);
    if (found.n_parts == 0)
        return err_set(err, -ENOENT, "no srun of job %s runs: it has no ranks", w->job);
    if (n_other > 0)
        return err_set(err, -EINVAL,
                       "job %s runs several steps: name one, such as %s.%u or %s.%u",
                       w->job, w->job, found.step, w->job, other);
    *ret = found;
    return 0;
}

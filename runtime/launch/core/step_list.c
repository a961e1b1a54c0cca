/* SPDX-License-Identifier: Apache-2.0 */
/* squeue shows the batch script, an interactive shell and the external step by name, the
 * steps of srun by number. Called by step_status.c. */
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
    size_t n = strcspn(word, "."), digits = strspn(word, "0123456789");
    struct step_word w = {.step = 0};

    if (word[digits] == '_')
        digits += 1 + strspn(word + digits + 1, "0123456789");
    if (n == 0 || n >= sizeof(w.job) || digits != n || word[n - 1] == '_'
        || word[0] == '_'
        || (word[n] && step_field_u32(word + n + 1, strlen(word + n + 1), &w.step) < 0))
        return err_set(err, -EINVAL,
                       "\"%.60s\" is not a job or a step of one, like 123, 123.0 or "
                       "123_4.0",
                       word);
    memcpy(w.job, word, n);
    w.has_step = word[n] == '.';
    *ret = w;
    return 0;
}

int step_list_job(const char *text,
                  const struct step_word *w,
                  uid_t uid,
                  uint32_t *ret_job,
                  struct err *err)
{
    uint32_t job = 0, owner = 0;
    char state[32] = "", user[64] = "";

    if (sscanf(text, "%u|%u|%31[^|]|%63[^\n]", &job, &owner, state, user) != 4)
        return err_set(err, -ENOENT, "job %s does not exist, or ended long ago",
                       w->job);
    if (strcmp(state, "RUNNING") != 0)
        return err_set(err, -ESRCH, "job %s is %s: only a running job has ranks",
                       w->job, state);
    if (owner != uid)
        return err_set(err, -EACCES, "job %s is user %s's: only its owner can ask it",
                       w->job, user);
    *ret_job = job;
    return 0;
}

/* False: srun has not started it, or it is one of our own. */
static bool step_line_parse(const char *line, size_t n, struct step_found *ret)
{
    const char *dot = memchr(line, '.', n), *end = line + n, *bar, *tasks, *nodes;

    bar = memchr(line, '|', n);
    if (!dot || !bar || dot > bar
        || step_field_u32(dot + 1, (size_t)(bar - dot - 1), &ret->step) < 0)
        return false;
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

int step_list_choose(const char *text,
                     const struct step_word *w,
                     uint32_t job,
                     struct step_found *ret,
                     struct err *err)
{
    struct step_found found = {.job = job};
    unsigned n_found = 0;
    uint32_t first = 0;

    for (const char *p = text; *p;) {
        struct step_found s = {.job = job};
        size_t n = strcspn(p, "\n");

        if (step_line_parse(p, n, &s) && (!w->has_step || s.step == w->step)) {
            if (n_found++ == 0)
                first = s.step;
            found = s;
        }
        p += n + (p[n] == '\n');
    }
    if (n_found == 0 && w->has_step)
        return err_set(err, -ENOENT, "job %s has no step %u that runs", w->job,
                       w->step);
    if (n_found == 0)
        return err_set(err, -ENOENT, "no srun of job %s runs: it has no ranks", w->job);
    if (n_found > 1)
        return err_set(err, -EINVAL,
                       "job %s runs %u steps: name one, such as %s.%u or %s.%u", w->job,
                       n_found, w->job, first, w->job, found.step);
    *ret = found;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The comment of a heterogeneous job is at its first component. squeue lists all of them
 * for the number of the first one, otherwise one. Called by step_status.c. */
#include "runtime/launch/step_record.h"

#include <errno.h>
#include <stdio.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/record_text.h"

#define ROWS_MAX (1u << 20)
#define TEXT_MAX (64u << 10)

/* text: the rows, to which *ret points. */
static int record_read(struct slurm_commands *s,
                       char *job,
                       struct strbuf *text,
                       struct job_record *ret)
{
    char squeue[] = "squeue", h[] = "-h", j[] = "-j", o[] = "-o";
    char all[] = "--states=all", format[] = STEP_COMMENT_FORMAT;
    char *argv[] = {squeue, h, all, j, job, o, format, NULL};
    int rc;

    strbuf_clear(text);
    rc = slurm_commands_run(s, argv, SLURM_COMMAND_MS, text, NULL);
    if (rc == 0)
        rc = text->n > 0 ? job_record_read(text->p, 0, ret) : -ENOENT;
    return rc;
}

bool step_record_print(struct slurm_commands *s,
                       const struct step_word *w,
                       bool is_json)
{
    CLEANUP(strbuf_release) struct strbuf rows = {0}, out = {0};
    char job[sizeof(w->job)];
    struct job_record r = {.job = 0};

    strbuf_init(&rows, ROWS_MAX);
    strbuf_init(&out, TEXT_MAX);
    (void)snprintf(job, sizeof(job), "%s", w->job);
    if (record_read(s, job, &rows, &r) != 0)
        return false;
    if (job_record_lead(&r) != r.job) {
        (void)snprintf(job, sizeof(job), "%u", job_record_lead(&r));
        if (record_read(s, job, &rows, &r) != 0)
            return false;
    }
    if (!record_text(&r, w, is_json, &out))
        return false;
    (void)fwrite(strbuf_str(&out), 1, out.n, stdout);
    return fflush(stdout) == 0;
}

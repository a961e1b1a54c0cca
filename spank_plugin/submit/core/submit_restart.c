/* SPDX-License-Identifier: Apache-2.0 */
/* Restarts: the script requeues its job. What an exit code leads to is decided here for
 * each code, so that the script has one list of codes for each decision.
 *
 * srun's own exit code is the highest of all tasks, so it may be that of a task that Slurm
 * stopped because another one had failed. Where codes decide, the script takes the code of
 * the first task that srun reports ("srun: error: node1: task 0: Exited with ..").
 *
 * Slurm itself requeues a job whose node failed or that was preempted. It counts these
 * starts, too (SLURM_RESTART_COUNT), so they use up backoffLimit. A job that was cancelled
 * or has no time left is not RUNNING any more, and stays ended. */
#include "spank_plugin/submit/core/submit.h"

#define CODES     256
#define UNLIMITED 999999999u

static bool rule_has(const struct failure_rule *r, int number)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->number[i] == number)
            return true;
    }
    return false;
}

static bool rule_matches(const struct failure_rule *r, int code)
{
    switch (r->subject) {
    case RULE_EXIT_CODES:
        return rule_has(r, code) != r->is_not_in;
    case RULE_SIGNALS:
        return code > 128 && rule_has(r, code - 128);
    case RULE_POD_CONDITIONS:
    case RULE_REASONS:
        break;
    }
    return false;
}

/* How often the job may run again after a failure with that code. */
static uint32_t restart_limit(const struct hvd_run *run, int code)
{
    for (size_t i = 0; i < run->n_rules; i++) {
        if (!rule_matches(&run->rule[i], code))
            continue;
        switch (run->rule[i].action) {
        case RULE_FAIL:
            return 0;
        case RULE_RESTART:
            return run->backoff_limit;
        case RULE_IGNORE:
            return UNLIMITED;
        }
    }
    return run->backoff_limit;
}

bool submit_has_restarts(const struct submit *s)
{
    for (int code = 1; code < CODES; code++) {
        if (restart_limit(&s->job->run, code) > 0)
            return true;
    }
    return false;
}

/* The limit of most codes. */
static uint32_t usual_limit(const struct hvd_run *run)
{
    const uint32_t all[] = {0, run->backoff_limit, UNLIMITED};
    uint32_t best = 0;
    int most = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int n = 0;

        for (int code = 1; code < CODES; code++)
            n += restart_limit(run, code) == all[i];
        if (n > most) {
            most = n;
            best = all[i];
        }
    }
    return best;
}

/* "    2 | 42) limit=3 ;;" if there are such codes. */
static void put_codes(struct strbuf *out, const struct hvd_run *run, uint32_t limit)
{
    bool is_first = true;

    for (int code = 0; code < CODES; code++) {
        if (code == 0 ? limit != 0 : restart_limit(run, code) != limit)
            continue;
        strbuf_printf(out, "%s%d", is_first ? "    " : " | ", code);
        is_first = false;
    }
    if (!is_first)
        strbuf_printf(out, ") limit=%u ;;\n", limit);
}

/* Standard error stays as it is, byte by byte; sed sees a copy. */
static const char run_and_read[] =
    "hvd_dir=$(mktemp -d) || exit 1\n"
    "trap 'rm -rf \"$hvd_dir\"' EXIT\n"
    "mkfifo \"$hvd_dir/lines\" || exit 1\n"
    "sed -n 's/^srun: error: [^ ]*: tasks\\{0,1\\} [-0-9,]*: //p' \\\n"
    "    <\"$hvd_dir/lines\" >\"$hvd_dir/ends\" &\n"
    "exec 3>&1\n"
    "{\n"
    "    run 2>&1 >&3 3>&-\n"
    "    echo $? >\"$hvd_dir/code\"\n"
    "} | tee \"$hvd_dir/lines\" >&2\n"
    "wait\n"
    "read -r code <\"$hvd_dir/code\"\n"
    "read -r first <\"$hvd_dir/ends\"\n"
    "# the first task that failed; srun's own code is the highest of all tasks\n"
    "case $code:$first in\n"
    "    0:*) ;;\n"
    "    *:'Exited with exit code '*) code=${first##* } ;;\n"
    "    *:Quit*) code=131 ;;\n"
    "    *:'Illegal instruction'*) code=132 ;;\n"
    "    *:Aborted*) code=134 ;;\n"
    "    *:'Bus error'*) code=135 ;;\n"
    "    *:'Floating point exception'*) code=136 ;;\n"
    "    *:Killed* | *:'Out Of Memory'*) code=137 ;;\n"
    "    *:'Segmentation fault'*) code=139 ;;\n"
    "    *:Terminated*) code=143 ;;\n"
    "esac\n";

void submit_put_restarts(struct submit *s)
{
    const struct hvd_run *run = &s->job->run;
    const uint32_t usual = usual_limit(run);
    bool is_by_code = false;

    if (!submit_has_restarts(s)) {
        strbuf_puts(s->script, "run\n");
        return;
    }
    for (int code = 1; code < CODES; code++)
        is_by_code = is_by_code || restart_limit(run, code) != usual;
    strbuf_puts(s->script, is_by_code ? run_and_read : "run\ncode=$?\n");
    strbuf_puts(s->script, "case $code in\n");
    if (usual != 0)
        put_codes(s->script, run, 0);
    if (usual != run->backoff_limit && run->backoff_limit != 0)
        put_codes(s->script, run, run->backoff_limit);
    if (usual != UNLIMITED)
        put_codes(s->script, run, UNLIMITED);
    strbuf_printf(
        s->script,
        "    *) limit=%u ;;\n"
        "esac\n"
        "# a job that was cancelled or has no time left is not RUNNING\n"
        "if [ \"${SLURM_RESTART_COUNT:-0}\" -lt \"$limit\" ] &&\n"
        "    [ \"$(squeue -h -o %%T -j \"$SLURM_JOB_ID\")\" = RUNNING ]; then\n"
        "    echo \"exit code $code: restart $((${SLURM_RESTART_COUNT:-0} + 1))\" >&2\n"
        "    scontrol requeue \"$SLURM_JOB_ID\"\n"
        "fi\n"
        "exit \"$code\"\n",
        usual);
}

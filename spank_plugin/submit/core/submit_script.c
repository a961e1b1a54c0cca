/* SPDX-License-Identifier: Apache-2.0 */
/* The script of a job:
 *
 *     #!/bin/sh
 *     #SBATCH ...            numbers, and a name that Kubernetes' rules restrict
 *     hvd_srun=$(command -v srun)
 *     run() (                the variables do not change the commands below
 *         set -- "$hvd_srun" --hvd=... -- COMMAND
 *         export NAME=VALUE
 *         exec "$@"
 *     )
 *     run
 *     code=$?                only if the job can be restarted (submit_restart.c)
 *     ...
 *
 * srun's path is found before the job's own PATH is exported, and its words are set before
 * a variable of the job can replace one of the shell's. */
#include "spank_plugin/submit/core/submit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RUN_DIR     "/run/ringmaster" /* RUNTIME_DIR: from the Makefile */
#define OPTIONS_MAX (1u << 20)

static void put_option(struct submit *s, const char *name, uint64_t value)
{
    if (value > 0)
        strbuf_printf(s->script, "#SBATCH --%s=%" PRIu64 "\n", name, value);
}

/* Slurm's days-hours:minutes:seconds. */
static void put_time(struct submit *s, int64_t left)
{
    int64_t minutes = left / 60, hours = minutes / 60;

    if (left > 0)
        strbuf_printf(s->script, "#SBATCH --time=%" PRId64 "-%02d:%02d:%02d\n",
                      hours / 24, (int)(hours % 24), (int)(minutes % 60),
                      (int)(left % 60));
}

static void put_head(struct submit *s, const struct submit_size *z)
{
    strbuf_printf(s->script,
                  "#!/bin/sh\n"
                  "# HorovodJob %s, by hvd-submit\n"
                  "#SBATCH --job-name=%s\n",
                  s->job->meta.name, s->job->meta.name);
    put_option(s, "nodes", z->nodes);
    put_option(s, "ntasks", (uint64_t)z->nodes * z->tasks_per_node);
    put_option(s, "ntasks-per-node", z->tasks_per_node);
    put_option(s, "cpus-per-task", z->cpus_per_task);
    if (z->memory_mib > 0)
        strbuf_printf(s->script, "#SBATCH --mem=%" PRIu64 "M\n", z->memory_mib);
    put_option(s, "gpus-per-node", z->gpus);
    put_time(s, s->job->run.deadline_s);
    /* a preempted job runs again, as an evicted pod does; each start adds to the log */
    strbuf_puts(s->script, "#SBATCH --requeue\n#SBATCH --open-mode=append\n");
    if (s->job->run.is_suspended)
        strbuf_puts(s->script, "#SBATCH --hold\n");
}

/* --- what srun gets ---------------------------------------------------------------- */

static void put_key(struct strbuf *out, const char *key)
{
    strbuf_printf(out, "%c%s", out->n ? ',' : '=', key);
}

/* The keys of --hvd, with "=" before the first. */
static void put_keys(struct submit *s, struct strbuf *out)
{
    const struct hvd_job *job = s->job;
    char text[64];

    if (job->framework == FRAMEWORK_TENSORFLOW && job->role[ROLE_PS].is_set) {
        (void)snprintf(text, sizeof(text), "framework=tf-ps,ps=%u",
                       job->role[ROLE_PS].n);
        put_key(out, text);
    } else if (job->framework == FRAMEWORK_TENSORFLOW) {
        put_key(out, "framework=tf-multiworker");
    }
    if (job->role[ROLE_EVALUATOR].is_set)
        put_key(out, "evaluator");
    /* only what the job says: a site may not allow the key */
    if (job->knob[KNOB_START_TIMEOUT]) {
        (void)snprintf(text, sizeof(text), "timeout=%s", job->knob[KNOB_START_TIMEOUT]);
        put_key(out, text);
    }
}

/* A word of srun's command line, on a line of its own if it is long. */
static void put_srun(struct submit *s, const char *option, const char *value)
{
    strbuf_printf(s->script, " \\\n        %s", option);
    submit_put_word(s->script, value);
}

/* The same; clears the value. */
static void put_srun_text(struct submit *s, const char *option, struct strbuf *value)
{
    if (strbuf_status(value))
        s->b->status = strbuf_status(value);
    put_srun(s, option, strbuf_str(value));
    strbuf_clear(value);
}

static void put_container(struct submit *s, const char *mounts)
{
    const char *image = node_str(s->container, "image");
    const char *slash = strchr(image, '/'), *mark;
    struct strbuf text;
    size_t host = slash ? (size_t)(slash - image) : 0;

    if (!submit_check_word(s, SUBMIT_FIRST ".image", image))
        return;
    /* pyxis: REGISTRY#IMAGE; the first part is a registry by the rules of docker */
    strbuf_init(&text, OPTIONS_MAX);
    mark = host > 0
                   && (memchr(image, '.', host) || memchr(image, ':', host)
                       || (host == 9 && memcmp(image, "localhost", host) == 0))
               ? "#"
               : "/";
    if (slash)
        strbuf_printf(&text, "%.*s%s%s", (int)host, image, mark, slash + 1);
    else
        strbuf_puts(&text, image);
    put_srun_text(s, "--container-image=", &text);
    strbuf_puts(&text, RUN_DIR ":" RUN_DIR "," RUNTIME_DIR ":" RUNTIME_DIR);
    strbuf_printf(&text, "%s%s", *mounts ? "," : "", mounts);
    put_srun_text(s, "--container-mounts=", &text);
    strbuf_puts(&text, "PYTHONPATH");
    for (const struct submit_var *v = s->var; v; v = v->before) {
        if (submit_find_var(s, v->name) == v)
            strbuf_printf(&text, ",%s", v->name);
    }
    put_srun_text(s, "--no-container-entrypoint --container-env=", &text);
    strbuf_release(&text);
}

static void put_directory(struct submit *s)
{
    const char *dir = node_str(s->container, "workingDir");

    if (dir && *dir && submit_check_word(s, SUBMIT_FIRST ".workingDir", dir))
        put_srun(s, s->uses_container ? "--container-workdir=" : "--chdir=", dir);
}

/* The words of command and args. srun would end its own command at a word ":". */
static void put_words(struct submit *s, const char *field)
{
    const struct node *list = node_get(s->container, field);
    bool is_first = strcmp(field, "command") == 0;
    size_t i = 0;

    for (const struct node *n = list ? list->first : NULL; n; n = n->next, i++) {
        const char *text = n->type == NODE_STRING ? n->u.s : NULL;
        char path[160];

        (void)snprintf(path, sizeof(path), SUBMIT_FIRST ".%s[%zu]", field, i);
        if (!text)
            strbuf_printf(s->problems, "%s: must be a string, is %s\n", path,
                          node_type_name(n->type));
        if (!text || !submit_check_word(s, path, text))
            continue;
        text = submit_expand(s, text);
        if (text && strcmp(text, ":") == 0)
            strbuf_printf(s->problems,
                          "%s: is \":\", with which srun begins another command; write "
                          "the command as text for sh -c\n",
                          path);
        if (is_first && i == 0)
            strbuf_puts(s->script, " \\\n       ");
        strbuf_putc(s->script, ' ');
        submit_put_word(s->script, text ? text : "");
    }
}

static void put_exports(struct submit *s, const struct submit_var *v)
{
    if (!v)
        return;
    put_exports(s, v->before);
    if (v->is_outside || submit_find_var(s, v->name) != v)
        return;
    strbuf_printf(s->script, "    export %s=", v->name);
    submit_put_word(s->script, v->value);
    strbuf_putc(s->script, '\n');
}

static void put_run(struct submit *s, const struct submit_size *z)
{
    struct strbuf keys, mounts;

    strbuf_init(&keys, 1024);
    strbuf_init(&mounts, OPTIONS_MAX);
    put_keys(s, &keys);
    submit_read_mounts(s, &mounts);
    strbuf_printf(s->script,
                  "hvd_srun=$(command -v srun) || exit 127\n"
                  "run() (\n"
                  "    set -- \"$hvd_srun\" --export=ALL --hvd%s",
                  strbuf_str(&keys));
    if (z->cpus_per_task > 0) /* srun does not take that of sbatch */
        strbuf_printf(s->script, " --cpus-per-task=%" PRIu64, z->cpus_per_task);
    if (s->uses_container)
        put_container(s, strbuf_str(&mounts));
    put_directory(s);
    strbuf_puts(s->script, " --");
    put_words(s, "command");
    put_words(s, "args");
    strbuf_putc(s->script, '\n');
    put_exports(s, s->var);
    strbuf_puts(s->script, "    exec \"$@\"\n)\n");
    if (strbuf_status(&mounts) || strbuf_status(&keys))
        s->b->status = -ENOMEM;
    strbuf_release(&keys);
    strbuf_release(&mounts);
}

/* --- jobs that Slurm cannot run ----------------------------------------------------- */

static bool command_has(const struct submit *s, const char *word)
{
    const struct node *lists[] = {node_get(s->container, "command"),
                                  node_get(s->container, "args")};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const struct node *n = lists[i] ? lists[i]->first : NULL; n; n = n->next) {
            if (n->type == NODE_STRING && strstr(n->u.s, word))
                return true;
        }
    }
    return false;
}

static void check_tensorflow(struct submit *s)
{
    const struct hvd_role *role = s->job->role;

    for (int r = 0; r < ROLE_COUNT; r++) {
        if (role[r].is_set
            && !node_equal(role[r].pod_template, role[ROLE_WORKER].pod_template))
            strbuf_printf(s->problems,
                          "spec.replicaSpecs.%s.template: differs from Worker's: the "
                          "tasks of a Slurm job run one command\n",
                          role_title((enum role)r));
    }
    if (role[ROLE_CHIEF].is_set != role[ROLE_PS].is_set)
        strbuf_printf(s->problems,
                      "spec.replicaSpecs: has %s and no %s: srun --hvd starts both "
                      "roles or none\n",
                      role[ROLE_CHIEF].is_set ? "Chief" : "PS",
                      role[ROLE_CHIEF].is_set ? "PS" : "Chief");
    if (s->job->success == SUCCESS_WORKER0 && role[ROLE_PS].is_set
        && !command_has(s, "horovod.compat.strategies"))
        strbuf_puts(s->problems,
                    "spec.successPolicy: Worker0: srun waits for all tasks, and "
                    "parameter servers do not end by themselves; start the script by "
                    "python3 -m horovod.compat.strategies, which ends them\n");
    else if (s->job->success == SUCCESS_WORKER0)
        strbuf_puts(s->notes, "spec.successPolicy: Worker0: all tasks must end with "
                              "exit code 0\n");
}

static void check_job(struct submit *s)
{
    const struct node *command = node_get(s->container, "command");

    if (s->job->elastic.is_set) {
        strbuf_puts(
            s->problems,
            "spec.elasticPolicy: is not supported: run horovodrun --slurm "
            "--min-np in an allocation of salloc or sbatch, see horovodrun(1)\n");
        return;
    }
    if (s->job->role[ROLE_LAUNCHER].is_set) {
        strbuf_puts(s->problems,
                    "spec.replicaSpecs.Launcher: has no counterpart: a launcher "
                    "starts ranks through the agents of worker pods; remove it and "
                    "write the program as Worker's command, which srun --hvd starts as "
                    "ranks\n");
        return;
    }
    if (!command || command->type != NODE_ARRAY || command->n == 0)
        strbuf_puts(s->problems, SUBMIT_FIRST ".command: missing: Slurm does not know "
                                              "the command of an image\n");
    if (s->job->framework == FRAMEWORK_TENSORFLOW)
        check_tensorflow(s);
}

void submit_write(struct submit *s)
{
    struct submit_size z;

    s->pod = node_get(s->job->role[ROLE_WORKER].pod_template, "spec");
    s->container = node_item(node_get(s->pod, "containers"), 0);
    check_job(s);
    if (s->problems->n > 0)
        return;
    submit_read_env(s);
    submit_read_size(s, &z);
    put_head(s, &z);
    put_run(s, &z);
    submit_put_restarts(s);
    submit_note_rest(s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-submit: submits HorovodJobs of YAML files to Slurm (hvd-submit.1).
 *
 * All jobs of all files become scripts (core/) before the first is submitted, so a mistake
 * in the last one submits none. A script is the standard input of sbatch, which prints the
 * id of its job. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "operator/cli/core/show_text.h"
#include "operator/cli/job_input.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "spank_plugin/submit/core/submit.h"

#define SCRIPT_MAX (4u << 20) /* Slurm's default of max_script_size */
#define TEXT_MAX   (4u << 20)
#define ARENA_MAX  (1ull << 30)
#define BAD_USE    2
#define WRITE_NS   (60 * UINT64_C(1000000000))

static const char usage[] =
    "usage: hvd-submit [--dry-run] [--container] FILE... [-- OPTION-OF-SBATCH...]\n"
    "\n"
    "Submits the HorovodJobs in YAML or JSON files to Slurm. FILE -: standard input.\n"
    "\n"
    "  --dry-run    print the scripts instead of submitting them\n"
    "  --container  run the job's image by pyxis, with its hostPath volumes\n"
    "  --help       print this text\n"
    "  --version    print the version\n"
    "\n"
    "Fields without counterpart in Slurm are named on standard error.\n";

struct sbatch_run {
    struct arena arena;
    struct build b;
    bool is_dry, uses_container;
    char **option; /* of sbatch */
    int n_options;
    const char *file; /* the current one, as messages name it */
    const char **script;
    size_t n_scripts, n_bad;
};

static int submit_fail(const char *text, int rc)
{
    struct strbuf b;

    strbuf_init(&b, 1u << 20);
    text_put_safe(&b, text, strlen(text), false);
    (void)fprintf(stderr, "hvd-submit: %s\n", strbuf_str(&b));
    strbuf_release(&b);
    return rc;
}

/* --- files -> scripts -------------------------------------------------------------- */

static void keep_script(struct sbatch_run *m, const struct strbuf *script)
{
    const char **more = arena_calloc(&m->arena, m->n_scripts + 1, sizeof(*m->script));
    const char *copy = arena_strdup(&m->arena, strbuf_str(script));

    if (!more || !copy) {
        m->b.status = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < m->n_scripts; i++)
        more[i] = m->script[i];
    more[m->n_scripts++] = copy;
    m->script = more;
}

static void write_script(struct sbatch_run *m, const struct node *object)
{
    struct strbuf script, notes, problems;
    struct submit s = {.b = &m->b,
                       .object = object,
                       .uses_container = m->uses_container,
                       .script = &script,
                       .notes = &notes,
                       .problems = &problems};

    strbuf_init(&script, SCRIPT_MAX);
    strbuf_init(&notes, TEXT_MAX);
    strbuf_init(&problems, TEXT_MAX);
    s.job = (const struct hvd_job *)job_file_open(&m->b, object, "default", &problems);
    if (s.job && problems.n == 0)
        submit_write(&s);
    else if (!s.job)
        m->b.status = -ENOMEM;
    if (strbuf_status(&script) == -E2BIG)
        strbuf_puts(&problems, "spec: its script has more than 4 MiB\n");
    else if (strbuf_status(&script) || strbuf_status(&notes)
             || strbuf_status(&problems))
        m->b.status = -ENOMEM;
    problems_put(m->file, object, strbuf_str(&problems));
    if (problems.n > 0) {
        m->n_bad++;
    } else {
        problems_put(m->file, object, strbuf_str(&notes));
        keep_script(m, &script);
    }
    strbuf_release(&script);
    strbuf_release(&notes);
    strbuf_release(&problems);
}

/* A job of another operator, by conversion; or no job. */
static void write_foreign(struct sbatch_run *m, const struct node *object)
{
    struct err err = ERR_INIT;
    char text[JOB_FILE_TEXT];
    struct strbuf notes;
    struct node *job;

    strbuf_init(&notes, TEXT_MAX);
    job = job_convert(&m->b, object, &notes, &err);
    if (job) {
        problems_put(m->file, object, strbuf_str(&notes));
        write_script(m, job);
    } else if (err.code != -ENOTSUP) {
        m->n_bad++;
        problem_put(m->file, object->line, err.text);
    } else if (job_file_refuses(object, text)) {
        m->n_bad++;
        problem_put(m->file, job_file_line(object, text), text);
    } else {
        (void)snprintf(text, sizeof(text), "%.100s: is left out: it is not a job",
                       node_str(object, "kind"));
        problem_put(m->file, object->line, text);
    }
    strbuf_release(&notes);
}

static int read_file(struct sbatch_run *m, const char *file)
{
    struct err err = ERR_INIT;
    const struct node *all = NULL;
    int rc = job_input_read(&m->arena, file, &all, &err);

    m->file = job_input_name(file);
    if (rc < 0)
        return submit_fail(err.text, 1);
    for (const struct node *o = rc == 0 ? all->first : NULL; o; o = o->next) {
        if (job_file_kind(o) == KUBE_JOB)
            write_script(m, o);
        else
            write_foreign(m, o);
    }
    return rc;
}

/* --- scripts -> sbatch ------------------------------------------------------------- */

static _Noreturn void run_sbatch(const struct sbatch_run *m, int script)
{
    char **argv = mem_calloc((size_t)m->n_options + 2, sizeof(*argv));
    static char name[] = "sbatch";

    if (!argv)
        _exit(submit_fail("out of memory", 1));
    if (dup2(script, STDIN_FILENO) < 0)
        _exit(submit_fail("sbatch: cannot be started", 1));
    argv[0] = name;
    for (int i = 0; i < m->n_options; i++)
        argv[i + 1] = m->option[i];
    execvp(name, argv);
    _exit(submit_fail(errno == ENOENT ? "sbatch is not in PATH; hvd-submit runs it"
                                      : "sbatch: cannot be executed",
                      errno == ENOENT ? 127 : 126));
}

/* Exit code of sbatch. */
static int submit_one(const struct sbatch_run *m, const char *text)
{
    CLEANUP(fd_close) int fd = memfd_create("script", MFD_CLOEXEC);
    int status = 0;
    pid_t pid;

    if (fd < 0 || fd_write_full(fd, text, strlen(text), clock_now_ns() + WRITE_NS) < 0
        || lseek(fd, 0, SEEK_SET) < 0)
        return submit_fail("the script cannot be kept in memory", 1);
    pid = fork();
    if (pid == 0)
        run_sbatch(m, fd);
    while (pid > 0 && waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            pid = -1;
    }
    if (pid < 0)
        return submit_fail("sbatch: cannot be started", 1);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int submit_all(const struct sbatch_run *m)
{
    for (size_t i = 0; i < m->n_scripts; i++) {
        int rc = 0;

        if (m->is_dry)
            (void)fputs(m->script[i], stdout);
        else
            rc = submit_one(m, m->script[i]);
        if (rc)
            return rc;
    }
    return fflush(stdout) == 0 ? 0
                               : submit_fail("standard output: cannot be written", 1);
}

/* --- arguments --------------------------------------------------------------------- */

/* Moves the files to the front; returns their number, or -1 after a message. */
static int read_arguments(struct sbatch_run *m, int argc, char **argv)
{
    int n = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            m->option = argv + i + 1;
            m->n_options = argc - i - 1;
            break;
        }
        if (strcmp(argv[i], "--dry-run") == 0)
            m->is_dry = true;
        else if (strcmp(argv[i], "--container") == 0)
            m->uses_container = true;
        else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            char text[300];

            (void)snprintf(text, sizeof(text),
                           "%.200s: is not an option; options of sbatch follow --",
                           argv[i]);
            return submit_fail(text, -1);
        } else
            argv[n++] = argv[i];
    }
    if (n == 0)
        return submit_fail("no file is given; - is standard input", -1);
    if (m->is_dry && m->n_options > 0)
        return submit_fail(
            "--dry-run: options of sbatch are no part of the script; pass "
            "them with it to sbatch",
            -1);
    return n;
}

static int submit_files(struct sbatch_run *m, char **file, int n)
{
    int rc = 0;

    for (int i = 0; i < n; i++)
        rc |= read_file(m, file[i]);
    if (m->b.status)
        return submit_fail("out of memory", 1);
    if (rc || m->n_bad > 0)
        return m->n_scripts > 0 ? submit_fail("nothing is submitted", 1) : 1;
    if (m->n_scripts == 0)
        return submit_fail("no job is in these files", 1);
    return submit_all(m);
}

int main(int argc, char **argv)
{
    struct sbatch_run m = {.file = ""};
    int n, rc;

    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return fputs(usage, stdout) < 0;
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts("hvd-submit " HVD_VERSION_STRING) < 0;
    n = read_arguments(&m, argc, argv);
    if (n < 0)
        return BAD_USE;
    arena_init(&m.arena, ARENA_MAX);
    m.b.arena = &m.arena;
    rc = submit_files(&m, argv, n);
    arena_release(&m.arena);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A manifest as kubectl-hvd reads it: what is written as YAML is read as the same tree, and
 * every job in it can be checked, rendered, converted and written as a batch script, whatever it contains. */
#include <math.h>

#include "operator/cli/core/job_file.h"
#include "operator/doc/yaml.h"
#include "runtime/base/mem.h"
#include "spank_plugin/submit/core/submit.h"
#include "tests/fuzz/fuzz.h"

#define ARENA_BYTES (256u << 20)
#define FEW_PODS    64

static const struct object_config cfg = {.runtime_image = "r",
                                         .cluster_domain = "",
                                         .gang = GANG_VOLCANO,
                                         .gang_scheduler = "volcano"};

/* JSON cannot write an infinite number. */
static bool is_finite(const struct node *n)
{
    if (n->type == NODE_REAL && !isfinite(n->u.d))
        return false;
    for (const struct node *c = n->first; c; c = c->next) {
        if (!is_finite(c))
            return false;
    }
    return true;
}

static void check_yaml(struct arena *a, const struct node *one)
{
    struct strbuf out;
    struct node *two;
    struct err err = ERR_INIT;

    if (!is_finite(one))
        return;
    strbuf_init(&out, 64u << 20);
    yaml_write(one, &out);
    MUST(strbuf_status(&out) == 0);
    MUST(yaml_read(a, strbuf_str(&out), out.n, &two, &err) == 0);
    MUST(node_equal(one, two));
    strbuf_release(&out);
}

/* A batch script: what is from outside is in no line of sbatch's. */
static void check_script(struct build *b, const struct node *object, const void *job)
{
    struct strbuf script, notes, problems;
    struct submit s = {.b = b,
                       .object = object,
                       .job = job,
                       .uses_container = object->n % 2,
                       .script = &script,
                       .notes = &notes,
                       .problems = &problems};

    strbuf_init(&script, 16u << 20);
    strbuf_init(&notes, 16u << 20);
    strbuf_init(&problems, 16u << 20);
    submit_write(&s);
    MUST(b->status == 0 && strbuf_status(&notes) == 0);
    if (problems.n == 0) {
        const char *p = strbuf_str(&script);

        MUST(strncmp(p, "#!/bin/sh\n# HorovodJob ", 23) == 0);
        p = strchr(strchr(p, '\n') + 1, '\n') + 1;
        for (; strncmp(p, "#SBATCH --", 10) == 0; p += strcspn(p, "\n") + 1)
            MUST(strcspn(p, " '\"\\$`\t\r") == 7); /* one blank, before the option */
        MUST(strncmp(p, "hvd_srun=", 9) == 0);
    }
    strbuf_release(&script);
    strbuf_release(&notes);
    strbuf_release(&problems);
}

/* Of a job without problems; large ones would only be slow. */
static void check_job(struct build *b, const struct node *object, struct strbuf *notes)
{
    struct err err = ERR_INIT;
    struct job_shape shape;
    uint32_t n = 0;
    const struct job_meta *job;

    if (job_file_kind(object) < 0)
        return;
    strbuf_clear(notes);
    job = job_file_open(b, object, "ns", notes);
    MUST(job);
    front_of(job->kind)->shape(job, &shape);
    for (int r = 0; r < ROLE_COUNT; r++)
        n += shape.n[r];
    if (notes->n > 0 || n > FEW_PODS)
        return;
    if (job->kind == KUBE_JOB)
        check_script(b, object, job);
    if (!job_render(b, object, "ns", &cfg, notes, &err))
        MUST(*err.text);
}

FUZZ_TARGET(manifest)
{
    const char *text = (const char *)data;
    AUTOFREE char *copy = mem_strndup(text, n); /* with a NUL at the end */
    struct arena a;
    struct build b = {.arena = &a};
    struct strbuf notes;
    struct err err = ERR_INIT;
    const struct node *all;
    uint32_t line;

    MUST(copy);
    arena_init(&a, ARENA_BYTES);
    strbuf_init(&notes, 16u << 20);
    if (strlen(copy) == n && n < 65536
        && job_file_read(&a, copy, n, &all, &line, &err) == 0) {
        check_yaml(&a, all);
        for (const struct node *o = all->first; o; o = o->next) {
            check_job(&b, o, &notes);
            strbuf_clear(&notes);
            err = (struct err)ERR_INIT;
            if (!job_convert(&b, o, &notes, &err))
                MUST(*err.text);
            (void)job_file_line(o, "spec.a[0].b: x");
        }
    }
    strbuf_release(&notes);
    arena_release(&a);
    return 0;
}

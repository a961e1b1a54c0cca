/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of batch scripts when memory is out. What it writes is in the transcripts of
 * tests/cli/submit. */
#include "tests/unit/unit.h"

#include "operator/cli/core/job_file.h"
#include "runtime/base/fd.h"
#include "spank_plugin/submit/core/submit.h"
#include "tests/unit/torture.h"

struct writing {
    char *text; /* a job as YAML */
    size_t n;
};

/* The first failure of the builder and the buffers. */
static int write_status(const struct submit *s)
{
    if (s->b->status)
        return s->b->status;
    if (strbuf_status(s->script))
        return strbuf_status(s->script);
    if (strbuf_status(s->notes))
        return strbuf_status(s->notes);
    return strbuf_status(s->problems);
}

static int write_once(void *arg)
{
    const struct writing *w = arg;
    struct arena a;
    struct build b = {.arena = &a};
    struct strbuf script, notes, problems;
    struct submit s = {.b = &b,
                       .uses_container = true,
                       .script = &script,
                       .notes = &notes,
                       .problems = &problems};
    const struct node *all;
    struct err err = ERR_INIT;
    uint32_t line;
    int rc;

    arena_init(&a, 64u << 20);
    strbuf_init(&script, 1u << 20);
    strbuf_init(&notes, 1u << 20);
    strbuf_init(&problems, 1u << 20);
    rc = job_file_read(&a, w->text, w->n, &all, &line, &err);
    if (rc == 0) {
        s.object = all->first;
        s.job = (const void *)job_file_open(&b, s.object, "default", &problems);
        rc = s.job ? 0 : -ENOMEM;
    }
    if (rc == 0 && strbuf_status(&problems) == 0)
        submit_write(&s);
    rc = rc ? rc : write_status(&s);
    if (rc == 0) {
        assert_string_equal(strbuf_str(&problems), "");
        assert_non_null(
            strstr(strbuf_str(&script), "AUTH='Bearer '\"${USER_TOKEN-}\"'!'"));
    }
    strbuf_release(&script);
    strbuf_release(&notes);
    strbuf_release(&problems);
    arena_release(&a);
    return rc;
}

UNIT_TEST(a_script_is_whole_or_memory_is_out)
{
    struct writing w;

    assert_int_equal(
        fd_read_file("tests/cli/submit/mapping.yaml", 1u << 20, &w.text, &w.n, NULL),
        0);
    torture(write_once, &w);
    mem_free(w.text);
}

UNIT_MAIN(NULL, NULL)

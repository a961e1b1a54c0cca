/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the JSON form are those of a HorovodJob's status.failure, and of the live
 * report. Called by step_record.c. */
#include "runtime/launch/core/record_text.h"

#include <string.h>

#include "runtime/base/utf8.h"

static void record_put_name(const char *name, struct strbuf *out)
{
    strbuf_printf(out, "\"%s\":", name);
}

static void record_put_text(const char *name, const char *text, struct strbuf *out)
{
    record_put_name(name, out);
    strbuf_putc(out, '"');
    utf8_put_json(text, out);
    strbuf_putc(out, '"');
}

static void record_put_failure(const struct failure *f, struct strbuf *out)
{
    strbuf_puts(out, ",\"failure\":{");
    if (f->rank >= 0) {
        strbuf_printf(out, "\"rank\":%d,", f->rank);
        record_put_text("node", f->host, out);
        strbuf_putc(out, ',');
    }
    if (f->exit_code)
        strbuf_printf(out, "\"exitCode\":%d,", f->exit_code);
    if (f->signal)
        strbuf_printf(out, "\"signal\":%d,", f->signal);
    record_put_text("message", f->why, out);
    strbuf_putc(out, '}');
}

static void record_put_json(const struct job_record *r,
                            const struct step_comment *c,
                            const struct failure *f,
                            struct strbuf *out)
{
    strbuf_putc(out, '{');
    record_put_text("state", c ? (f ? "Failed" : "Ended") : "Pending", out);
    strbuf_printf(out, ",\"slurm\":{\"job\":%u,", r->job);
    if (c)
        strbuf_printf(out, "\"step\":%u,", c->step);
    record_put_text("state", r->state, out);
    if (!c) {
        strbuf_putc(out, ',');
        record_put_text("reason", r->reason, out);
    }
    strbuf_putc(out, '}');
    if (f)
        record_put_failure(f, out);
    if (c) {
        strbuf_putc(out, ',');
        record_put_text("line", c->line, out);
    }
    strbuf_puts(out, "}\n");
}

/* The line may be of another user: it must not control a terminal. */
static void record_put_lines(const struct job_record *r,
                             const struct step_comment *c,
                             struct strbuf *out)
{
    strbuf_printf(out, "Slurm job %u, step %u: %s\n", r->job, c->step, r->state);
    for (const char *p = c->line; *p; p++)
        strbuf_putc(out, (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
    strbuf_putc(out, '\n');
}

bool record_text(const struct job_record *r,
                 const struct step_word *w,
                 bool is_json,
                 struct strbuf *out)
{
    struct step_comment c;
    struct failure f;
    bool has_comment = step_comment_read(r->comment, &c) && c.job == r->job
                       && (!w->has_step || c.step == w->step);
    bool is_pending =
        strcmp(r->state, "PENDING") == 0 || strcmp(r->state, "CONFIGURING") == 0;
    bool has_failed;

    if (!is_pending && !has_comment)
        return false;
    has_failed = !is_pending && step_comment_failure(c.line, &f);
    if (is_json)
        record_put_json(r, is_pending ? NULL : &c, has_failed ? &f : NULL, out);
    else if (is_pending)
        strbuf_printf(out, "Slurm job %u is %s: it has no ranks yet (%s)\n", r->job,
                      r->state, r->reason);
    else
        record_put_lines(r, &c, out);
    return true;
}

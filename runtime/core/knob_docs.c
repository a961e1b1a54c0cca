/* SPDX-License-Identifier: Apache-2.0 */
/* The table of variables as Markdown and mdoc. Called by core_knobs_test, which keeps
 * runtime/doc/variables.md and runtime/hvd-environment.7 equal to the table; not part
 * of libhvd.so. Names that only Horovod's build reads are listed without a row. */
#include <string.h>

#include "runtime/core/knobs.h"

static bool knob_is_of_build(const struct knob *k)
{
    return strcmp(k->why, KNOB_BUILD) == 0;
}

static const char *knob_status_text(enum knob_status s)
{
    switch (s) {
    case KNOB_HONOURED:
        return "";
    case KNOB_NO_EFFECT:
        return "no effect";
    case KNOB_NOT_YET:
        return "not yet, logged as a warning";
    case KNOB_REFUSED:
        return "refused";
    }
    return "";
}

/* The unit that follows a value, as in "30 s". */
static const char *knob_unit_text(enum knob_kind kind)
{
    switch (kind) {
    case KNOB_SECONDS:
        return " s";
    case KNOB_MS:
        return " ms";
    case KNOB_BOOL:
    case KNOB_NUMBER:
    case KNOB_DECIMAL:
    case KNOB_BYTES:
    case KNOB_MIB:
    case KNOB_TEXT:
    case KNOB_LIST:
    case KNOB_CHOICE:
        break;
    }
    return "";
}

static void knob_put_choices(const struct knob *k, struct strbuf *out)
{
    const char *p = k->choices;

    if (!*p)
        return;
    strbuf_puts(out, " (");
    for (; *p; p++) {
        strbuf_putc(out, *p == ' ' ? ',' : *p);
        if (*p == ' ')
            strbuf_putc(out, ' ');
    }
    strbuf_putc(out, ')');
}

static void knobs_put_build_names(struct strbuf *out, const char *quote)
{
    const char *separator = "";

    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob *k = knob_row((enum knob_id)i);

        if (!knob_is_of_build(k))
            continue;
        strbuf_printf(out, "%s%s%s%s", separator, quote, k->name, quote);
        separator = ",\n";
    }
}

static void knob_put_markdown(const struct knob *k, struct strbuf *out)
{
    strbuf_printf(out, "| `%s` | %s%s | %s", k->name,
                  k->fallback[0] ? k->fallback : "-",
                  k->fallback[0] ? knob_unit_text(k->kind) : "", k->meaning);
    knob_put_choices(k, out);
    if (k->status == KNOB_HONOURED)
        strbuf_puts(out, " |\n");
    else
        strbuf_printf(out, " | %s: %s |\n", knob_status_text(k->status), k->why);
}

void knobs_markdown(struct strbuf *out)
{
    strbuf_puts(out, "| variable | default | meaning |\n|---|---|---|\n");
    for (int i = 0; i < KNOB_COUNT; i++)
        if (knob_row((enum knob_id)i)->status == KNOB_HONOURED)
            knob_put_markdown(knob_row((enum knob_id)i), out);
    strbuf_puts(out,
                "\nAccepted so that scripts written for Horovod run; the values are "
                "checked all the same:\n\n"
                "| variable | default | meaning | here |\n|---|---|---|---|\n");
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob *k = knob_row((enum knob_id)i);

        if (k->status != KNOB_HONOURED && !knob_is_of_build(k))
            knob_put_markdown(k, out);
    }
    strbuf_puts(out,
                "\nWithout effect, because they belong to the build of Horovod:\n");
    knobs_put_build_names(out, "`");
    strbuf_puts(out, ".\n");
}

static void knob_put_man(const struct knob *k, struct strbuf *out)
{
    strbuf_printf(out, ".It Ev %s\n%s", k->name, k->meaning);
    knob_put_choices(k, out);
    if (k->fallback[0])
        strbuf_printf(out, " (default: %s%s)", k->fallback, knob_unit_text(k->kind));
    strbuf_puts(out, ".\n");
    if (k->status != KNOB_HONOURED)
        strbuf_printf(out, "Here %s: %s.\n", knob_status_text(k->status), k->why);
}

void knobs_man(struct strbuf *out)
{
    strbuf_puts(out, ".Bl -tag -width Ds\n");
    for (int i = 0; i < KNOB_COUNT; i++)
        if (!knob_is_of_build(knob_row((enum knob_id)i)))
            knob_put_man(knob_row((enum knob_id)i), out);
    strbuf_puts(
        out,
        ".El\n.Pp\nWithout effect, because they belong to the build of Horovod:\n");
    knobs_put_build_names(out, "");
    strbuf_puts(out, ".\n");
}

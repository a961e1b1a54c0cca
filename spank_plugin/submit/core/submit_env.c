/* SPDX-License-Identifier: Apache-2.0 */
/* The variables of the container, and words of the script.
 *
 * A value that YAML does not have (a Secret's, say) is that of the environment in which
 * hvd-submit runs: sbatch sends it with the job. Where other values refer to it, the
 * shell puts it in place: in expanded texts it is BEGIN NAME END, two control characters
 * that no text from outside can have.
 *
 * Everything else is between single quotes, so nothing in it is code. */
#include "spank_plugin/submit/core/submit.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

#define BEGIN          '\001'
#define END            '\002'
#define VARS_MAX       10000 /* more than an object of Kubernetes can have */
#define WORD_MAX_BYTES (1u << 20)

/* --- words --- */

static bool is_plain(const char *text)
{
    for (const char *p = text; *p; p++) {
        if (!isalnum((unsigned char)*p) && !strchr("_@%+=:,./-", *p))
            return false;
    }
    return *text != '\0';
}

/* Between single quotes, in which only the quote itself is special. */
static const char *put_quoted(struct strbuf *out, const char *p)
{
    strbuf_putc(out, '\'');
    for (; *p && *p != BEGIN; p++) {
        if (*p == '\'')
            strbuf_puts(out, "'\\''");
        else
            strbuf_putc(out, *p);
    }
    strbuf_putc(out, '\'');
    return p;
}

void submit_put_word(struct strbuf *out, const char *text)
{
    if (is_plain(text) || !*text) {
        strbuf_puts(out, *text ? text : "''");
        return;
    }
    while (*text) {
        size_t n;

        if (*text != BEGIN) {
            text = put_quoted(out, text);
            continue;
        }
        n = strcspn(++text, "\002");
        strbuf_printf(out, "\"${%.*s-}\"", (int)n, text);
        text += n + (text[n] == END);
    }
}

bool submit_check_word(struct submit *s, const char *path, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if ((*p >= ' ' && *p != 0x7f) || *p == '\n' || *p == '\t')
            continue;
        strbuf_printf(s->problems,
                      "%s: has the control character 0x%02x; a batch script can have "
                      "only tabs and newlines\n",
                      path, *p);
        return false;
    }
    return true;
}

/* --- expansion --- */

const struct submit_var *submit_find_var(const struct submit *s, const char *name)
{
    const struct submit_var *v = s->var;

    while (v && strcmp(v->name, name) != 0)
        v = v->before;
    return v;
}

/* text is behind "$(". Appends what the reference stands for; returns the rest. */
static const char *put_reference(struct submit *s, const char *text, struct strbuf *out)
{
    size_t n = strcspn(text, ")");
    const struct submit_var *v = NULL;
    const char *name;

    if (text[n] != ')') {
        strbuf_puts(out, "$(");
        return text;
    }
    name = arena_printf(s->b->arena, "%.*s", (int)n, text);
    if (name)
        v = submit_find_var(s, name);
    else
        s->b->status = -ENOMEM;
    if (v)
        strbuf_puts(out, v->value);
    else
        strbuf_printf(out, "$(%.*s)", (int)n, text);
    return text + n + 1;
}

const char *submit_expand(struct submit *s, const char *text)
{
    const char *copy = NULL;
    struct strbuf out;

    strbuf_init(&out, WORD_MAX_BYTES);
    while (*text) {
        if (text[0] == '$' && text[1] == '(') {
            text = put_reference(s, text + 2, &out);
            continue;
        }
        strbuf_putc(&out, *text);
        text += text[0] == '$' && text[1] == '$' ? 2 : 1;
    }
    if (!strbuf_status(&out))
        copy = arena_strdup(s->b->arena, strbuf_str(&out));
    if (!copy)
        s->b->status = strbuf_status(&out) ? strbuf_status(&out) : -ENOMEM;
    strbuf_release(&out);
    return copy;
}

/* --- variables --- */

/* Which the shell can export. */
static bool is_variable(const char *name)
{
    static const char *const fixed[] = {"BASHOPTS", "BASH_VERSINFO", "EUID",
                                        "PPID",     "SHELLOPTS",     "UID"};

    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        if (strcmp(name, fixed[i]) == 0)
            return false;
    }
    if (isdigit((unsigned char)*name) || !*name)
        return false;
    while (isalnum((unsigned char)*name) || *name == '_')
        name++;
    return !*name;
}

static void add_var(struct submit *s, const char *name, const char *value, bool outside)
{
    struct submit_var *v = arena_calloc(s->b->arena, 1, sizeof(*v));

    if (!v || !name || !value) {
        s->b->status = s->b->status ? s->b->status : -ENOMEM;
        return;
    }
    *v = (struct submit_var){name, value, outside, s->var};
    s->var = v;
}

/* A variable with a source instead of a value. */
static void
read_source(struct submit *s, const struct node *e, const char *name, const char *path)
{
    const char *field = node_str(e, "valueFrom.fieldRef.fieldPath");
    const struct node *from = node_get(e, "valueFrom");

    if (field && strcmp(field, "metadata.namespace") == 0) {
        add_var(s, name, arena_strdup(s->b->arena, s->job->meta.ns), false);
        return;
    }
    strbuf_printf(s->notes,
                  "%s.valueFrom: %s has no counterpart: set %s in the environment of "
                  "hvd-submit\n",
                  path,
                  field         ? field
                  : from->first ? from->first->key
                                : "it",
                  name);
    add_var(s, name, arena_printf(s->b->arena, "%c%s%c", BEGIN, name, END), true);
}

static void read_entry(struct submit *s, const struct node *e, size_t i)
{
    const char *name = node_str(e, "name"), *value = node_str(e, "value");
    char path[160];

    (void)snprintf(path, sizeof(path), SUBMIT_FIRST ".env[%zu]", i);
    if (!name || !is_variable(name)) {
        strbuf_printf(s->problems,
                      "%s.name: must be letters, digits and \"_\", not begin with a "
                      "digit, and not be a variable that the shell fixes\n",
                      path);
        return;
    }
    if (node_get(e, "valueFrom")) {
        read_source(s, e, name, path);
        return;
    }
    if (node_get(e, "value") && !value) {
        strbuf_printf(s->problems, "%s.value: must be a string\n", path);
        return;
    }
    value = value ? value : "";
    if (submit_check_word(s, path, value))
        add_var(s, name, submit_expand(s, value), false);
}

void submit_read_env(struct submit *s)
{
    const struct node *list = node_get(s->container, "env");
    size_t i = 0;

    for (int k = 0; k < KNOB_COUNT; k++) {
        const char *name = hvd_knob_variable((enum hvd_knob)k);

        if (s->job->knob[k] && k != KNOB_START_TIMEOUT && k != KNOB_METRICS_PORT
            && submit_check_word(s, name, s->job->knob[k]))
            add_var(s, name, s->job->knob[k], false);
    }
    if (list && list->n > VARS_MAX) {
        strbuf_printf(s->problems, SUBMIT_FIRST ".env: has more than %d variables\n",
                      VARS_MAX);
        return;
    }
    for (const struct node *e = list ? list->first : NULL; e; e = e->next)
        read_entry(s, e, i++);
    if (node_get(s->container, "envFrom"))
        strbuf_puts(s->notes, SUBMIT_FIRST
                    ".envFrom: has no counterpart: set these variables in the "
                    "environment of hvd-submit\n");
}

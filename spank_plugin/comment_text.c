/* SPDX-License-Identifier: Apache-2.0 */
/* Called by comment.c and keys.c. Each line costs slurmctld one read and one update of a
 * job, so a step has at most one in COMMENT_EVERY_S, and a failure, which is the last. */
#include "spank_plugin/comment_text.h"

#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

static const char ended[] = "Ended: ";

int comment_mode_parse(const char *word)
{
    static const char *const words[] = {[COMMENT_OFF] = "off",
                                        [COMMENT_FAILURE] = "failure",
                                        [COMMENT_PROGRESS] = "progress"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(word, words[i]) == 0)
            return (int)i;
    return -1;
}

static void comment_put_state(const struct comment_facts *f, struct strbuf *out)
{
    if (f->is_over)
        strbuf_printf(out, "%s%u ranks", ended, f->n_tasks);
    else if (f->n_joined >= f->n_tasks && *f->report)
        strbuf_puts(out, f->report);
    else if (f->n_joined >= f->n_tasks)
        strbuf_printf(out, "Training: %u ranks", f->n_tasks);
    else if (f->n_ready >= f->n_tasks)
        strbuf_printf(out, "Starting: %u of %u ranks have called hvd.init()",
                      f->n_joined, f->n_tasks);
    else
        strbuf_printf(out, "Meeting: %u of %u tasks are ready", f->n_ready, f->n_tasks);
}

void comment_line(enum comment_mode mode,
                  const struct comment_facts *f,
                  struct strbuf *out)
{
    char text[512];

    if (mode == COMMENT_OFF)
        return;
    if (*f->sentence) {
        strbuf_printf(out, STEP_COMMENT_FAILED "%s", f->sentence);
    } else if (f->first) {
        failure_sentence(f->first, text, sizeof(text));
        strbuf_printf(out, STEP_COMMENT_FAILED "%s", text);
    } else if (mode == COMMENT_PROGRESS) {
        comment_put_state(f, out);
    }
}

/* The state is the word before the colon. */
static bool comment_is_same_state(const char *a, const char *b)
{
    size_t n = strcspn(a, ":");

    return n == strcspn(b, ":") && strncmp(a, b, n) == 0;
}

uint64_t comment_due_ns(const struct comment_pace *p, const char *line)
{
    if (!*line || strcmp(line, p->last) == 0)
        return UINT64_MAX;
    if (strncmp(line, STEP_COMMENT_FAILED, strlen(STEP_COMMENT_FAILED)) == 0)
        return 0;
    if (strncmp(line, ended, strlen(ended)) == 0)
        return p->last[0] ? 0 : UINT64_MAX;
    if (!p->last[0])
        return p->start_ns + COMMENT_FIRST_S * NS_PER_S;
    return p->last_ns
           + (comment_is_same_state(line, p->last) ? COMMENT_EVERY_S : COMMENT_STATE_S)
                 * NS_PER_S;
}

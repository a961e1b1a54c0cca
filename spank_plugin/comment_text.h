/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a step in its job's comment, and when it may be written. Pure. */
#ifndef SPANK_PLUGIN_COMMENT_TEXT_H
#define SPANK_PLUGIN_COMMENT_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/strbuf.h"
#include "runtime/contract/step_comment.h"

enum comment_mode {
    COMMENT_OFF,
    COMMENT_FAILURE, /* the first failure only: a step that succeeds writes nothing */
    COMMENT_PROGRESS,
};
/* -1: no such word. */
int comment_mode_parse(const char *word);

struct comment_facts {
    uint32_t n_tasks, n_ready, n_joined; /* at the gate, at the rendezvous */
    bool is_over;
    const char *sentence;        /* why the step was not set up; "": it was */
    const struct failure *first; /* NULL: no task has failed */
    const char *report;          /* of hvd-status; "": none */
};
/* Appends the line, or nothing. The states are those of the live report. */
void comment_line(enum comment_mode mode,
                  const struct comment_facts *f,
                  struct strbuf *out);

#define COMMENT_FIRST_S 20 /* a shorter step writes nothing but its failure */
#define COMMENT_STATE_S 5  /* between two lines of different states */
#define COMMENT_EVERY_S 30 /* between two lines of one state */
struct comment_pace {
    uint64_t start_ns, last_ns;  /* of the step; of the last line, 0: none */
    char last[STEP_COMMENT_MAX]; /* "": none */
};
/* When the line may be written; UINT64_MAX: never. */
uint64_t comment_due_ns(const struct comment_pace *p, const char *line);

#endif

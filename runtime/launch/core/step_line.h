/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the live report as lines of text: what `hvd-agent step` prints on each node of a
 * Slurm step, srun labels with the number of its task, and hvd-status reads. Pure.
 *
 *   line       "KIND NUMBER MORE HEX\n"    MORE: '+' if the next line continues the part,
 *                                          '.' at its end
 *   with label "TASK: " before it
 *
 * srun passes lines of less than 1024 bytes whole, so lines of several nodes do not mix. */
#ifndef RUNTIME_LAUNCH_CORE_STEP_LINE_H
#define RUNTIME_LAUNCH_CORE_STEP_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

#define STEP_LINE_MAX 1000
#define STEP_PART_MAX 65536 /* bytes of a part */

/* The letters are those of the lines. */
enum step_kind {
    STEP_HELLO = 'N', /* a struct step_hello, as text */
    STEP_RECORD = 'R',
    STEP_STALL = 'S',
    STEP_FINDING = 'F', /* the number is that of the examination */
    STEP_FACTS = 'K',   /* of hvd-slurm-check (node_facts.h) */
};

struct step_hello { /* of a node: when it begins, and when its ranks have changed */
    uint32_t n_ranks, first, last; /* of this node; first and last rank */
    uint32_t size;                 /* of the job; 0: no rank is here */
    uint64_t run_ms;               /* since the first of its tasks was started */
    char host[256];
};
void step_hello_put(const struct step_hello *h, struct strbuf *out);
int step_hello_parse(const void *p, size_t n, struct step_hello *ret, struct err *err);

/* Appends the lines of a part. */
void step_line_put(
    enum step_kind kind, uint32_t number, const void *p, size_t n, struct strbuf *out);

/* What has come from one node. */
struct step_part {
    enum step_kind kind;
    uint32_t number;
    struct strbuf data;
    bool is_open; /* another line follows */
};
void step_part_release(struct step_part *p); /* accepts a zeroed one */
/* Replaces control characters by "?": what nodes send must not control a terminal. */
void step_line_clean(char *text);
/* The task of a labelled line, and where the rest of it begins. False: it has no label. */
bool step_line_label(const char *line, uint32_t *ret_task, const char **ret_rest);
/* line: without label and line feed. 1: *p is complete, until the next call; 0: more lines
 * follow; -EPROTO: something else was printed. */
int step_part_take(struct step_part *p, const char *line, struct err *err);

#endif

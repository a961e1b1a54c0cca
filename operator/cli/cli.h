/* SPDX-License-Identifier: Apache-2.0 */
/* One run of kubectl-hvd: what every command gets. */
#ifndef OPERATOR_CLI_CLI_H
#define OPERATOR_CLI_CLI_H

#include "operator/cli/core/cli_args.h"
#include "runtime/base/arena.h"
#include "runtime/base/strbuf.h"

#define CLI_MAX_BYTES (512u << 20) /* of what kubectl answers, and of what is printed */

#define CLI_JSONPATH  "jsonpath="

enum cli_format {
    FORMAT_TABLE,
    FORMAT_WIDE,
    FORMAT_JSON,
    FORMAT_YAML,
    FORMAT_JSONPATH,
    FORMAT_KUBECTL,
};

struct cli {
    struct cli_args args;
    struct arena arena;
    struct strbuf out; /* printed by cli_print or at the end */
    bool is_terminal, has_colour;
};

/* Exit status of a command; it has printed its errors by cli_fail. */
typedef int (*cli_command_fn)(struct cli *c);
int offline_validate(struct cli *c);
int offline_render(struct cli *c);
int offline_convert(struct cli *c);
int online_list(struct cli *c);
int online_status(struct cli *c);
int online_explain(struct cli *c);
int online_hosts(struct cli *c);
int online_events(struct cli *c);
int online_top(struct cli *c);
int online_stacks(struct cli *c);
int online_logs(struct cli *c);
int online_timeline(struct cli *c);
int online_scale(struct cli *c);
int online_suspend(struct cli *c);
int online_resume(struct cli *c);
int online_restart(struct cli *c);
int online_page(struct cli *c);
int online_complete(struct cli *c);

/* Writes the output so far to standard output. 0, or 1 if nobody reads it. */
int cli_print(struct cli *c);
/* "kubectl-hvd: TEXT" to standard error, made safe; returns 1. */
int cli_fail(const char *text);
/* The same for a note after which the command continues. */
void cli_note(const char *text);
/* FORMAT_KUBECTL: a format of kubectl get that is not ours. */
enum cli_format cli_format(const struct cli *c);
bool cli_wants_table(const struct cli *c); /* also a wide one */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of kubectl-hvd: parser, help, man page and completion, from cli_table.h.
 * Pure. */
#ifndef OPERATOR_CLI_CORE_CLI_ARGS_H
#define OPERATOR_CLI_CORE_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>

#include "operator/cli/core/cli_table.h"
#include "runtime/base/err.h"
#include "runtime/base/strbuf.h"

enum cli_command {
#define X(id, name, words, min, max, help) CLI_##id,
    CLI_COMMANDS(X)
#undef X
        CLI_COMMAND_COUNT,
    CLI_NONE = CLI_COMMAND_COUNT,
};
enum cli_option {
#define X(id, spelling, letter, value, kind, commands, help) CLI_OPT_##id,
    CLI_OPTIONS(X)
#undef X
        CLI_OPTION_COUNT,
};

#define CLI_MAX_ARGS 1100

struct cli_args { /* strings are those of argv */
    enum cli_command command;
    const char *word[CLI_MAX_ARGS], *file[CLI_MAX_ARGS], *pass[CLI_MAX_ARGS];
    size_t n_words, n_files, n_pass; /* pass: options for every
                                          run of kubectl */
    const char
        *value[CLI_OPTION_COUNT]; /* the last; "" of a set option without value */
    bool is_namespaced;           /* -n or -A is in pass */
};

/* -EINVAL with err: "no command \"lst\"; did you mean list?". *ret is then not used.
 * Without a command ret->command is CLI_NONE. */
int cli_args_parse(int argc,
                   const char *const *argv,
                   struct cli_args *ret,
                   struct err *err);
bool cli_has(const struct cli_args *a, enum cli_option o);
const char *cli_command_name(enum cli_command c);

void cli_help(enum cli_command c, struct strbuf *out); /* CLI_NONE: the overview */
void cli_man(struct strbuf *out); /* mdoc: commands, then options */
/* What can follow these words; the last one is incomplete. Lines for kubectl's and
 * bash's completion. True: the name of a job. */
bool cli_complete(const char *const *word, size_t n, struct strbuf *out);

#endif

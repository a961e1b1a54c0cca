/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of kubectl-hvd's arguments.
 *
 * Options of kubectl may stand before the command, other options only after it, because
 * the command decides what -f means. "--" ends the options. Everything for kubectl is
 * kept as it was written, in order; kubectl itself checks the values. */
#include "operator/cli/core/cli_args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/spelling.h"

enum cli_kind { CLI_OWN, CLI_KUBECTL };

static const struct cli_command_row {
    const char *name, *words, *help;
    size_t min, max;
} commands[] = {
#define X(id, name, words, min, max, help) {name, words, help, min, max},
    CLI_COMMANDS(X)
#undef X
};

static const struct cli_option_row {
    const char *spelling, *value, *help;
    enum cli_kind kind;
    unsigned commands;
    char letter;
} options[] = {
#define X(id, spelling, letter, value, kind, commands, help)                           \
    {spelling, value, help, CLI_##kind, commands, letter},
    CLI_OPTIONS(X)
#undef X
};

bool cli_has(const struct cli_args *a, enum cli_option o)
{
    return a->value[o] != NULL;
}

const char *cli_command_name(enum cli_command c)
{
    return c < CLI_COMMAND_COUNT ? commands[c].name : "";
}

static bool option_is_for(const struct cli_option_row *o, enum cli_command c)
{
    if (c == CLI_NONE)
        return o->kind == CLI_KUBECTL || o->commands == ~0u;
    return (o->commands >> c) & 1u;
}

/* The row of "--name", "--name=value", "-x", "-xvalue"; -1: none. */
static int option_find(const char *s, enum cli_command c, const char **ret_inline)
{
    size_t n = strcspn(s, "=");

    *ret_inline = NULL;
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        const struct cli_option_row *o = &options[i];

        if (!option_is_for(o, c))
            continue;
        if (s[1] == '-' && strncmp(o->spelling, s, n) == 0 && o->spelling[n] == '\0') {
            *ret_inline = s[n] ? s + n + 1 : NULL;
            return i;
        }
        if (s[1] != '-' && o->letter && s[1] == o->letter) {
            *ret_inline = s[2] ? s + 2 + (s[2] == '=') : NULL;
            return i;
        }
    }
    return -1;
}

/* The nearest spelling that the command accepts; NULL: none is near. */
static const char *option_guess(const char *s, enum cli_command c)
{
    size_t n = strcspn(s, "=");
    const char *best = NULL;
    unsigned least = 3;

    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        const char *o = options[i].spelling;
        unsigned d = spelling_distance(s, n, o, strlen(o));

        if (option_is_for(&options[i], c) && d < least) {
            least = d;
            best = o;
        }
    }
    return best;
}

static const char *command_guess(const char *s)
{
    const char *best = NULL;
    unsigned least = 3;

    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        const char *o = commands[i].name;
        unsigned d = spelling_distance(s, strlen(s), o, strlen(o));

        if (*commands[i].help && d < least) {
            least = d;
            best = o;
        }
    }
    return best;
}

static int refuse_option(const char *s, enum cli_command c, struct err *err)
{
    const char *guess = option_guess(s, c);

    return err_set(err, -EINVAL, "%s: no such option%s%s; %s%s%s", s,
                   c == CLI_NONE ? "" : " of ", cli_command_name(c),
                   guess ? "did you mean " : "see kubectl hvd --help",
                   guess ? guess : "", guess ? "?" : "");
}

/* One option at argv[*i]; moves *i to its value. */
static int parse_option(
    int argc, const char *const *argv, int *i, struct cli_args *a, struct err *err)
{
    const char *s = argv[*i], *value;
    int at = option_find(s, a->command, &value);
    const struct cli_option_row *o = &options[at < 0 ? 0 : at];
    bool is_passed = o->kind == CLI_KUBECTL && at != CLI_OPT_NAMESPACE
                     && at != CLI_OPT_ALL && at != CLI_OPT_SELECTOR;

    if (at < 0)
        return refuse_option(s, a->command, err);
    if (!*o->value && value && o->kind == CLI_OWN)
        return err_set(err, -EINVAL, "%s: takes no value", o->spelling);
    if (*o->value && !value) {
        if (*i + 1 >= argc)
            return err_set(err, -EINVAL, "%s: needs a value: %s", o->spelling,
                           o->value);
        value = argv[*i + 1];
        if (is_passed)
            a->pass[a->n_pass++] = s;
        s = value;
        *i += 1;
    }
    a->value[at] = value ? value : "";
    if (is_passed)
        a->pass[a->n_pass++] = s;
    if (at == CLI_OPT_FILE)
        a->file[a->n_files++] = value;
    return 0;
}

static int parse_word(const char *s, struct cli_args *a, struct err *err)
{
    const char *guess;

    if (a->command != CLI_NONE) {
        a->word[a->n_words++] = s;
        return 0;
    }
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        if (strcmp(s, commands[i].name) == 0) {
            a->command = (enum cli_command)i;
            return 0;
        }
    }
    guess = command_guess(s);
    return err_set(err, -EINVAL, "no command \"%s\"; %s%s%s", s,
                   guess ? "did you mean " : "see kubectl hvd --help",
                   guess ? guess : "", guess ? "?" : "");
}

static int check_words(const struct cli_args *a, struct err *err)
{
    const struct cli_command_row *c;

    if (a->command == CLI_NONE || cli_has(a, CLI_OPT_HELP))
        return 0;
    c = &commands[a->command];
    if (a->n_words >= c->min && a->n_words <= c->max)
        return 0;
    return err_set(err, -EINVAL, "%s: has %zu words after it; usage: kubectl hvd %s %s",
                   c->name, a->n_words, c->name, c->words);
}

int cli_args_parse(int argc,
                   const char *const *argv,
                   struct cli_args *ret,
                   struct err *err)
{
    bool is_end = false;
    int rc = 0;

    memset(ret, 0, sizeof(*ret));
    ret->command = CLI_NONE;
    if (argc > CLI_MAX_ARGS)
        return err_set(err, -EINVAL, "%d arguments are more than %d", argc,
                       CLI_MAX_ARGS);
    for (int i = 1; i < argc && rc == 0; i++) {
        const char *s = argv[i];

        if (ret->command == CLI_COMPLETE)
            ret->word[ret->n_words++] = s;
        else if (!is_end && strcmp(s, "--") == 0)
            is_end = true;
        else if (!is_end && s[0] == '-' && s[1])
            rc = parse_option(argc, argv, &i, ret, err);
        else
            rc = parse_word(s, ret, err);
    }
    return rc < 0 ? rc : check_words(ret, err);
}

/* --- help ------------------------------------------------------------------------ */

static void help_option(const struct cli_option_row *o, struct strbuf *out)
{
    char letter[8] = "    ";

    if (o->letter)
        (void)snprintf(letter, sizeof(letter), "-%c, ", o->letter);
    strbuf_printf(out, "  %s%s%s%s\n      %s\n", letter, o->spelling,
                  *o->value ? " " : "", o->value, o->help);
}

static void help_command(enum cli_command c, struct strbuf *out)
{
    strbuf_printf(out, "usage: kubectl hvd %s %s\n%s\n\noptions:\n", commands[c].name,
                  commands[c].words, commands[c].help);
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        if (option_is_for(&options[i], c) && *options[i].help)
            help_option(&options[i], out);
    }
    if ((ON_CLUSTER >> c) & 1u)
        strbuf_puts(out,
                    "\nThe options of kubectl that select a cluster and a user are "
                    "passed on to it.\n");
}

void cli_help(enum cli_command c, struct strbuf *out)
{
    if (c != CLI_NONE) {
        help_command(c, out);
        return;
    }
    strbuf_puts(out, "usage: kubectl hvd COMMAND [options]\n"
                     "Shows and changes HorovodJobs and MPIJobs.\n\n");
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        if (*commands[i].help)
            strbuf_printf(out, "  %-9s %-9s  %s\n", commands[i].name, commands[i].words,
                          commands[i].help);
    }
    strbuf_puts(out, "\nJOB is the name of a job, horovodjob/NAME or mpijob/NAME.\n"
                     "kubectl hvd COMMAND --help shows the options of a command.\n");
}

/* "[JOB...]" and the like, with what mdoc needs. */
static void man_words(const char *words, struct strbuf *out)
{
    if (*words == '[')
        strbuf_printf(out, " Op Ar %.*s", (int)(strlen(words) - 2), words + 1);
    else if (*words)
        strbuf_printf(out, " Ar %s", words);
    strbuf_putc(out, '\n');
}

void cli_man(struct strbuf *out)
{
    strbuf_puts(out, ".Ss Commands\n.Bl -tag -width Ds\n");
    for (int i = 0; i < CLI_COMMAND_COUNT; i++) {
        if (!*commands[i].help)
            continue;
        strbuf_printf(out, ".It Cm %s", commands[i].name);
        man_words(commands[i].words, out);
        strbuf_printf(out, "%s.\n", commands[i].help);
    }
    strbuf_puts(out, ".El\n.Ss Options\n.Bl -tag -width Ds\n");
    for (int i = 0; i < CLI_OPTION_COUNT; i++) {
        const struct cli_option_row *o = &options[i];

        if (!*o->help)
            continue;
        strbuf_puts(out, ".It ");
        if (o->letter)
            strbuf_printf(out, "Fl %c , ", o->letter);
        strbuf_printf(out, "Fl Fl %s%s%s\n%s", o->spelling + 2, *o->value ? " Ar " : "",
                      o->value, o->help);
        strbuf_puts(out, ".\n");
        if (o->commands == ~0u)
            continue;
        strbuf_puts(out, "Commands:");
        for (int c = 0, n = 0; c < CLI_COMMAND_COUNT; c++) {
            if ((o->commands >> c) & 1u)
                strbuf_printf(out, "%s %s", n++ ? "," : "", commands[c].name);
        }
        strbuf_puts(out, ".\n");
    }
    strbuf_puts(out, ".El\n");
}

/* --- completion ------------------------------------------------------------------ */

static void
put_if(struct strbuf *out, const char *word, const char *start, const char *help)
{
    if (strncmp(word, start, strlen(start)) == 0)
        strbuf_printf(out, "%s%s%s\n", word, *help ? "\t" : "", help);
}

static void complete_values(int option, const char *start, struct strbuf *out)
{
    static const char *const formats[] = {"table", "wide", "json",
                                          "yaml",  "name", "jsonpath="};

    for (size_t i = 0; i < ARRAY_LEN(formats) && option == CLI_OPT_OUTPUT; i++)
        put_if(out, formats[i], start, "");
}

/* The words before the last one. */
struct completing {
    enum cli_command command;
    size_t n_words; /* after the command */
    int open;       /* the option whose value comes next; -1: none */
};

static void complete_word(struct completing *c, const char *s)
{
    const char *value;

    if (c->open >= 0) {
        c->open = -1;
    } else if (s[0] == '-' && s[1]) {
        c->open = option_find(s, c->command, &value);
        if (c->open >= 0 && (value || !*options[c->open].value))
            c->open = -1;
    } else if (c->command != CLI_NONE) {
        c->n_words++;
    } else {
        for (int k = 0; k < CLI_COMMAND_COUNT; k++) {
            if (strcmp(s, commands[k].name) == 0)
                c->command = (enum cli_command)k;
        }
    }
}

bool cli_complete(const char *const *word, size_t n, struct strbuf *out)
{
    const char *last = n > 0 ? word[n - 1] : "";
    struct completing c = {.command = CLI_NONE, .open = -1};

    for (size_t i = 0; i + 1 < n; i++)
        complete_word(&c, word[i]);
    if (c.open >= 0) {
        complete_values(c.open, last, out);
        return false;
    }
    for (int i = 0; i < CLI_OPTION_COUNT && *last == '-'; i++) {
        if (option_is_for(&options[i], c.command))
            put_if(out, options[i].spelling, last, options[i].help);
    }
    for (int k = 0; k < CLI_COMMAND_COUNT && c.command == CLI_NONE; k++) {
        if (*commands[k].help)
            put_if(out, commands[k].name, last, commands[k].help);
    }
    return *last != '-' && c.command != CLI_NONE && ((ON_CLUSTER >> c.command) & 1u)
           && (c.n_words == 0 || c.command == CLI_LIST);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* kubectl-hvd: shows and changes jobs (README.md). Arguments in, one command, its exit
 * status out. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "operator/cli/cli.h"
#include "operator/cli/core/show_text.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"

static int version_or_help(struct cli *c, const struct err *err)
{
    if (err->code)
        return cli_fail(err->text);
    if (cli_has(&c->args, CLI_OPT_VERSION))
        strbuf_puts(&c->out, "kubectl-hvd " HVD_VERSION_STRING "\n");
    else if (c->args.command == CLI_MAN)
        cli_man(&c->out);
    else
        cli_help(c->args.command, &c->out);
    return cli_print(c);
}

static const cli_command_fn functions[CLI_COMMAND_COUNT] = {
    [CLI_LIST] = online_list,         [CLI_STATUS] = online_status,
    [CLI_EXPLAIN] = online_explain,   [CLI_HOSTS] = online_hosts,
    [CLI_TOP] = online_top,           [CLI_STACKS] = online_stacks,
    [CLI_LOGS] = online_logs,         [CLI_EVENTS] = online_events,
    [CLI_TIMELINE] = online_timeline, [CLI_SCALE] = online_scale,
    [CLI_SUSPEND] = online_suspend,   [CLI_RESUME] = online_resume,
    [CLI_RESTART] = online_restart,   [CLI_VALIDATE] = offline_validate,
    [CLI_RENDER] = offline_render,    [CLI_CONVERT] = offline_convert,
    [CLI_COMPLETE] = online_complete,
};

int cli_print(struct cli *c)
{
    size_t n = fwrite(strbuf_str(&c->out), 1, c->out.n, stdout);
    bool is_complete = n == c->out.n && fflush(stdout) == 0;
    int status = strbuf_status(&c->out);

    strbuf_clear(&c->out);
    if (status < 0)
        return cli_fail(status == -E2BIG ? "the output is too large" : "out of memory");
    return is_complete ? 0 : 1;
}

static void cli_say(const char *text)
{
    struct strbuf b;

    strbuf_init(&b, 1u << 20);
    text_put_safe(&b, text, strlen(text), true);
    (void)fprintf(stderr, "kubectl-hvd: %s\n", strbuf_str(&b));
    strbuf_release(&b);
}

int cli_fail(const char *text)
{
    cli_say(text);
    return 1;
}

void cli_note(const char *text)
{
    cli_say(text);
}

enum cli_format cli_format(const struct cli *c)
{
    static const char *const names[] = {[FORMAT_TABLE] = "table",
                                        [FORMAT_WIDE] = "wide",
                                        [FORMAT_JSON] = "json",
                                        [FORMAT_YAML] = "yaml"};
    const char *s = c->args.value[CLI_OPT_OUTPUT];

    for (size_t i = 0; s && i < ARRAY_LEN(names); i++) {
        if (strcmp(s, names[i]) == 0)
            return (enum cli_format)i;
    }
    return s ? FORMAT_KUBECTL : FORMAT_TABLE;
}

int main(int argc, char **argv)
{
    static struct cli c; /* large; all of main's */
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    struct err err = ERR_INIT;
    int rc;

    arena_init(&c.arena, 2ull * CLI_MAX_BYTES);
    strbuf_init(&c.out, CLI_MAX_BYTES);
    c.is_terminal = isatty(STDOUT_FILENO) == 1;
    c.has_colour = c.is_terminal && !(no_colour && *no_colour)
                   && !(term && strcmp(term, "dumb") == 0);
    rc = cli_args_parse(argc, (const char *const *)argv, &c.args, &err);
    if (rc < 0 || c.args.command == CLI_NONE || c.args.command == CLI_MAN
        || cli_has(&c.args, CLI_OPT_HELP) || cli_has(&c.args, CLI_OPT_VERSION))
        rc = version_or_help(&c, &err);
    else
        rc = functions[c.args.command](&c);
    if (c.out.n > 0 && cli_print(&c) != 0 && rc == 0)
        rc = 1;
    strbuf_release(&c.out);
    arena_release(&c.arena);
    return rc;
}

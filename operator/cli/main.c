/* SPDX-License-Identifier: Apache-2.0 */
/* kubectl-hvd: shows and changes jobs (README.md). Arguments in, one command, its exit
 * status out. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "operator/cli/cli.h"

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
    [CLI_PAGE] = online_page,         [CLI_COMPLETE] = online_complete,
};

int main(int argc, char **argv)
{
    struct cli c = {.args = {.command = CLI_NONE}};
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

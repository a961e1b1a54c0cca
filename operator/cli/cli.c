/* SPDX-License-Identifier: Apache-2.0 */
/* Output of kubectl-hvd: results to standard output, causes and notes to standard error, one
 * line each. */
#include "operator/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "operator/cli/core/show_text.h"
#include "runtime/base/mem.h"

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
    if (s && strncmp(s, CLI_JSONPATH, strlen(CLI_JSONPATH)) == 0)
        return FORMAT_JSONPATH;
    return s ? FORMAT_KUBECTL : FORMAT_TABLE;
}

bool cli_wants_table(const struct cli *c)
{
    enum cli_format f = cli_format(c);

    return f == FORMAT_TABLE || f == FORMAT_WIDE;
}

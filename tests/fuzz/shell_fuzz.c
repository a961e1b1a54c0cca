/* SPDX-License-Identifier: Apache-2.0 */
/* The remote shell. The first byte selects: its messages (parsed, rendered and parsed
 * again they are the same), or its command line, one word a line, which MPI launchers
 * and users write. */
#include <errno.h>

#include "runtime/base/mem.h"
#include "runtime/launch/core/shell.h"
#include "runtime/wire/bytes.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_WORDS = 256 };

static void shell_parse_run(const uint8_t *p, size_t n)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct shell_run r = {.command = NULL};
    struct err err = ERR_INIT;
    if (shell_run_read(p, n, &r, &err) < 0) {
        MUST(err.code && err.text[0] && !r.command);
        return;
    }
    MUST(strlen(r.command) <= SHELL_COMMAND_MAX_BYTES);
    strbuf_init(&b, SHELL_MAX_BYTES);
    shell_run_write(&r, r.command, &b);
    MUST(strbuf_status(&b) == 0 && b.n == n && memcmp(b.p, p, n) == 0);
    if (shell_is_named(r.command, r.from))
        MUST(r.from[0] && strstr(r.command, r.from));
    if (shell_is_own_name(r.command, r.from))
        MUST(strncmp(r.command, r.from, strlen(r.from)) == 0);
    mem_free(r.command);
}

static void shell_parse_number(const uint8_t *p, size_t n)
{
    uint32_t number = 77;
    if (shell_number_read(p, n, &number, NULL) == 0)
        MUST(n == 4 && number == bytes_load_u32(p));
    else
        MUST(n != 4 && number == 77);
}

/* The words that follow the host, joined with blanks, are what the other host runs. */
static void words_check_command(char *const *argv, const struct shell_words *w)
{
    CLEANUP(strbuf_release) struct strbuf b = {0};
    struct err err = ERR_INIT;
    size_t first = (size_t)(w->command - argv), n = 0;
    for (size_t i = first; argv[i]; i++)
        n += strlen(argv[i]) + (i > first);
    strbuf_init(&b, SHELL_MAX_BYTES);
    MUST(shell_words_join(w->command, &b, &err) == 0 && b.n == n);
}

static void shell_parse_words(const uint8_t *p, size_t n)
{
    char *text = fuzz_text(p, n), *rest = text, *argv[MAX_WORDS + 1];
    struct shell_words w = {.command = NULL};
    struct err err = ERR_INIT;
    size_t n_words = 0;
    while (rest && n_words < MAX_WORDS)
        argv[n_words++] = strsep(&rest, "\n");
    argv[n_words] = NULL;
    if (shell_words_parse(argv, &w, &err) < 0) {
        MUST(err.code == -EINVAL && err.text[0] && !w.command);
    } else {
        MUST(w.host[0] && !strchr(w.host, '@'));
        MUST(w.command > argv && w.command < argv + n_words && *w.command);
        words_check_command(argv, &w);
    }
    free(text);
}

FUZZ_TARGET(shell)
{
    if (!n)
        return 0;
    if (data[0] % 3 == 0)
        shell_parse_words(data + 1, n - 1);
    else if (data[0] % 3 == 1)
        shell_parse_run(data + 1, n - 1);
    else
        shell_parse_number(data + 1, n - 1);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Options of ssh that MPI launchers use are accepted. Those about ssh itself (keys,
 * terminals, X11 forwarding) have no effect; those that would change the behaviour
 * (tunnels, subsystems) are refused. The user in USER@HOST and -l has no effect: the
 * agent runs commands as its own user. Called by rsh.c and shell.c. */
#include "runtime/launch/core/shell.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/wire/bytes.h"

/* options of ssh with and without a value */
static const char valued[] = "BbcEeFIilmoPpS", bare[] = "46AaCgKkMnqTtvXxYy";

static int shell_take_host(const char *word, struct shell_words *ret, struct err *err)
{
    const char *at = strrchr(word, '@'), *host = at ? at + 1 : word;
    if (!*host || strlen(host) >= sizeof(ret->host))
        return err_set(err, -EINVAL, "host \"%.100s\" is not a name of 1 to %zu bytes",
                       host, sizeof(ret->host) - 1);
    (void)snprintf(ret->host, sizeof(ret->host), "%s", host);
    return 0;
}

/* Takes one word of options, "-x" or "-xqp22"; *i is advanced if the value is a
 * separate word. */
static int shell_take_option(char *const *argv,
                             size_t *i,
                             struct shell_words *ret,
                             struct err *err)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        if (strchr(valued, *p)) {
            if (!p[1] && !argv[++*i])
                return err_set(err, -EINVAL, "a value is missing after -%c", *p);
            return 0;
        }
        if (!strchr(bare, *p))
            return err_set(err, -EINVAL,
                           "option -%c of ssh is not possible here; -%s and, with a "
                           "value, -%s are accepted",
                           isprint((unsigned char)*p) ? *p : '?', bare, valued);
        if (*p == 'n')
            ret->has_input = false;
    }
    return 0;
}

int shell_words_parse(char *const *argv, struct shell_words *ret, struct err *err)
{
    struct shell_words w = {.has_input = true};
    size_t i = 0;
    int rc = 0;
    /* as in ssh, options may also follow the host */
    for (; rc == 0 && argv[i]; i++) {
        if (!strcmp(argv[i], "--") && !*w.host)
            continue;
        if (argv[i][0] == '-' && argv[i][1] && strcmp(argv[i], "--") != 0)
            rc = shell_take_option(argv, &i, &w, err);
        else if (*w.host)
            break;
        else
            rc = shell_take_host(argv[i], &w, err);
    }
    if (rc < 0)
        return rc;
    if (!*w.host)
        return err_set(err, -EINVAL, "a host is missing");
    w.command = argv + i + (argv[i] && !strcmp(argv[i], "--"));
    if (!*w.command)
        return err_set(err, -EINVAL,
                       "a command is missing after host %s: there is no login shell",
                       w.host);
    *ret = w;
    return 0;
}

int shell_words_join(char *const *command, struct strbuf *out, struct err *err)
{
    for (size_t i = 0; command[i]; i++) {
        if (i)
            strbuf_putc(out, ' ');
        strbuf_puts(out, command[i]);
    }
    if (strbuf_status(out) == -E2BIG || out->n > SHELL_COMMAND_MAX_BYTES)
        return err_set(err, -E2BIG, "the command has more than %u bytes",
                       SHELL_COMMAND_MAX_BYTES);
    return strbuf_status(out) < 0
               ? err_set(err, -ENOMEM, "out of memory for the command")
               : 0;
}

void shell_run_write(const struct shell_run *r, const char *command, struct strbuf *out)
{
    bytes_put_u32(out, SHELL_PROTOCOL);
    bytes_put_u32(out, r->has_input);
    bytes_put_str(out, r->from);
    bytes_put_str(out, command);
}

int shell_run_read(const uint8_t *p, size_t n, struct shell_run *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    struct shell_run run = {0};
    uint32_t protocol = bytes_u32(&r);
    if (!r.is_bad && protocol != SHELL_PROTOCOL)
        return err_set(err, -EPROTO,
                       "the remote shell's protocol is %u there and %u here", protocol,
                       SHELL_PROTOCOL);
    uint32_t has_input = bytes_u32(&r);
    r.is_bad = r.is_bad || has_input > 1;
    run.has_input = has_input == 1;
    bytes_str(&r, run.from, sizeof(run.from));
    run.command = bytes_text(&r);
    int rc = bytes_end(&r, "run", err);
    if (rc == 0 && strlen(run.command) > SHELL_COMMAND_MAX_BYTES)
        rc = err_set(err, -EPROTO, "the command has more than %u bytes",
                     SHELL_COMMAND_MAX_BYTES);
    if (rc < 0)
        mem_free(run.command);
    else
        *ret = run;
    return rc;
}

int shell_number_read(const uint8_t *p, size_t n, uint32_t *ret, struct err *err)
{
    struct bytes_reader r = {.p = p, .left = n};
    uint32_t number = bytes_u32(&r);
    int rc = bytes_end(&r, "number", err);
    if (rc == 0)
        *ret = number;
    return rc;
}

static bool char_is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

bool shell_is_named(const char *command, const char *name)
{
    size_t n = strlen(name);
    if (!n)
        return false;
    for (const char *p = command; (p = strstr(p, name)); p++)
        if ((p == command || !char_is_of_name(p[-1])) && !char_is_of_name(p[n]))
            return true;
    return false;
}

bool shell_is_own_name(const char *host, const char *own)
{
    size_t n = strlen(own);
    return n && !strncmp(host, own, n) && (host[n] == '\0' || host[n] == '.');
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The failure line: one writer, one reader, both here.
 *
 *   line = "ringmaster-failure/1" SP "rank=" int SP "host=" name SP "exit=" int
 *          SP "signal=" int SP "at=" uint SP "why=" DQUOTE *char DQUOTE LF
 *
 * Inside the quotes, " and \ are escaped by \; control characters are written as
 * blanks, so parsing a rendered line returns its input for every `why` without control
 * characters. The line comes from a pod's termination message, which a user's program
 * can write: the reader trusts nothing and bounds everything. */
#include "runtime/contract/failure.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"
#include "runtime/contract/places.h"

#define MAGIC    "ringmaster-failure/1"
#define MAX_LINE 1024

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

void failure_render(const struct failure *f, struct strbuf *out)
{
    char host[sizeof(f->host)];

    memcpy(host, f->host, sizeof(host));
    for (char *p = host; *p; p++)
        if (is_control(*p) || *p == ' ' || *p == '"')
            *p = '_'; /* no name has these: the line must stay readable all the same */
    strbuf_printf(out, MAGIC " rank=%d host=%s exit=%d signal=%d at=%llu why=\"",
                  f->rank, f->host[0] ? f->host : "-", f->exit_code, f->signal,
                  (unsigned long long)f->at_wall_us);
    for (const char *p = f->why; *p; p++) {
        if (*p == '"' || *p == '\\')
            strbuf_putc(out, '\\');
        strbuf_putc(out, is_control(*p) ? ' ' : *p);
    }
    strbuf_puts(out, "\"\n");
}

/* " name=value" at *s; the value up to the next blank, copied. */
static int word_take(
    const char **s, const char *name, char *ret, size_t size_bytes, struct err *err)
{
    size_t k = strlen(name);
    const char *p = *s;

    if (p[0] != ' ' || strncmp(p + 1, name, k) != 0 || p[1 + k] != '=')
        return err_set(err, -EINVAL, "failure line: %s= is missing", name);
    p += k + 2;
    size_t n = strcspn(p, " \n");
    if (n == 0 || n >= size_bytes)
        return err_set(err, -EINVAL, "failure line: %s= has a value of %zu bytes", name,
                       n);
    memcpy(ret, p, n);
    ret[n] = '\0';
    *s = p + n;
    return 0;
}

static int take_int(const char **s,
                    const char *name,
                    int64_t min,
                    int64_t max,
                    int64_t *ret,
                    struct err *err)
{
    char word[24];
    int rc = word_take(s, name, word, sizeof(word), err);

    if (rc == 0)
        rc = parse_i64(name, word, min, max, ret, err);
    return rc ? err_recode(err, -EINVAL) : 0;
}

static int take_why(const char *s, char *ret, size_t size_bytes, struct err *err)
{
    static const char start[] = " why=\"";
    size_t n = 0;

    if (strncmp(s, start, sizeof(start) - 1) != 0)
        return err_set(err, -EINVAL, "failure line: why= is missing");
    for (s += sizeof(start) - 1; *s != '"'; s++) {
        if (*s == '\\' && (s[1] == '"' || s[1] == '\\'))
            s++;
        else if (*s == '\\')
            return err_set(err, -EINVAL, "failure line: why= has a bad escape");
        if (is_control(*s)) /* NUL and newline: the closing quote is missing */
            return err_set(err, -EINVAL, "failure line is cut inside why=");
        if (n + 1 >= size_bytes)
            return err_set(err, -EINVAL, "failure line: why= is too long");
        ret[n++] = *s;
    }
    ret[n] = '\0';
    if (s[1] != '\n' && s[1] != '\0')
        return err_set(err, -EINVAL, "failure line has text after why=");
    return 0;
}

static bool is_host(const char *s)
{
    for (; *s; s++)
        if (is_control(*s) || *s == '"')
            return false;
    return true;
}

int failure_parse(const char *text, struct failure *ret, struct err *err)
{
    const size_t k = sizeof(MAGIC) - 1;
    struct failure f;
    int64_t rank = 0, exit_code = 0, sig = 0;
    char at[24];
    uint64_t at_us = 0;

    memset(&f, 0, sizeof(f));
    if (strncmp(text, MAGIC, k) != 0 || (text[k] != ' ' && text[k] != '\0'))
        return err_set(err, -ENOENT, "no failure line");
    const char *s = text + k;
    int rc = take_int(&s, "rank", -1, WORLD_MAX_RANKS - 1, &rank, err);
    if (rc == 0)
        rc = word_take(&s, "host", f.host, sizeof(f.host), err);
    if (rc == 0)
        rc = take_int(&s, "exit", 0, 255, &exit_code, err);
    if (rc == 0)
        rc = take_int(&s, "signal", 0, 127, &sig, err);
    if (rc == 0)
        rc = word_take(&s, "at", at, sizeof(at), err);
    if (rc == 0 && parse_u64("at", at, 0, UINT64_MAX, &at_us, err))
        rc = err_recode(err, -EINVAL);
    if (rc == 0)
        rc = take_why(s, f.why, sizeof(f.why), err);
    if (rc)
        return rc;
    if (!is_host(f.host))
        return err_set(
            err, -EINVAL,
            "failure line: host= has a byte that is not allowed in a host name");
    if (strcmp(f.host, "-") == 0)
        f.host[0] = '\0';
    f.rank = (int32_t)rank;
    f.exit_code = (int)exit_code;
    f.signal = (int)sig;
    f.at_wall_us = at_us;
    *ret = f;
    return 0;
}

static const struct {
    int sig;
    const char *name;
} names[] = {
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},
    {SIGILL, "SIGILL"},       {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},
    {SIGBUS, "SIGBUS"},       {SIGFPE, "SIGFPE"},   {SIGKILL, "SIGKILL"},
    {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},
    {SIGSTKFLT, "SIGSTKFLT"}, {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"},
    {SIGSTOP, "SIGSTOP"},     {SIGTSTP, "SIGTSTP"}, {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"},     {SIGPROF, "SIGPROF"}, {SIGVTALRM, "SIGVTALRM"},
    {SIGWINCH, "SIGWINCH"},   {SIGIO, "SIGIO"},     {SIGPWR, "SIGPWR"},
    {SIGSYS, "SIGSYS"},
};

const char *signal_name(int sig)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (names[i].sig == sig)
            return names[i].name;
    return sig >= 32 && sig <= 64 ? "real-time signal" : "unknown signal";
}

int signal_number(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0)
            return names[i].sig;
    return 0;
}

void failure_sentence(const struct failure *f, char *ret, size_t size_bytes)
{
    char who[64 + HOST_NAME_MAX_BYTES];
    const char *host = f->host[0] ? f->host : "an unknown host";

    if (f->rank < 0)
        (void)snprintf(who, sizeof(who), "the agent on %s", host); /* fits */
    else
        (void)snprintf(who, sizeof(who), "rank %d on %s", f->rank, host); /* fits */
    if (f->signal)
        (void)snprintf(ret, size_bytes, "%s was killed by signal %d (%s)", who,
                       f->signal,
                       signal_name(f->signal)); /* cut is the caller's choice */
    else if (f->exit_code)
        (void)snprintf(ret, size_bytes, "%s exited with code %d", who, f->exit_code);
    else
        (void)snprintf(ret, size_bytes, "%s was lost", who);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* ssh passes one command line to the remote login shell, of any kind, so everything but
 * "exec /bin/sh -c" is in single quotes. ssh reports errors only on standard error (its
 * exit code is always 255). The table below maps its messages; unknown ones are passed
 * on. Called by link.c. */
#include "runtime/launch/core/ssh.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

void ssh_quote(const char *s, struct strbuf *out)
{
    strbuf_putc(out, '\'');
    for (; *s; s++) {
        if (*s == '\'')
            strbuf_puts(out, "'\\''");
        else
            strbuf_putc(out, *s);
    }
    strbuf_putc(out, '\'');
}

struct builder {
    struct ssh_command *c;
    size_t n_words, n;
    bool is_full;
};

static void builder_add(struct builder *b, const char *word, size_t len)
{
    if (b->n_words + 1 >= SSH_MAX_WORDS || b->n + len + 1 > sizeof(b->c->text)) {
        b->is_full = true;
        return;
    }
    b->c->v[b->n_words++] = b->c->text + b->n;
    memcpy(b->c->text + b->n, word, len);
    b->c->text[b->n + len] = '\0';
    b->n += len + 1;
}

static void builder_add_word(struct builder *b, const char *word)
{
    builder_add(b, word, strlen(word));
}

static void builder_add_program(struct builder *b, const struct ssh_how *how)
{
    static const char *const ours[] = {"ssh", "-o", "BatchMode=yes", "-o",
                                       "ServerAliveInterval=15"};
    char timeout[48];
    for (const char *p = how->program; *p;) {
        size_t len = strcspn(p, " \t");
        if (len)
            builder_add(b, p, len);
        p += len + (p[len] != '\0');
    }
    if (b->n_words)
        return;
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        builder_add_word(b, ours[i]);
    (void)snprintf(timeout, sizeof(timeout), "ConnectTimeout=%u", how->connect_s);
    builder_add_word(b, "-o");
    builder_add_word(b, timeout);
}

/* A step of one task that shares the job's resources with other steps; a rank that fails
 * or a lost node is not the step's affair. */
static void builder_add_srun(struct builder *b,
                             const struct ssh_how *how,
                             const char *host,
                             const char *agent)
{
    static const char *const words[] = {"srun",
                                        "--overlap",
                                        "--nodes=1",
                                        "--ntasks=1",
                                        "--unbuffered",
                                        "--cpu-bind=none",
                                        "--mpi=none",
                                        "--export=ALL",
                                        "--kill-on-bad-exit=0",
                                        "--job-name=hvd-agent"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        builder_add_word(b, words[i]);
    builder_add_word(b, "--jobid");
    builder_add_word(b, how->slurm_job);
    builder_add_word(b, "--nodelist");
    builder_add_word(b, host);
    builder_add_word(b, agent);
    builder_add_word(b, "attach");
}

int ssh_command(const struct ssh_how *how,
                const char *host,
                const char *agent_path,
                struct ssh_command *ret,
                struct err *err)
{
    static const char script[] =
        "a=$1; [ -x \"$a\" ] || a=$(command -v hvd-agent) || { echo \"" SSH_NO_AGENT
        "\" >&2; exit 127; }; exec \"$a\" attach";
    struct builder b = {.c = ret};
    CLEANUP(strbuf_release) struct strbuf remote = {0};
    char port[16];
    memset(ret, 0, sizeof(*ret));
    if (*how->slurm_job) {
        builder_add_srun(&b, how, host, agent_path);
        return b.is_full ? err_set(err, -EINVAL, "the srun command line is too long")
                         : 0;
    }
    strbuf_init(&remote, sizeof(ret->text));
    strbuf_puts(&remote, "exec /bin/sh -c ");
    ssh_quote(script, &remote);
    strbuf_puts(&remote, " hvd-agent ");
    ssh_quote(agent_path, &remote);
    builder_add_program(&b, how);
    if (how->port) {
        (void)snprintf(port, sizeof(port), "%u", how->port);
        builder_add_word(&b, "-p");
        builder_add_word(&b, port);
    }
    if (*how->identity) {
        builder_add_word(&b, "-i");
        builder_add_word(&b, how->identity);
    }
    builder_add_word(&b, host);
    builder_add_word(&b, strbuf_str(&remote));
    if (b.is_full || strbuf_status(&remote) < 0 || *host == '-')
        return err_set(err, -EINVAL,
                       "the ssh command line is too long, or the name begins with -");
    return 0;
}

/* The first match wins: ssh prints "Connection closed" also after the actual cause. %s:
 * the host. */
static const struct meaning {
    const char *words, *sentence;
} meanings[] = {
    {SSH_NO_AGENT, "there is no hvd-agent, neither at the same path as here nor in "
                   "PATH: install Ringmaster there"},
    {"unknown command attach",
     "its hvd-agent has an older version: install the same on all hosts"},
    {"REMOTE HOST IDENTIFICATION HAS CHANGED",
     "its host key is not the known one (host key verification failed); if that is "
     "right: ssh-keygen -R %s"},
    {"Host key verification failed",
     "its host key is not known (host key verification failed): log in once by ssh %s"},
    {"not accessible: No such file", "the identity file of -i does not exist"},
    {"UNPROTECTED PRIVATE KEY FILE",
     "the identity file of -i may be read by others: chmod 600 it"},
    {"Permission denied", "ssh login was refused (permission denied); this must work "
                          "without a prompt: ssh -o BatchMode=yes %s true"},
    {"Too many authentication failures",
     "ssh login was refused (too many keys were tried: select one with -i)"},
    {"Could not resolve hostname", "its name does not resolve (DNS)"},
    {"Name or service not known", "its name does not resolve (DNS)"},
    {"Connection refused",
     "ssh connection refused: no sshd listens on that port there (-p)"},
    {"No route to host", "no route to it"},
    {"Network is unreachable", "its network is unreachable"},
    {"Connection timed out", "it does not answer ssh (connection timed out)"},
    {"Operation timed out", "it does not answer ssh (connection timed out)"},
    {"Connection reset", "the ssh connection was reset"},
    {"Exec format error", "its hvd-agent is for another CPU architecture"},
};

static void text_last_line(const char *said, char *ret, size_t size_bytes)
{
    size_t n = strlen(said);
    while (n && strchr("\r\n \t", said[n - 1]))
        n--;
    size_t start = n;
    while (start && said[start - 1] != '\n')
        start--;
    (void)snprintf(ret, size_bytes, "%.*s", (int)(n - start), said + start);
    for (char *p = ret; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = '?';
}

void ssh_explain(const struct ssh_how *how,
                 const char *host,
                 const char *said,
                 char *ret,
                 size_t size_bytes)
{
    char line[160];
    for (size_t i = 0; !*how->slurm_job && i < ARRAY_LEN(meanings); i++) {
        if (!strstr(said, meanings[i].words))
            continue;
        const char *at = strstr(meanings[i].sentence, "%s");
        if (at)
            (void)snprintf(ret, size_bytes, "%.*s%s%s",
                           (int)(at - meanings[i].sentence), meanings[i].sentence, host,
                           at + 2);
        else
            (void)snprintf(ret, size_bytes, "%s", meanings[i].sentence);
        return;
    }
    text_last_line(said, line, sizeof(line));
    (void)snprintf(ret, size_bytes, "%s exited before the agent started%s%s",
                   *how->slurm_job ? "srun" : "ssh",
                   *line ? ": " : ", without a message", line);
}

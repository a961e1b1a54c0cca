/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of kubectl get --watch -o json --output-watch-events.
 *
 * kubectl prints one JSON object after another, over several lines each. Their ends are
 * found by counting brackets outside of strings. Objects are read into an arena of their
 * own, which is emptied after each. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "operator/cli/online.h"
#include "operator/doc/json.h"
#include "runtime/base/fd.h"

#define WATCHES    2
#define OBJECT_MAX (64u << 20)

struct watch_stream {
    int fd;
    pid_t pid;
    struct strbuf text; /* the unfinished object */
    unsigned depth;
    bool is_string, is_escaped;
};

struct watching {
    watch_fn fn;
    void *arg;
};

static int watch_object(struct watching *w, struct watch_stream *s)
{
    struct arena a;
    struct node *o = NULL;
    int rc = 0;

    arena_init(&a, CLI_MAX_BYTES);
    if (strbuf_status(&s->text) == 0
        && json_read(&a, s->text.p, s->text.n, &o, NULL) == 0) {
        const char *type = node_str(o, "type");

        rc = w->fn(w->arg, type ? type : "", node_get(o, "object"));
    }
    arena_release(&a);
    strbuf_clear(&s->text);
    return rc;
}

static int watch_byte(struct watching *w, struct watch_stream *s, char c)
{
    if (s->depth == 0 && c != '{')
        return 0;
    strbuf_putc(&s->text, c);
    if (s->is_string) {
        if (!s->is_escaped && c == '"')
            s->is_string = false;
        s->is_escaped = !s->is_escaped && c == '\\';
        return 0;
    }
    s->is_string = c == '"';
    s->is_escaped = false;
    if (c == '{')
        s->depth++;
    else if (c == '}' && --s->depth == 0)
        return watch_object(w, s);
    return 0;
}

/* False: the stream has ended, or fn wants no more. */
static bool watch_read(struct watching *w, struct watch_stream *s)
{
    char part[65536];
    ssize_t n = read(s->fd, part, sizeof(part));

    if (n < 0 && errno == EINTR)
        return true;
    for (ssize_t i = 0; i < n; i++) {
        if (watch_byte(w, s, part[i]) != 0)
            return false;
    }
    return n > 0;
}

int watch_run(struct cli *c, struct kubectl *const *k, size_t n, watch_fn fn, void *arg)
{
    struct watch_stream s[WATCHES] = {0};
    struct pollfd p[WATCHES];
    struct watching w = {fn, arg};
    struct err err = ERR_INIT;
    size_t n_open = 0;
    int status = 0;

    (void)c;
    for (size_t i = 0; i < n; i++) {
        p[i] = (struct pollfd){-1, POLLIN, 0};
        strbuf_init(&s[i].text, OBJECT_MAX);
        if (kubectl_spawn(k[i], false, &s[i].fd, &s[i].pid, &err) < 0)
            return cli_fail(err.text);
        p[i].fd = s[i].fd;
        n_open++;
    }
    while (n_open > 0 && (poll(p, n, -1) >= 0 || errno == EINTR)) {
        for (size_t i = 0; i < n; i++) {
            if (p[i].fd < 0 || !p[i].revents || watch_read(&w, &s[i]))
                continue;
            p[i].fd = -1;
            n_open--;
        }
    }
    for (size_t i = 0; i < n; i++) {
        int one;

        fd_close(&s[i].fd); /* a stream that continues ends by SIGPIPE */
        (void)kill(s[i].pid, SIGTERM);
        one = kubectl_wait(s[i].pid);
        if (one == 128 + SIGINT) /* it was sent to us, too, and may be ignored here */
            status = one;
        else if (one != 0 && one != 128 + SIGTERM && status == 0)
            status = 1;
        strbuf_release(&s[i].text);
    }
    return status;
}

void watch_clear(struct cli *c)
{
    if (c->is_terminal)
        strbuf_puts(&c->out, "\033[H\033[2J\033[3J");
}

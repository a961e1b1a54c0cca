/* SPDX-License-Identifier: Apache-2.0 */
/* page: forwards the operator's status page (operator/page) to this host.
 *
 *     Lease, pods --> page_find --> kubectl port-forward --> its lines, in one pipe
 *          ^                                                  |  "Forwarding": the URL, once
 *          |                                                  |  "Handling": who leads now?
 *          '---- at most once a second <---- its end, or another leader
 *
 * Invariants
 *  1. The token is in memory of this process and in the URL on standard output; it is in
 *     no argument, no environment and no message.
 *  2. The local port stays the same, so a page that is open in a browser stays usable.
 *  3. A former leader may live on and answer 503. Its page connects again and again, so
 *     each new connection, at most one in LOOK_NS, makes us read the Lease.
 *  4. Until the URL is printed every failure ends the command; after that it tries again. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "operator/cli/core/page_link.h"
#include "operator/cli/online.h"
#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define TOKEN_MAX     65536
#define TEXT_MAX      65536
#define AGAIN_NS      NS_PER_S
#define LOOK_NS       (5 * NS_PER_S)
#define NOTE_SIZE     900
#define PAGE_WHY_SIZE 480

struct page_run {
    struct cli *c;
    const char *ns;         /* of the operator */
    struct strbuf fragment; /* secret; of the URL */
    struct page_pod pod;
    uint32_t port; /* on this host; 0: kubectl chooses */
    bool is_open;  /* the URL is printed */
    bool is_forwarding;
    uint64_t look_ns; /* when to read the Lease again; UINT64_MAX: not planned */
    uint64_t looked_ns;
    struct strbuf line, text; /* of kubectl; text: what is not progress */
    char noted[NOTE_SIZE];    /* the last note, which is not repeated */
};

enum page_end {
    PAGE_ENDED,   /* kubectl has */
    PAGE_MOVED,   /* another operator leads */
    PAGE_STOPPED, /* nobody reads our output, or no memory */
};

static void page_note(struct page_run *p, const char *text)
{
    if (strcmp(text, p->noted) == 0)
        return;
    (void)snprintf(p->noted, sizeof(p->noted), "%s", text);
    cli_note(text);
}

/* --- which pod -------------------------------------------------------------------- */

/* *ret: whom the Lease names; NULL: not known, because of why. */
static int page_holder(struct page_run *p,
                       const char **ret,
                       char why[PAGE_WHY_SIZE],
                       struct err *err)
{
    static const char *const words[] = {
        "get", "lease", "hvd-operator", "--ignore-not-found", "-o", "json", NULL};
    const struct node *lease = NULL;
    int rc = kubectl_json(p->c, kubectl_new(p->c, p->ns, words), NULL, &lease, err);

    if (rc < 0 && rc != -EACCES)
        return rc;
    (void)snprintf(why, PAGE_WHY_SIZE, "%.*s", PAGE_WHY_SIZE - 1,
                   rc < 0   ? err->text
                   : !lease ? "there is no Lease"
                            : "the Lease names none of the pods");
    *ret = node_str(lease, "spec.holderIdentity");
    if (lease && (!*ret || !**ret))
        return err_set(err, -ENOENT,
                       "no operator leads: Lease %.100s/hvd-operator has no holder",
                       p->ns);
    return 0;
}

/* Everything in the arena is dropped. */
static int page_find(struct page_run *p, struct page_pod *ret, struct err *err)
{
    static const char *const words[] = {
        "get", "pods", "-l", "app.kubernetes.io/name=hvd-operator", "-o", "json", NULL};
    struct cli *c = p->c;
    const struct node *pods = NULL;
    const char *holder = NULL;
    char why[PAGE_WHY_SIZE], text[NOTE_SIZE];
    int rc;

    arena_release(&c->arena);
    rc = page_holder(p, &holder, why, err);
    if (rc == 0)
        rc = kubectl_json(c, kubectl_new(c, p->ns, words), NULL, &pods, err);
    if (rc < 0)
        return rc;
    rc = page_choose(pods, holder, ret, err);
    if (rc < 0) {
        (void)err_prefix(err, "namespace %.100s", p->ns);
        return rc;
    }
    if (!ret->is_leader) {
        (void)snprintf(text, sizeof(text),
                       "%s: is used because it is ready; who leads is not known: %s",
                       ret->name, why);
        page_note(p, text);
    }
    return 0;
}

static bool page_has_moved(struct page_run *p)
{
    struct err err = ERR_INIT;
    struct page_pod now;

    p->look_ns = UINT64_MAX;
    p->looked_ns = clock_now_ns();
    return page_find(p, &now, &err) == 0 && now.is_leader
           && strcmp(now.name, p->pod.name) != 0;
}

/* --- kubectl port-forward --------------------------------------------------------- */

static int page_opened(struct page_run *p)
{
    char text[NOTE_SIZE];

    if (p->is_open) {
        (void)snprintf(text, sizeof(text), "%s: forwards to it", p->pod.name);
        cli_note(text);
        return 0;
    }
    p->is_open = true;
    strbuf_printf(&p->c->out, "http://127.0.0.1:%u/%s\n", p->port,
                  strbuf_str(&p->fragment));
    strbuf_release(&p->fragment);
    return cli_print(p->c);
}

/* 0; 1: nobody reads our output. */
static int page_line(struct page_run *p)
{
    const char *line = strbuf_str(&p->line);
    uint32_t port = page_forwarded(line);
    int rc = 0;

    if (port) {
        p->port = port;
        p->is_forwarding = true;
        rc = page_opened(p);
    } else if (strncmp(line, "Handling connection", 19) == 0) {
        if (p->look_ns == UINT64_MAX)
            p->look_ns = p->looked_ns + LOOK_NS;
    } else if (p->line.n > 0) {
        strbuf_printf(&p->text, "%s\n", line);
    }
    strbuf_clear(&p->line);
    return rc;
}

static enum page_end page_follow(struct page_run *p, int fd)
{
    char part[4096];
    ssize_t n;

    for (;;) {
        int rc = fd_wait(fd, POLLIN, p->look_ns);

        if (rc == -ETIMEDOUT) {
            if (page_has_moved(p))
                return PAGE_MOVED;
            continue;
        }
        n = read(fd, part, sizeof(part));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        for (ssize_t i = 0; i < n; i++) {
            if (part[i] != '\n')
                strbuf_putc(&p->line, part[i]);
            else if (page_line(p) != 0)
                return PAGE_STOPPED;
        }
    }
    return page_line(p) == 0 ? PAGE_ENDED : PAGE_STOPPED;
}

/* Runs until it ends. 0: it has forwarded, or another operator leads; *ret_status: not 0
 * to end with that. */
static int page_forward(struct page_run *p, int *ret_status, struct err *err)
{
    char target[300], ports[40], local[12] = "";
    const char *const words[] = {"port-forward", target, "--address",
                                 "127.0.0.1",    ports,  NULL};
    enum page_end end;
    pid_t pid = 0;
    int fd = -1, status;

    if (p->port)
        (void)snprintf(local, sizeof(local), "%u", p->port);
    (void)snprintf(target, sizeof(target), "pod/%s", p->pod.name);
    (void)snprintf(ports, sizeof(ports), "%s:%u", local, p->pod.port);
    if (kubectl_spawn(kubectl_new(p->c, p->ns, words), true, &fd, &pid, err) < 0)
        return err->code;
    strbuf_clear(&p->text);
    strbuf_clear(&p->line);
    p->is_forwarding = false;
    p->look_ns = UINT64_MAX;
    p->looked_ns = clock_now_ns();
    end = page_follow(p, fd);
    fd_close(&fd);
    if (end != PAGE_ENDED)
        (void)kill(pid, SIGTERM);
    status = kubectl_wait(pid);
    if (end == PAGE_STOPPED)
        *ret_status = 1;
    else if (status
             == 128 + SIGINT) /* it was sent to us, too, and may be ignored here */
        *ret_status = status;
    if (*ret_status || end == PAGE_MOVED)
        return 0;
    (void)page_refusal(strbuf_str(&p->text), p->port, err);
    return p->is_forwarding ? 0 : err->code;
}

static void page_report(struct page_run *p, int rc, const struct err *err)
{
    char text[NOTE_SIZE];

    if (rc < 0) {
        (void)snprintf(text, sizeof(text), "%s; trying again each second", err->text);
        page_note(p, text);
        return;
    }
    (void)snprintf(text, sizeof(text), "%s: %s", p->pod.name,
                   err->code ? err->text : "does not lead any more");
    cli_note(text);
}

/* p->pod: the first pod. */
static int page_serve(struct page_run *p)
{
    int status = 0;

    for (bool is_first = true;; is_first = false) {
        uint64_t again_ns = clock_now_ns() + AGAIN_NS;
        struct err err = ERR_INIT;
        int rc = is_first ? 0 : page_find(p, &p->pod, &err);

        if (rc == 0) {
            err = (struct err)ERR_INIT;
            rc = page_forward(p, &status, &err);
        }
        if (status)
            return status;
        if (rc < 0 && !p->is_open)
            return cli_fail(err.text);
        page_report(p, rc, &err);
        while (clock_now_ns() < again_ns)
            (void)poll(NULL, 0, clock_left_ms(again_ns));
    }
}

/* --- token ------------------------------------------------------------------------ */

static int page_create_token(struct page_run *p, struct strbuf *out, struct err *err)
{
    const char *const *value = p->c->args.value;
    const char *account = value[CLI_OPT_SERVICE_ACCOUNT];
    const char *duration = value[CLI_OPT_DURATION];
    const char *const words[] = {
        "create",   "token",      account ? account : "hvd-page", "--audience",
        "hvd-page", "--duration", duration ? duration : "8h",     NULL};
    int rc = kubectl_read(kubectl_new(p->c, p->ns, words), out, NULL, err);

    if (rc < 0 && strstr(err->text, "not found"))
        return err_set(
            err, -ENOENT,
            "ServiceAccount %.100s/%.100s: not found; manifests/overlays/page "
            "and the chart's page.enabled create hvd-page",
            p->ns, words[2]);
    return rc;
}

static int page_read_token(const char *path, struct strbuf *out, struct err *err)
{
    char *text = NULL;
    size_t n = 0;

    if (fd_read_file(path, TOKEN_MAX, &text, &n, err) < 0) {
        (void)err_prefix(err, "--token-file");
        return err->code;
    }
    strbuf_add(out, text, n);
    mem_wipe(text, n);
    mem_free(text);
    return 0;
}

/* Sets p->fragment. */
static int page_make_fragment(struct page_run *p, const char *route, struct err *err)
{
    const char *file = p->c->args.value[CLI_OPT_TOKEN_FILE];
    CLEANUP(strbuf_release) struct strbuf token;
    int rc;

    strbuf_init_secret(&token, TOKEN_MAX);
    rc = file ? page_read_token(file, &token, err) : page_create_token(p, &token, err);
    if (rc < 0)
        return rc;
    while (token.n > 0 && strchr(" \t\r\n", token.p[token.n - 1]))
        token.p[--token.n] = '\0';
    if (!page_is_token(strbuf_str(&token), token.n))
        return err_set(err, -EINVAL,
                       "%s%.300s: is no bearer token: one line of letters, digits and "
                       "-._~+/=",
                       file ? "--token-file: " : "",
                       file ? file : "kubectl create token");
    page_fragment(&p->fragment, strbuf_str(&token), route);
    return strbuf_status(&p->fragment) < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* --- the command ------------------------------------------------------------------ */

static int page_options(struct page_run *p, struct err *err)
{
    const struct cli_args *a = &p->c->args;
    const char *ns = a->value[CLI_OPT_OPERATOR_NAMESPACE];
    const char *port = a->value[CLI_OPT_PORT];

    p->ns = ns && *ns ? ns : "ringmaster";
    if (cli_has(a, CLI_OPT_TOKEN_FILE)
        && (cli_has(a, CLI_OPT_SERVICE_ACCOUNT) || cli_has(a, CLI_OPT_DURATION)))
        return err_set(err, -EINVAL,
                       "--token-file: excludes --service-account and --duration, which "
                       "are for a new token");
    return port ? parse_u32("--port", port, 1, UINT16_MAX, &p->port, err) : 0;
}

/* "/horovodjobs/NS/NAME" of the job that is named, in out; 1: it has printed why not. */
static int page_route(struct cli *c, struct strbuf *out)
{
    struct job_view v;

    if (c->args.n_words == 0)
        return 0;
    if (online_job(c, c->args.word[0], &v) != 0)
        return 1;
    strbuf_printf(out, "/%s/%s/%s", v.kind == KUBE_MPIJOB ? "mpijobs" : "horovodjobs",
                  v.ns ? v.ns : "", v.name);
    return 0;
}

int online_page(struct cli *c)
{
    struct page_run p = {.c = c};
    CLEANUP(strbuf_release) struct strbuf route = {0};
    struct err err = ERR_INIT;
    int rc = page_options(&p, &err);

    if (rc < 0)
        return cli_fail(err.text);
    strbuf_init(&route, TEXT_MAX);
    if (page_route(c, &route) != 0)
        return 1;
    strbuf_init_secret(&p.fragment, 4 * TOKEN_MAX);
    strbuf_init(&p.line, TEXT_MAX);
    strbuf_init(&p.text, TEXT_MAX);
    rc = page_find(&p, &p.pod, &err); /* before a token is created */
    if (rc == 0)
        rc = page_make_fragment(&p, route.n > 0 ? strbuf_str(&route) : NULL, &err);
    rc = rc < 0 ? cli_fail(err.text) : page_serve(&p);
    strbuf_release(&p.fragment);
    strbuf_release(&p.line);
    strbuf_release(&p.text);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-operator: arguments and signals; no decisions.
 *
 *   watches --> sinks --> store --> queue --> sync --> apply --> API server
 *                                                  '--> record, status patch
 *
 * Exit codes: 0 stopped by a signal; 1 cannot work (the log has the cause), or a check
 * failed; 2 wrong usage. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

#include "operator/check.h"
#include "operator/elect.h"
#include "operator/loop.h"
#include "operator/options.h"
#include "operator/page/page.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

static int
load_config(const struct operator_options *o, struct kube_config *ret, struct err *err)
{
    const char *list = getenv("KUBECONFIG");

    int rc;

    if (o->kubeconfig || (list && *list))
        rc = kube_config_load(o->kubeconfig, list, getenv("HOME"), ret, err);
    else
        rc = kube_config_incluster(getenv("KUBERNETES_SERVICE_HOST"),
                                   getenv("KUBERNETES_SERVICE_PORT"), INCLUSTER_DIR,
                                   ret, err);
    if (o->master && (rc == 0 || rc == -ENOENT))
        rc = kube_config_set_server(ret, o->master, err);
    return rc;
}

static void log_start(const struct operator_options *o,
                      const struct kube_config *config,
                      const struct controller *op)
{
    log_info("hvd-operator starts",
             "version=%s server=%s namespace=%s runtime_image=%s http_port=%u "
             "leader_elect=%s",
             HVD_VERSION_STRING, config->server, o->ns ? o->ns : "(all)",
             o->runtime_image, o->serve.http_port,
             op->elect ? elect_identity(op->elect) : "no");
    if (config->is_insecure)
        log_warn("the API server's certificate is not verified, continuing",
                 "cause=\"insecure-skip-tls-verify in the kubeconfig\"");
    for (size_t i = 0; i < o->n_idle; i++)
        log_info("option has no effect", "option=--%s why=\"%s\"", o->idle[i].name,
                 o->idle[i].why);
}

static int open_signals(struct err *err)
{
    sigset_t set;
    int fd;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_errno(err, errno, "sigprocmask");
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? err_errno(err, errno, "signalfd") : fd;
}

static int operator_run(const struct operator_options *o, struct err *err)
{
    CLEANUP(kube_config_release) struct kube_config config = {0};
    CLEANUP(fd_close) int signal_fd = -1;
    struct controller op = {0};
    struct operator_server *serve = NULL;
    struct page *page = NULL;
    int rc;

    signal_fd = open_signals(err);
    rc = signal_fd < 0 ? signal_fd : load_config(o, &config, err);
    if (rc == 0)
        rc = controller_open(&op, &config, o, err);
    if (rc == 0)
        rc = serve_new(&op, &o->serve, &serve, err);
    if (rc == 0)
        rc = page_new(&op, o, &page, err);
    if (rc == 0) {
        log_start(o, &config, &op);
        rc = loop_run(&op, serve, page, signal_fd, err);
    }
    page_free(page);
    serve_free(serve);
    controller_close(&op);
    return rc;
}

/* The exit code. */
static int operator_check(const struct operator_options *o)
{
    CLEANUP(kube_config_release) struct kube_config config = {0};
    struct err err = ERR_INIT;
    int n = load_config(o, &config, &err);

    if (n == 0)
        n = check_run(&config, o, &err);
    if (n < 0)
        (void)fprintf(stderr, "hvd-operator: %s\n", err.text);
    return n != 0;
}

static int print_text(void (*make)(struct strbuf *))
{
    struct strbuf b;
    int rc;

    strbuf_init(&b, 65536);
    make(&b);
    rc = strbuf_status(&b) || fputs(strbuf_str(&b), stdout) < 0;
    strbuf_release(&b);
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = ERR_INIT;
    struct operator_options o;

    log_set_tag("hvd-operator", NULL);
    if (options_parse(argc, argv, getenv("KUBEFLOW_NAMESPACE"), &o, &err) < 0) {
        (void)fprintf(stderr, "hvd-operator: %s\n", err.text);
        return 2;
    }
    log_set_level(o.log_level);
    log_set_json(o.log_json);
    log_set_lossy(true); /* the only thread must not wait for the log's reader */
    (void)signal(SIGPIPE, SIG_IGN);
    switch (o.what) {
    case OPTIONS_CHECK:
        return operator_check(&o);
    case OPTIONS_HELP:
        return print_text(options_help);
    case OPTIONS_MAN:
        return print_text(options_man);
    case OPTIONS_VERSION:
        return puts("hvd-operator " HVD_VERSION_STRING) < 0;
    case OPTIONS_RUN:
        break;
    }
    if (operator_run(&o, &err) < 0) {
        log_error("hvd-operator stops", "cause=\"%s\"", err.text);
        return 1;
    }
    return 0;
}

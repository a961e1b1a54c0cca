/* SPDX-License-Identifier: Apache-2.0 */
/* The option table. Accepted forms: --name value and --name=value; a single dash works
 * as well, because deployments made for other operators write it so. */
#include "operator/options.h"

#include <errno.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define DEFAULT_IMAGE "localhost/hvd-runtime:dev"

enum option_key {
    KEY_KUBECONFIG,
    KEY_NAMESPACE,
    KEY_RUNTIME_IMAGE,
    KEY_CLUSTER_DOMAIN,
    KEY_HTTP_PORT,
    KEY_QPS,
    KEY_BURST,
    KEY_WATCH_IDLE,
    KEY_LOG_LEVEL,
    KEY_LOG_JSON,
    KEY_VERSION,
    KEY_HELP,
    KEY_MAN,
};

static const struct option_row {
    enum option_key key;
    const char *name, *arg, *help; /* arg NULL: a flag */
} rows[] = {
    {KEY_KUBECONFIG, "kubeconfig", "FILE",
     "how to reach the API server; default: $KUBECONFIG, else the pod's service "
     "account"},
    {KEY_NAMESPACE, "namespace", "NAME",
     "serve this namespace only, with a Role instead of a ClusterRole; default: all"},
    {KEY_RUNTIME_IMAGE, "runtime-image", "IMAGE",
     "image whose hvd-agent is installed into worker pods; default: " DEFAULT_IMAGE},
    {KEY_CLUSTER_DOMAIN, "cluster-domain", "DOMAIN",
     "DNS suffix of the cluster, put after worker names; default: none, the pods' "
     "search "
     "list finds them"},
    {KEY_HTTP_PORT, "http-port", "PORT",
     "port of /healthz, /readyz and /metrics; default: 8080"},
    {KEY_QPS, "kube-api-qps", "N", "requests a second to the API server; default: 50"},
    {KEY_BURST, "kube-api-burst", "N", "requests that may come at once; default: 100"},
    {KEY_WATCH_IDLE, "watch-idle-timeout", "TIME",
     "a watch that is silent for so long is taken for dead and opened again; the API "
     "server sends a sign of life every minute; default: 150s"},
    {KEY_LOG_LEVEL, "log-level", "LEVEL",
     "debug, info, warning or error; default: info"},
    {KEY_LOG_JSON, "log-json", NULL, "one JSON object a line"},
    {KEY_VERSION, "version", NULL, "print the version and exit"},
    {KEY_HELP, "help", NULL, "print this help and exit"},
    {KEY_MAN, "man-options", NULL, NULL}, /* for the build: the man page's section */
};

static const struct option_row *find(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strncmp(rows[i].name, name, n) == 0 && rows[i].name[n] == '\0')
            return &rows[i];
    }
    return NULL;
}

static int set_level(const char *value, struct options *o, struct err *err)
{
    if (log_level_parse(value, &o->log_level) < 0)
        return err_set(err, -EINVAL,
                       "--log-level: \"%s\" is not one of debug, info, warning, error",
                       value);
    return 0;
}

static int
set(const struct option_row *row, const char *value, struct options *o, struct err *err)
{
    switch (row->key) {
    case KEY_KUBECONFIG:
        o->kubeconfig = value;
        return 0;
    case KEY_NAMESPACE:
        o->ns = *value ? value : NULL;
        return 0;
    case KEY_RUNTIME_IMAGE:
        o->runtime_image = value;
        return *value ? 0 : err_set(err, -EINVAL, "--runtime-image: must not be empty");
    case KEY_CLUSTER_DOMAIN:
        o->cluster_domain = value;
        return 0;
    case KEY_HTTP_PORT:
        return parse_u32("--http-port", value, 0, 65535, &o->http_port, err);
    case KEY_QPS:
        return parse_u32("--kube-api-qps", value, 1, 100000, &o->qps, err);
    case KEY_BURST:
        return parse_u32("--kube-api-burst", value, 1, 100000, &o->burst, err);
    case KEY_WATCH_IDLE:
        return parse_duration_ms("--watch-idle-timeout", value, 1000, 3600000,
                                 &o->watch_idle_ms, err);
    case KEY_LOG_LEVEL:
        return set_level(value, o, err);
    case KEY_LOG_JSON:
        o->log_json = true;
        return 0;
    case KEY_VERSION:
        o->what = OPTIONS_VERSION;
        return 0;
    case KEY_HELP:
        o->what = OPTIONS_HELP;
        return 0;
    case KEY_MAN:
        o->what = OPTIONS_MAN;
        return 0;
    }
    return -EINVAL;
}

int options_parse(int argc, char **argv, struct options *ret, struct err *err)
{
    struct options o = {.runtime_image = DEFAULT_IMAGE,
                        .cluster_domain = "",
                        .http_port = 8080,
                        .qps = 50,
                        .burst = 100,
                        .watch_idle_ms = 150000,
                        .log_level = LOG_INFO};

    for (int i = 1; i < argc; i++) {
        const char *s = argv[i], *value = "";
        bool has_value;
        const struct option_row *row = NULL;
        size_t dashes = strspn(s, "-"), n;
        int rc;

        n = strcspn(s + dashes, "=");
        if (dashes == 1 || dashes == 2)
            row = find(s + dashes, n);
        if (!row)
            return err_set(err, -EINVAL, "%s: no such option; see --help", s);
        has_value = s[dashes + n] == '=';
        if (has_value)
            value = s + dashes + n + 1;
        if (!row->arg && has_value)
            return err_set(err, -EINVAL, "--%s takes no value", row->name);
        if (row->arg && !has_value && i + 1 < argc) {
            value = argv[++i];
            has_value = true;
        }
        if (row->arg && !has_value)
            return err_set(err, -EINVAL, "--%s needs a value: %s", row->name, row->arg);
        rc = set(row, value, &o, err);
        if (rc < 0)
            return rc;
    }
    *ret = o;
    return 0;
}

void options_help(struct strbuf *out)
{
    strbuf_puts(out, "usage: hvd-operator [options]\n"
                     "Kubernetes controller that runs HorovodJobs (ringmaster.dev/"
                     "v1beta1).\n\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].help)
            strbuf_printf(out, "  --%s%s%s\n      %s\n", rows[i].name,
                          rows[i].arg ? " " : "", rows[i].arg ? rows[i].arg : "",
                          rows[i].help);
    }
}

void options_man(struct strbuf *out)
{
    strbuf_puts(out, ".Bl -tag -width Ds\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].help)
            strbuf_printf(out, ".It Fl Fl %s%s%s\n%s.\n", rows[i].name,
                          rows[i].arg ? " Ar " : "", rows[i].arg ? rows[i].arg : "",
                          rows[i].help);
    }
    strbuf_puts(out, ".El\n");
}

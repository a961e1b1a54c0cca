/* SPDX-License-Identifier: Apache-2.0 */
/* The option table. Accepted forms: --name value and --name=value, also with a single
 * dash, as in deployments for other operators. Options of mpi-operator and of its
 * logging library are accepted; main.c logs those that have no effect, once each. A
 * switch takes =true or =false, never the next argument. */
#include "operator/options.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "operator/core/front.h"
#include "runtime/base/mem.h"
#include "runtime/base/parse.h"

#define DEBUG_VERBOSITY 4u /* users of klog expect debug lines from -v 4 on */

enum option_type {
    TYPE_TEXT,
    TYPE_NAME, /* text that must not be empty */
    TYPE_NUMBER,
    TYPE_TIME,
    TYPE_SWITCH,
    TYPE_LEVEL,
    TYPE_VERBOSITY,
    TYPE_WHAT,        /* a switch that prints something and exits */
    TYPE_IDLE,        /* accepted with a value, without effect */
    TYPE_IDLE_SWITCH, /* the same, without a value */
};

#define AT(field) offsetof(struct operator_options, field)

static const struct operator_option {
    const char *name, *arg, *help; /* help NULL: not shown */
    enum option_type type;
    size_t at;
    uint64_t min, max; /* of numbers and times (ms); TYPE_WHAT: min is the value */
} rows[] = {
    {"kubeconfig", "FILE",
     "how to reach the API server; default: the files of $KUBECONFIG, else the pod's "
     "service account",
     TYPE_TEXT, AT(kubeconfig), 0, 0},
    {"master", "URL", "the API server, instead of the one in the kubeconfig", TYPE_TEXT,
     AT(master), 0, 0},
    {"namespace", "NAME",
     "serve this namespace only, with a Role instead of a ClusterRole; default: "
     "$KUBEFLOW_NAMESPACE, else all",
     TYPE_TEXT, AT(ns), 0, 0},
    {"runtime-image", "IMAGE",
     "image whose hvd-agent is copied into worker pods; "
     "default: " DEFAULT_RUNTIME_IMAGE,
     TYPE_NAME, AT(runtime_image), 0, 0},
    {"cluster-domain", "DOMAIN",
     "DNS suffix of the cluster, appended to worker names; default: none, the pods' "
     "search list finds them",
     TYPE_TEXT, AT(cluster_domain), 0, 0},
    {"gang-scheduling", "NAME",
     "create a PodGroup for each job: volcano, or the name of a scheduler with the "
     "coscheduling plug-in; default: none",
     TYPE_TEXT, AT(gang_scheduling), 0, 0},
    {"leader-elect", NULL,
     "act only while this process holds the Lease, so that several may run; "
     "--leader-elect=false always acts; default: true in a pod, else false",
     TYPE_SWITCH, AT(leader_elect), 0, 0},
    {"leader-elect-lease-duration", "TIME",
     "a standby takes the Lease after this time without a renewal; more than the "
     "renew deadline; default: 15s",
     TYPE_TIME, AT(lease_duration_ms), 1000, 3600000},
    {"leader-elect-renew-deadline", "TIME",
     "a leader that cannot renew stops writing after this time; more than the retry "
     "period; default: 10s",
     TYPE_TIME, AT(lease_renew_ms), 500, 3600000},
    {"leader-elect-retry-period", "TIME",
     "time between two renewals; a standby checks four times as often; default: 2s",
     TYPE_TIME, AT(lease_retry_ms), 100, 600000},
    {"leader-elect-resource-name", "NAME", "name of the Lease; default: hvd-operator",
     TYPE_NAME, AT(lease_name), 0, 0},
    {"lock-namespace", "NAME",
     "namespace of the Lease; default: the pod's own, or that of the kubeconfig's "
     "context",
     TYPE_TEXT, AT(lock_namespace), 0, 0},
    {"mpi-operator-namespace", "NAME",
     "namespace of mpi-operator's Lease: while that is renewed, the log and a metric "
     "report that both act on MPIJobs without managedBy; empty: no check; default: "
     "mpi-operator",
     TYPE_TEXT, AT(rival_namespace), 0, 0},
    {"http-address", "ADDRESS",
     "IP address for the ports below, such as 127.0.0.1 behind a proxy; default: all",
     TYPE_TEXT, AT(serve.address), 0, 0},
    {"http-port", "PORT", "port of /healthz, /readyz and /metrics; default: 8080",
     TYPE_NUMBER, AT(serve.http_port), 0, 65535},
    {"monitoring-port", "PORT", "a second port with the same paths; default: 0, none",
     TYPE_NUMBER, AT(serve.monitoring_port), 0, 65535},
    {"health-port", "PORT",
     "a port of /healthz and /readyz alone, for probes that must not wait behind "
     "clients "
     "of /metrics; default: 0, none",
     TYPE_NUMBER, AT(serve.health_port), 0, 65535},
    {"job-metrics", NULL,
     "/metrics also has lines for single jobs: mpi_operator_job_info for each MPIJob, "
     "and those of hvd_job_ for each HorovodJob with a report",
     TYPE_SWITCH, AT(serve.has_job_metrics), 0, 0},
    {"page", "PORT",
     "serve a status page with all jobs; every request needs a token of the cluster; "
     "default: 0, none",
     TYPE_NUMBER, AT(page_port), 0, 65535},
    {"page-address", "ADDRESS",
     "IP address for the status page, which speaks plain HTTP; default: 127.0.0.1, "
     "which "
     "kubectl port-forward reaches",
     TYPE_NAME, AT(page_address), 0, 0},
    {"page-check-interval", "TIME",
     "how long an answer of the API server about a viewer's token and rights counts; "
     "default: 60s",
     TYPE_TIME, AT(page_check_ms), 1000, 3600000},
    {"kube-api-qps", "N", "requests a second to the API server; default: 50",
     TYPE_NUMBER, AT(qps), 1, 100000},
    {"kube-api-burst", "N", "requests that may be sent at once; default: 100",
     TYPE_NUMBER, AT(burst), 1, 100000},
    {"watch-idle-timeout", "TIME",
     "a watch that is silent for this time is replaced by a list; the API server sends "
     "a bookmark every minute; default: 150s",
     TYPE_TIME, AT(watch_idle_ms), 1000, 3600000},
    {"progress-interval", "TIME",
     "ask the agent of each running HorovodJob for its progress once in this time; 0: "
     "no job is asked; default: 15s",
     TYPE_TIME, AT(progress_ms), 0, 3600000},
    {"webhook-dir", "DIR",
     "send each change of a job's state to the URL in DIR/url, signed with the key in "
     "DIR/secret, by the specification Standard Webhooks; DIR/ca.crt, if present, is "
     "the "
     "CA of the receiver; default: none",
     TYPE_TEXT, AT(webhook_dir), 0, 0},
    {"log-level", "LEVEL", "debug, info, warning or error; default: info", TYPE_LEVEL,
     AT(log_level), 0, 0},
    {"v", "N", "the same by number: debug from 4 on", TYPE_VERBOSITY, AT(log_level), 0,
     1000},
    {"log-json", NULL, "one JSON object a line", TYPE_SWITCH, AT(log_json), 0, 0},
    {"check", NULL,
     "check an installation and exit: whether this account may list what the operator "
     "lists, with --page create its reviews, and whether an operator holds and renews "
     "the Lease; writes nothing",
     TYPE_WHAT, AT(what), OPTIONS_CHECK, 0},
    {"version", NULL, "print the version and exit", TYPE_WHAT, AT(what),
     OPTIONS_VERSION, 0},
    {"help", NULL, "print this help and exit", TYPE_WHAT, AT(what), OPTIONS_HELP, 0},
    {"man-options", NULL, NULL, TYPE_WHAT, AT(what), OPTIONS_MAN,
     0}, /* for the build: the man page's section */
    {"kubeConfig", "FILE", NULL, TYPE_TEXT, AT(kubeconfig), 0, 0},
    {"leader-elect-resource-namespace", "NAME", NULL, TYPE_TEXT, AT(lock_namespace), 0,
     0},
};

/* Options without effect, each with its reason. */
static const struct idle_row {
    const char *name, *why;
    bool is_switch;
} idle_rows[] = {
    {"threadiness", "one thread does all work", false},
    {"controller-queue-rate-limit", "each job waits 50 ms to 30 s between tries",
     false},
    {"controller-queue-burst", "each job waits 50 ms to 30 s between tries", false},
    {"alsologtostderr", "the log goes to standard error", true},
    {"logtostderr", "the log goes to standard error", true},
    {"one_output", "the log goes to standard error", true},
    {"skip_headers", "each line has a header", true},
    {"add_dir_header", "no line names a source file", true},
    {"skip_log_headers", "there are no log files", true},
    {"stderrthreshold", "the log goes to standard error; --log-level selects", false},
    {"legacy_stderr_threshold_behavior", "the log goes to standard error", true},
    {"vmodule", "--log-level is the same for all parts", false},
    {"log_backtrace_at", "no line names a source file", false},
    {"log_dir", "the log goes to standard error", false},
    {"log_file", "the log goes to standard error", false},
    {"log_file_max_size", "there are no log files", false},
};

static const struct operator_option *options_find(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strncmp(rows[i].name, name, n) == 0 && rows[i].name[n] == '\0')
            return &rows[i];
    }
    return NULL;
}

/* An option without effect as a row of the table. */
static bool options_find_idle(const char *name, size_t n, struct operator_option *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(idle_rows); i++) {
        const struct idle_row *r = &idle_rows[i];

        if (strncmp(r->name, name, n) != 0 || r->name[n] != '\0')
            continue;
        *ret = (struct operator_option){.name = r->name,
                                        .arg = r->is_switch ? NULL : "VALUE",
                                        .help = r->why,
                                        .type = r->is_switch ? TYPE_IDLE_SWITCH
                                                             : TYPE_IDLE};
        return true;
    }
    return false;
}

static int options_set_text(const struct operator_option *row,
                            const char *value,
                            void *at,
                            struct err *err)
{
    if (row->type == TYPE_NAME && !*value)
        return err_set(err, -EINVAL, "--%s: must not be empty", row->name);
    *(const char **)at = value;
    return 0;
}

static int set_level(const char *value, enum log_level *ret, struct err *err)
{
    if (log_level_parse(value, ret) < 0)
        return err_set(err, -EINVAL,
                       "--log-level: \"%s\" is not one of debug, info, warning, error",
                       value);
    return 0;
}

static void note_idle(const struct operator_option *row, struct operator_options *o)
{
    for (size_t i = 0; i < o->n_idle; i++) {
        if (strcmp(o->idle[i].name, row->name) == 0)
            return;
    }
    if (o->n_idle < OPTIONS_MAX_IDLE)
        o->idle[o->n_idle++] = (struct options_idle){row->name, row->help};
}

static int options_set(const struct operator_option *row,
                       const char *value,
                       struct operator_options *o,
                       struct err *err)
{
    void *at = (char *)o + row->at;
    char field[64] = "--";
    uint32_t verbosity;
    bool is_on = true;
    int rc = 0;

    strncat(field, row->name, sizeof(field) - 3);
    switch (row->type) {
    case TYPE_TEXT:
    case TYPE_NAME:
        return options_set_text(row, value, at, err);
    case TYPE_NUMBER:
        return parse_u32(field, value, (uint32_t)row->min, (uint32_t)row->max, at, err);
    case TYPE_TIME:
        return parse_duration_ms(field, value, row->min, row->max, at, err);
    case TYPE_LEVEL:
        return set_level(value, at, err);
    case TYPE_VERBOSITY:
        rc = parse_u32(field, value, 0, (uint32_t)row->max, &verbosity, err);
        if (rc == 0 && verbosity >= DEBUG_VERBOSITY)
            o->log_level = LOG_DEBUG;
        return rc;
    case TYPE_SWITCH:
        rc = parse_bool(field, value, at, err);
        if (row->at == AT(leader_elect))
            o->is_leader_elect_set = true;
        return rc;
    case TYPE_WHAT:
        rc = parse_bool(field, value, &is_on, err);
        if (rc == 0 && is_on)
            o->what = row->min;
        return rc;
    case TYPE_IDLE_SWITCH:
        rc = parse_bool(field, value, &is_on, err);
        note_idle(row, o);
        return rc;
    case TYPE_IDLE:
        note_idle(row, o);
        return 0;
    }
    return -EINVAL;
}

static int options_check(const struct operator_options *o, struct err *err)
{
    if (o->lease_renew_ms >= o->lease_duration_ms)
        return err_set(err, -EINVAL,
                       "--leader-elect-renew-deadline: %llu ms must be less than "
                       "--leader-elect-lease-duration, %llu ms",
                       (unsigned long long)o->lease_renew_ms,
                       (unsigned long long)o->lease_duration_ms);
    if (o->lease_retry_ms * 6 / 5 >= o->lease_renew_ms) /* with jitter */
        return err_set(err, -EINVAL,
                       "--leader-elect-retry-period: %llu ms must be less than 5/6 of "
                       "--leader-elect-renew-deadline, %llu ms",
                       (unsigned long long)o->lease_retry_ms,
                       (unsigned long long)o->lease_renew_ms);
    return 0;
}

/* One option at argv[*i]; moves *i past its value. */
static int options_parse_one(
    int argc, char **argv, int *i, struct operator_options *o, struct err *err)
{
    const char *s = argv[*i], *value = NULL;
    const struct operator_option *row = NULL;
    size_t dashes = strspn(s, "-"), n = strcspn(s + dashes, "=");
    struct operator_option idle;

    if (dashes == 1 || dashes == 2)
        row = options_find(s + dashes, n);
    if ((dashes == 1 || dashes == 2) && !row && options_find_idle(s + dashes, n, &idle))
        row = &idle;
    if (!row)
        return err_set(err, -EINVAL, "%s: no such option; see --help", s);
    if (s[dashes + n] == '=')
        value = s + dashes + n + 1;
    else if (row->arg && *i + 1 < argc)
        value = argv[++*i];
    else if (!row->arg)
        value = "true";
    if (!value)
        return err_set(err, -EINVAL, "--%s needs a value: %s", row->name, row->arg);
    return options_set(row, value, o, err);
}

int options_parse(int argc,
                  char **argv,
                  const char *default_ns,
                  struct operator_options *ret,
                  struct err *err)
{
    struct operator_options o = {.ns = default_ns,
                                 .runtime_image = DEFAULT_RUNTIME_IMAGE,
                                 .cluster_domain = "",
                                 .gang_scheduling = "",
                                 .lease_name = "hvd-operator",
                                 .rival_namespace = "mpi-operator",
                                 .serve = {.address = "", .http_port = 8080},
                                 .page_address = "127.0.0.1",
                                 .page_check_ms = 60000,
                                 .qps = 50,
                                 .burst = 100,
                                 .lease_duration_ms = 15000,
                                 .lease_renew_ms = 10000,
                                 .lease_retry_ms = 2000,
                                 .watch_idle_ms = 150000,
                                 .progress_ms = 15000,
                                 .log_level = LOG_INFO};
    int rc = 0;

    for (int i = 1; i < argc && rc == 0; i++)
        rc = options_parse_one(argc, argv, &i, &o, err);
    if (rc == 0)
        rc = options_check(&o, err);
    if (rc < 0)
        return rc;
    if (o.ns && !*o.ns)
        o.ns = NULL;
    if (o.kubeconfig && !*o.kubeconfig)
        o.kubeconfig = NULL;
    if (o.master && !*o.master)
        o.master = NULL;
    if (o.webhook_dir && !*o.webhook_dir)
        o.webhook_dir = NULL;
    if (o.lock_namespace && !*o.lock_namespace)
        o.lock_namespace = NULL;
    *ret = o;
    return 0;
}

const char *options_lock_namespace(const struct operator_options *o,
                                   const char *config_ns)
{
    if (o->lock_namespace)
        return o->lock_namespace;
    return config_ns && *config_ns ? config_ns : "default";
}

void options_help(struct strbuf *out)
{
    strbuf_puts(out, "usage: hvd-operator [options]\n"
                     "Kubernetes controller for HorovodJobs (ringmaster.dev/v1beta1) "
                     "and MPIJobs (kubeflow.org/v2beta1).\n\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].help)
            strbuf_printf(out, "  --%s%s%s\n      %s\n", rows[i].name,
                          rows[i].arg ? " " : "", rows[i].arg ? rows[i].arg : "",
                          rows[i].help);
    }
    strbuf_puts(out, "\nAccepted without effect, and reported in the log:\n ");
    for (size_t i = 0; i < ARRAY_LEN(idle_rows); i++)
        strbuf_printf(out, " --%s%s", idle_rows[i].name,
                      i + 1 < ARRAY_LEN(idle_rows) ? (i % 4 == 3 ? "\n " : "") : "\n");
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

/* SPDX-License-Identifier: Apache-2.0 */
/* spec.runPolicy.failureRules -> arrays in the arena. A rule has one subject: the
 * property of the job's first cause that it compares. Signals become numbers by their
 * Linux names, which are the same on x86-64 and arm64. Called by hvd_policy.c. */
#include "operator/core/hvd/hvd_policy.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operator/core/hvd/hvd_fields.h"
#include "runtime/base/mem.h"

#define PATH      "spec.runPolicy"
#define MAX_CODE  255
#define PATH_SIZE 96

struct reading { /* of one rule */
    char path[PATH_SIZE];
    struct arena *arena;
    struct failure_rule *rule;
    struct strbuf *problems;
};

static const char *const action_names[] = {
    [RULE_FAIL] = "Fail", [RULE_RESTART] = "Restart", [RULE_IGNORE] = "Ignore", NULL};
static const char *const subject_names[] = {[RULE_EXIT_CODES] = "onExitCodes",
                                            [RULE_SIGNALS] = "onSignals",
                                            [RULE_POD_CONDITIONS] = "onPodConditions",
                                            [RULE_REASONS] = "onReasons"};

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"SIGHUP", SIGHUP},       {"SIGINT", SIGINT},   {"SIGQUIT", SIGQUIT},
    {"SIGILL", SIGILL},       {"SIGTRAP", SIGTRAP}, {"SIGABRT", SIGABRT},
    {"SIGBUS", SIGBUS},       {"SIGFPE", SIGFPE},   {"SIGKILL", SIGKILL},
    {"SIGUSR1", SIGUSR1},     {"SIGSEGV", SIGSEGV}, {"SIGUSR2", SIGUSR2},
    {"SIGPIPE", SIGPIPE},     {"SIGALRM", SIGALRM}, {"SIGTERM", SIGTERM},
    {"SIGSTKFLT", SIGSTKFLT}, {"SIGXCPU", SIGXCPU}, {"SIGXFSZ", SIGXFSZ},
    {"SIGVTALRM", SIGVTALRM}, {"SIGPROF", SIGPROF}, {"SIGIO", SIGIO},
    {"SIGPWR", SIGPWR},       {"SIGSYS", SIGSYS},
};
#define MAX_SIGNAL 64

/* 0: no signal has that name. A number ("9") is accepted too. */
static int signal_number(const struct node *n)
{
    char *end;
    long v;

    if (n->type == NODE_INT)
        return n->u.i >= 1 && n->u.i <= MAX_SIGNAL ? (int)n->u.i : 0;
    if (n->type != NODE_STRING)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        if (strcmp(signals[i].name, n->u.s) == 0)
            return signals[i].number;
    }
    if (strspn(n->u.s, "0123456789") != strlen(n->u.s) || strlen(n->u.s) > 2)
        return 0;
    v = strtol(n->u.s, &end, 10);
    return v >= 1 && v <= MAX_SIGNAL ? (int)v : 0;
}

static int read_signals(struct reading *r, const struct node *list)
{
    int *v = arena_calloc(r->arena, list->n, sizeof(*v));
    size_t i = 0;

    if (!v)
        return -ENOMEM;
    for (const struct node *c = list->first; c; c = c->next, i++) {
        v[i] = signal_number(c);
        if (v[i] == 0)
            strbuf_printf(r->problems,
                          "%s.onSignals[%zu]: %s%s is not a signal; write a name, for "
                          "example SIGKILL, or a number, 1 to %d\n",
                          r->path, i, c->type == NODE_STRING ? c->u.s : "",
                          c->type == NODE_STRING ? "" : node_type_name(c->type),
                          MAX_SIGNAL);
    }
    r->rule->number = v;
    r->rule->n = list->n;
    return 0;
}

static int read_codes(struct reading *r, const struct node *o)
{
    static const char *const known[] = {"operator", "values", NULL};
    static const char *const operators[] = {"In", "NotIn", NULL};
    char path[PATH_SIZE + 16];
    const struct node *list;
    size_t i = 0;
    int *v;

    (void)snprintf(path, sizeof(path), "%s.onExitCodes", r->path);
    if (!node_get(o, "operator"))
        strbuf_printf(r->problems, "%s.operator: missing; In or NotIn\n", path);
    r->rule->is_not_in =
        field_choice(o, path, "operator", operators, 0, r->problems) == 1;
    if (!node_get(o, "values"))
        strbuf_printf(r->problems, "%s.values: missing\n", path);
    list = field_list(o, path, "values", 1, JOB_MAX_RULE_LIST, r->problems);
    field_refuse_unknown(o, path, known, r->problems);
    if (!list)
        return 0;
    v = arena_calloc(r->arena, list->n, sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (const struct node *c = list->first; c; c = c->next, i++) {
        if (c->type == NODE_INT && c->u.i >= 1 && c->u.i <= MAX_CODE)
            v[i] = (int)c->u.i;
        else
            strbuf_printf(r->problems,
                          "%s.values[%zu]: must be an exit code from 1 to %d\n", path,
                          i, MAX_CODE);
    }
    r->rule->number = v;
    r->rule->n = list->n;
    return 0;
}

static int rules_read_conditions(struct reading *r, const struct node *list)
{
    static const char *const known[] = {"type", "status", NULL};
    static const char *const states[] = {"True", "False", "Unknown", NULL};
    struct rule_condition *v = arena_calloc(r->arena, list->n, sizeof(*v));
    size_t i = 0;

    if (!v)
        return -ENOMEM;
    for (const struct node *c = list->first; c; c = c->next, i++) {
        char path[PATH_SIZE + 32];

        (void)snprintf(path, sizeof(path), "%s.onPodConditions[%zu]", r->path, i);
        if (c->type != NODE_OBJECT) {
            strbuf_printf(r->problems, "%s: must be an object, is %s\n", path,
                          node_type_name(c->type));
            continue;
        }
        if (!node_get(c, "type"))
            strbuf_printf(r->problems, "%s.type: missing\n", path);
        v[i].type = field_text(c, path, "type", "", r->problems);
        v[i].status = states[field_choice(c, path, "status", states, 0, r->problems)];
        field_refuse_unknown(c, path, known, r->problems);
    }
    r->rule->condition = v;
    r->rule->n = list->n;
    return 0;
}

static int read_reasons(struct reading *r, const struct node *list)
{
    const char **v = arena_calloc(r->arena, list->n, sizeof(*v));
    size_t i = 0;

    if (!v)
        return -ENOMEM;
    for (const struct node *c = list->first; c; c = c->next, i++) {
        v[i] = c->type == NODE_STRING ? c->u.s : "";
        if (!*v[i])
            strbuf_printf(r->problems,
                          "%s.onReasons[%zu]: must be a word such as OOMKilled\n",
                          r->path, i);
    }
    r->rule->reason = v;
    r->rule->n = list->n;
    return 0;
}

static int read_subject(struct reading *r, const struct node *o)
{
    const char *name = subject_names[r->rule->subject];
    const struct node *list;

    if (r->rule->subject == RULE_EXIT_CODES) {
        const struct node *codes = field_object(o, r->path, name, false, r->problems);

        return codes ? read_codes(r, codes) : 0;
    }
    list = field_list(o, r->path, name, 1, JOB_MAX_RULE_LIST, r->problems);
    if (!list)
        return 0;
    if (r->rule->subject == RULE_SIGNALS)
        return read_signals(r, list);
    return r->rule->subject == RULE_REASONS ? read_reasons(r, list)
                                            : rules_read_conditions(r, list);
}

static int read_rule(struct reading *r, const struct node *o)
{
    static const char *const known[] = {"action",          "onExitCodes", "onSignals",
                                        "onPodConditions", "onReasons",   NULL};
    size_t n = 0;

    if (o->type != NODE_OBJECT) {
        strbuf_printf(r->problems, "%s: must be an object, is %s\n", r->path,
                      node_type_name(o->type));
        return 0;
    }
    if (!node_get(o, "action"))
        strbuf_printf(r->problems, "%s.action: missing; Fail, Restart or Ignore\n",
                      r->path);
    r->rule->action = (enum rule_action)field_choice(o, r->path, "action", action_names,
                                                     RULE_FAIL, r->problems);
    for (size_t i = 0; i < ARRAY_LEN(subject_names); i++) {
        if (node_get(o, subject_names[i])) {
            r->rule->subject = (enum rule_subject)i;
            n++;
        }
    }
    if (n != 1)
        strbuf_printf(r->problems,
                      "%s: must have exactly one of onExitCodes, onSignals, "
                      "onPodConditions, onReasons, has %zu\n",
                      r->path, n);
    field_refuse_unknown(o, r->path, known, r->problems);
    return n == 1 ? read_subject(r, o) : 0;
}

int hvd_rules_decode(const struct node *run,
                     struct arena *a,
                     struct hvd_run *ret,
                     struct strbuf *problems)
{
    const struct node *list =
        field_list(run, PATH, "failureRules", 0, JOB_MAX_RULES, problems);
    struct failure_rule *v;
    size_t i = 0;
    int rc = 0;

    if (!list || list->n == 0)
        return 0;
    v = arena_calloc(a, list->n, sizeof(*v));
    if (!v)
        return -ENOMEM;
    for (const struct node *c = list->first; c && rc == 0; c = c->next, i++) {
        struct reading r = {.arena = a, .rule = &v[i], .problems = problems};

        (void)snprintf(r.path, sizeof(r.path), PATH ".failureRules[%zu]", i);
        rc = read_rule(&r, c);
    }
    ret->rule = v;
    ret->n_rules = list->n;
    return rc;
}

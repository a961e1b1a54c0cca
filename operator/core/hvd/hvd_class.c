/* SPDX-License-Identifier: Apache-2.0 */
/* Causes and failure rules.
 *
 *   cause                                                     without a rule
 *   the pod was deleted, evicted, preempted, lost its node    Ignore
 *   it ended before any rank ran, not by a container          Ignore
 *   the agents did not meet in time                           Ignore
 *   anything else: a rank, an agent, a container failed       Restart
 *
 * hvd_verdict.c decides whether another restart is allowed. Pure. */
#include "operator/core/hvd/hvd_class.h"

#include <string.h>

#include "runtime/base/mem.h"

#define BACKOFF_S 10u

static bool rule_has_number(const struct failure_rule *r, int number)
{
    for (size_t i = 0; i < r->n; i++) {
        if (r->number[i] == number)
            return true;
    }
    return false;
}

static bool rule_has_condition(const struct failure_rule *r, const struct cause *c)
{
    for (size_t i = 0; i < r->n; i++) {
        if (c->seen
            && pod_has_condition(c->seen, r->condition[i].type, r->condition[i].status))
            return true;
    }
    return false;
}

static bool rule_has_reason(const struct failure_rule *r, const struct cause *c)
{
    for (size_t i = 0; i < r->n; i++) {
        if (strcmp(r->reason[i], c->reason) == 0)
            return true;
    }
    return false;
}

/* The exit code as kubectl shows it: 128 plus the number after a signal. Kubernetes
 * deletes a pod by a signal, which does not describe its program. 0: none. */
static int shown_code(const struct cause *c)
{
    if (!c->has_exit || (c->signal && c->is_outside))
        return 0;
    return c->signal ? 128 + c->signal : c->exit_code;
}

static bool rule_matches_cause(const struct failure_rule *r, const struct cause *c)
{
    switch (r->subject) {
    case RULE_EXIT_CODES:
        return shown_code(c) != 0 && rule_has_number(r, shown_code(c)) != r->is_not_in;
    case RULE_SIGNALS:
        return c->has_exit && c->signal != 0 && rule_has_number(r, c->signal);
    case RULE_POD_CONDITIONS:
        return rule_has_condition(r, c);
    case RULE_REASONS:
        return rule_has_reason(r, c);
    }
    return false;
}

enum rule_action cause_class(const struct hvd_job *job, const struct cause *c)
{
    for (size_t i = 0; i < job->run.n_rules; i++) {
        if (rule_matches_cause(&job->run.rule[i], c))
            return job->run.rule[i].action;
    }
    return c->is_outside ? RULE_IGNORE : RULE_RESTART;
}

static bool reason_is_among(const char *reason, const char *const *reasons, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(reasons[i], reason) == 0)
            return true;
    }
    return false;
}

bool reason_is_outside(const char *reason)
{
    static const char *const reasons[] = {"Preempting", "NodeLost",     "Shutdown",
                                          "Terminated", "NodeShutdown", "NodeAffinity"};

    return reason_is_among(reason, reasons, ARRAY_LEN(reasons));
}

bool reason_is_own(const char *reason)
{
    static const char *const reasons[] = {"Evicted", "DeadlineExceeded"};

    return reason_is_among(reason, reasons, ARRAY_LEN(reasons));
}

bool exit_is_unseen(const char *exit_reason)
{
    static const char *const reasons[] = {"Unknown", "ContainerStatusUnknown"};

    return reason_is_among(exit_reason, reasons, ARRAY_LEN(reasons));
}

uint64_t restart_backoff_s(uint32_t n)
{
    uint64_t s = BACKOFF_S;

    for (; n > 1 && s < MAX_BACKOFF_S; n--)
        s *= 2;
    return s < MAX_BACKOFF_S ? s : MAX_BACKOFF_S;
}

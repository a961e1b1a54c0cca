/* SPDX-License-Identifier: Apache-2.0 */
/* The status that a HorovodJob has after each sync, whatever the case: the stored one,
 * the counts of its pods, and what a change of its state writes. op_plan_test.c prints
 * what differs from it. Include after cmocka.h. */
#ifndef TESTS_UNIT_OP_PLAN_STATUS_H
#define TESTS_UNIT_OP_PLAN_STATUS_H

#include "operator/core/plan.h"
#include "operator/core/timestamp.h"
#include "tests/unit/golden.h"

/* Whether the job becomes Failed, Succeeded or Restarting. */
static bool plan_has_ended(const struct node *stored, enum job_state state)
{
    return stored && state_of_status(stored) != state
           && (state == STATE_FAILED || state == STATE_SUCCEEDED
               || state == STATE_RESTARTING);
}

static void plan_expect_condition(struct build *b,
                                  struct node *status,
                                  const char *type,
                                  bool is_true,
                                  const char *reason,
                                  const char *message,
                                  const char *now)
{
    struct node *list = node_child(b, status, "conditions", NODE_ARRAY);
    struct node *c = golden_find(list, type);
    const char *value = is_true ? "True" : "False";

    if (!c) {
        c = node_object(b);
        node_set_str(b, c, "type", type);
        node_add(b, list, c);
    }
    if (!node_str(c, "status") || strcmp(node_str(c, "status"), value) != 0)
        node_set_str(b, c, "lastTransitionTime", now);
    node_set_str(b, c, "status", value);
    node_set_str(b, c, "reason", reason);
    node_set_str(b, c, "message", message);
}

static void plan_expect_end(struct build *b,
                            struct node *status,
                            const struct decision *d,
                            const char *now)
{
    node_set_str(b, status, "state", state_name(d->state));
    if (d->state == STATE_RESTARTING) {
        plan_expect_condition(b, status, "Created", false, "JobRestarting",
                              "the job's pods are deleted", now);
        plan_expect_condition(b, status, "Running", false, "JobRestarting",
                              "the job's pods are deleted and will be recreated", now);
    } else {
        node_set_str(b, status, "completionTime", now);
        plan_expect_condition(b, status, "Running", false, "JobFinished",
                              "the job has finished", now);
    }
    plan_expect_condition(b, status, state_name(d->state), true, d->reason, d->message,
                          now);
    if (state_is_final(d->state))
        plan_expect_condition(b, status, "Finished", true,
                              d->state == STATE_SUCCEEDED ? "JobSucceeded"
                                                          : "JobFailed",
                              d->message, now);
}

/* The pods of a role by phase. Counts of a finished job stay. Returns how many are
 * ready. */
static int plan_expect_counts(struct build *b,
                              struct node *status,
                              const char *role,
                              const struct crew *crew)
{
    struct node *sets = node_child(b, status, "replicaStatuses", NODE_OBJECT);
    struct node *counts = node_child(b, sets, role, NODE_OBJECT);
    bool is_final = state_is_final(state_of_status(status));
    int n[POD_FAILED + 1] = {0}, n_ready = 0;

    for (uint32_t i = 0; i < crew->n; i++) {
        const struct pod *p = crew->w[i].pod;

        if (crew->w[i].state != WORKER_SEEN)
            continue;
        n[p->phase]++;
        n_ready += p->phase == POD_RUNNING && p->is_ready && !p->is_deleting;
    }
    node_set_int(b, counts, "active", n[POD_RUNNING]);
    if (!is_final || !node_get(counts, "succeeded")) {
        node_set_int(b, counts, "succeeded", n[POD_SUCCEEDED]);
        node_set_int(b, counts, "failed", n[POD_FAILED]);
    }
    return n_ready;
}

static const struct node *plan_expect_status(struct build *b,
                                             const struct node *stored,
                                             const struct observed *seen,
                                             const struct decision *d,
                                             uint64_t now_s)
{
    struct node *status = stored ? node_copy(b, stored) : node_object(b);
    char now[TIMESTAMP_SIZE], text[32];
    int n_ready = 0, n;

    for (int r = 0; r < ROLE_COUNT; r++) {
        const char *role = role_title((enum role)r);

        if (seen->crew[r].n == 0
            && !node_get(node_get(d->status, "replicaStatuses"), role))
            continue;
        n = plan_expect_counts(b, status, role, &seen->crew[r]);
        n_ready = r == ROLE_WORKER ? n : n_ready;
    }
    n = (int)node_int(d->status, "workerReplicas", 0);
    (void)snprintf(text, sizeof(text), "%d/%d", n_ready, n);
    if (n > 0)
        node_set_str(b, status, "workers", text);
    if (!state_is_final(state_of_status(stored)))
        node_set_str(b, status, "message", d->message);
    if (plan_has_ended(stored, d->state))
        plan_expect_end(b, status, d, timestamp_format_s(now_s, now));
    assert_int_equal(b->status, 0);
    return status;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of conditions and statuses. */
#include "operator/core/state.h"

#include <string.h>

#include "runtime/base/mem.h"

static const char *const names[] = {
    [STATE_PENDING] = "Pending",       [STATE_RUNNING] = "Running",
    [STATE_RESTARTING] = "Restarting", [STATE_SUSPENDED] = "Suspended",
    [STATE_SUCCEEDED] = "Succeeded",   [STATE_FAILED] = "Failed",
};
_Static_assert(ARRAY_LEN(names) == STATE_COUNT, "one name per state");

const char *state_name(enum job_state s)
{
    return names[s];
}

enum job_state state_of_status(const struct node *status)
{
    static const enum job_state order[] = {STATE_FAILED, STATE_SUCCEEDED,
                                           STATE_SUSPENDED, STATE_RESTARTING,
                                           STATE_RUNNING};

    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        if (condition_is_true(status, names[order[i]])) /* states are conditions, too */
            return order[i];
    }
    return STATE_PENDING;
}

bool state_is_live(enum job_state s)
{
    return s == STATE_PENDING || s == STATE_RUNNING;
}

bool state_is_final(enum job_state s)
{
    return s == STATE_SUCCEEDED || s == STATE_FAILED;
}

const struct node *condition_find(const struct node *status, const char *type)
{
    return node_with(node_get(status, "conditions"), "type", type);
}

bool condition_is_true(const struct node *status, const char *type)
{
    const char *s = node_str(condition_find(status, type), "status");

    return s && strcmp(s, "True") == 0;
}

struct node *status_timeless(struct build *b, const struct node *status)
{
    struct node *copy = node_copy(b, status);
    struct node *list = node_child(b, copy, "conditions", NODE_ARRAY);

    node_drop(copy, "goodput");
    node_drop(copy, "startTime");
    node_drop(copy, "completionTime");
    node_drop(copy, "progress");
    for (struct node *c = list ? list->first : NULL; c; c = c->next) {
        node_drop(c, "lastTransitionTime");
        node_drop(c, "lastUpdateTime");
    }
    return b->status ? NULL : copy;
}

/* The status without counts and messages. */
static struct node *without_progress(struct build *b, const struct node *status)
{
    struct node *copy = status_timeless(b, status);
    struct node *list = copy ? node_child(b, copy, "conditions", NODE_ARRAY) : NULL;

    if (!copy)
        return NULL;
    node_drop(copy, "workers");
    node_drop(copy, "message");
    node_drop(copy, "replicaStatuses");
    for (struct node *c = list ? list->first : NULL; c; c = c->next)
        node_drop(c, "message");
    return b->status ? NULL : copy;
}

bool status_is_progress(struct build *b, const struct node *old, const struct node *now)
{
    const struct node *was = old ? without_progress(b, old) : NULL;
    const struct node *is = without_progress(b, now);

    return was && is && node_equal(was, is);
}

static struct node *without_report(struct build *b, const struct node *status)
{
    struct node *copy = node_copy(b, status);

    node_drop(copy, "goodput");
    node_drop(copy, "progress");
    return b->status ? NULL : copy;
}

bool status_is_report(struct build *b, const struct node *old, const struct node *now)
{
    const struct node *was = old ? without_report(b, old) : NULL;
    const struct node *is = without_report(b, now);

    return was && is && node_equal(was, is);
}

static bool completions_differ(const struct node *old, const struct node *now)
{
    const struct node *was = node_get(old, "replicaStatuses");
    const struct node *is = node_get(now, "replicaStatuses");

    for (const struct node *role = is ? is->first : NULL; role; role = role->next) {
        if (!node_equal(node_get(role, "completedIndexes"),
                        node_get(node_get(was, role->key), "completedIndexes")))
            return true;
    }
    return false;
}

bool status_needs_sync(struct build *b, const struct node *old, const struct node *now)
{
    return !status_is_progress(b, old, now) || completions_differ(old, now);
}

struct node *
status_patch(struct build *b, const struct node *old, const struct node *now)
{
    struct node *patch = node_copy(b, now);

    for (const struct node *c = old ? old->first : NULL; c && patch; c = c->next) {
        const struct node *n = node_get(now, c->key);

        if (!n)
            node_set(b, patch, c->key, node_null(b));
        else if (n->type == NODE_OBJECT && c->type == NODE_OBJECT)
            node_set(b, patch, c->key, status_patch(b, c, n));
    }
    return b->status ? NULL : patch;
}

const char *status_difference(const struct node *sent, const struct node *kept)
{
    for (const struct node *c = sent->first; c; c = c->next) {
        if (!node_equal(c, node_get(kept, c->key)))
            return c->key;
    }
    for (const struct node *c = kept ? kept->first : NULL; c; c = c->next) {
        if (!node_get(sent, c->key))
            return c->key;
    }
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Status -> struct hvd_stored.
 *
 * A status of an operator without generations has no generation: its pods are those of
 * the first. While pods of a world may run (Pending, Running), the size of the world is
 * that of the status, not that of the spec. A new size is stored first, with a new
 * generation, so that all pods of a generation are created for the same size. Pure;
 * called by hvd_front.c (open) and hvd_verdict.c. */
#include "operator/core/hvd/hvd_stored.h"

#include <string.h>

#include "operator/core/timestamp.h"

static uint32_t stored_count(const struct node *status, const char *key)
{
    int64_t v = node_int(status, key, 0);

    return v > 0 && v <= UINT32_MAX ? (uint32_t)v : 0;
}

static uint64_t stored_seconds(const struct node *o, const char *key)
{
    const char *text = node_str(o, key);
    uint64_t us = 0;

    return text && timestamp_parse_us(text, &us) == 0 ? us / 1000000u : 0;
}

void hvd_stored_read(const struct node *status, struct hvd_stored *ret)
{
    const struct node *restarting = condition_find(status, "Restarting");
    const char *why = node_str(condition_find(status, "Running"), "reason");
    struct hvd_stored s = {.is_new = !status || status->n == 0};

    s.state = state_of_status(status);
    s.is_created = condition_is_true(status, "Created");
    s.is_ttl_reported = why && strcmp(why, TTL_REASON) == 0;
    s.generation = stored_count(status, "generation");
    if (s.generation == 0 && !s.is_new && s.state != STATE_SUSPENDED)
        s.generation = 1;
    s.workers = stored_count(status, "workerReplicas");
    s.restarts = stored_count(status, "restarts");
    s.replacements = stored_count(status, "replacements");
    index_set_read(
        node_str(node_get(node_get(status, "replicaStatuses"), role_title(ROLE_WORKER)),
                 "lostIndexes"),
        &s.lost);
    hvd_retired_read(status, &s.retired);
    s.worker_replacements = stored_count(status, "workerReplacements");
    s.launcher_replacements = stored_count(status, "launcherReplacements");
    s.is_launcher_lost = node_str(
        node_get(node_get(status, "replicaStatuses"), role_title(ROLE_LAUNCHER)),
        "lostIndexes");
    s.start_s = stored_seconds(status, "startTime");
    s.completion_s = stored_seconds(status, "completionTime");
    s.next_restart_s = stored_seconds(status, "nextRestartTime");
    s.resize_s = stored_seconds(status, "resizeTime");
    if (s.state == STATE_SUSPENDED)
        s.suspended_s =
            stored_seconds(condition_find(status, "Suspended"), "lastTransitionTime");
    if (s.state != STATE_RESTARTING)
        s.restarted_s = stored_seconds(restarting, "lastTransitionTime");
    *ret = s;
}

void hvd_stored_apply(struct hvd_job *job, bool is_refused)
{
    const struct node *roles = node_get(job->meta.status, "replicaStatuses");
    struct hvd_stored s;

    hvd_stored_read(job->meta.status, &s);
    if (is_refused && s.workers > 0)
        job->role[ROLE_WORKER].n = s.workers;
    job->spec_workers = job->role[ROLE_WORKER].n;
    job->world_generation = s.is_new ? 1 : s.generation;
    if (s.state != STATE_RESTARTING && s.state != STATE_SUSPENDED && s.workers > 0)
        job->role[ROLE_WORKER].n = s.workers;
    job->role[ROLE_WORKER].n += job->elastic.spares;
    job->elastic.retired = s.retired;
    for (int r = 0; r < ROLE_COUNT && job->framework == FRAMEWORK_TENSORFLOW; r++)
        index_set_read(
            node_str(node_get(roles, role_title((enum role)r)), "completedIndexes"),
            &job->role[r].completed);
}

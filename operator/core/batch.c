/* SPDX-License-Identifier: Apache-2.0 */
/* batch/v1 Job object -> struct batch_job. Texts are bounded by POD_TEXT_MAX. */
#include "operator/core/batch.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "operator/core/labels.h"
#include "operator/core/meta.h"
#include "operator/core/pod.h"
#include "operator/core/state.h"
#include "operator/core/texts.h"
#include "operator/doc/object.h"
#include "runtime/base/mem.h"

static const struct prune_rule spec_rules[] = {
    PRUNE_KEEP("suspend"), PRUNE_KEEP("ttlSecondsAfterFinished"), PRUNE_END};
const struct prune_rule batch_rules[] = {
    {.key = "metadata", .inner = owned_metadata_rules},
    {.key = "spec", .inner = spec_rules},
    PRUNE_KEEP("status"),
    PRUNE_END};

static const size_t text_offsets[] = {
    offsetof(struct batch_job, ns),
    offsetof(struct batch_job, name),
    offsetof(struct batch_job, uid),
    offsetof(struct batch_job, owner_uid),
    offsetof(struct batch_job, job_name),
    offsetof(struct batch_job, reason),
    offsetof(struct batch_job, message),
    offsetof(struct batch_job, completion_time),
    offsetof(struct batch_job, resource_version),
};

static const struct texts texts = {text_offsets, ARRAY_LEN(text_offsets)};

static char *batch_get_text(const struct node *o, const char *path)
{
    const char *s = node_str(o, path);

    return (char *)(uintptr_t)(s ? s : "");
}

static uint32_t batch_get_count(const struct node *object, const char *path)
{
    int64_t n = node_int(object, path, 0);

    return n > 0 && n <= INT32_MAX ? (uint32_t)n : 0;
}

int batch_decode(const struct node *object, struct batch_job *ret, struct err *err)
{
    const struct node *status = node_get(object, "status");
    const struct node *failed = condition_find(status, "Failed");
    struct batch_job b = {
        .ns = batch_get_text(object, "metadata.namespace"),
        .name = batch_get_text(object, "metadata.name"),
        .uid = batch_get_text(object, "metadata.uid"),
        .resource_version = batch_get_text(object, "metadata.resourceVersion"),
        .owner_uid = batch_get_text(NULL, ""),
        .job_name = (char *)(uintptr_t)object_label(object, LABEL_JOB_NAME),
        .completion_time = batch_get_text(status, "completionTime"),
        .is_complete = condition_is_true(status, "Complete"),
        .is_failed = condition_is_true(status, "Failed"),
        .is_suspended = node_bool(object, "spec.suspend", false),
        .is_deleting = *batch_get_text(object, "metadata.deletionTimestamp") != '\0',
        .has_start_time = *batch_get_text(status, "startTime") != '\0',
        .active = batch_get_count(status, "active"),
        .succeeded = batch_get_count(status, "succeeded"),
        .failed = batch_get_count(status, "failed"),
        .ttl_s = node_int(object, "spec.ttlSecondsAfterFinished", -1),
    };

    if (!*b.ns || !*b.name || !*b.uid)
        return err_set(err, -EINVAL, "Job without name, namespace or uid");
    b.reason = batch_get_text(b.is_failed ? failed : NULL, "reason");
    b.message = batch_get_text(b.is_failed ? failed : NULL, "message");
    b.owner_uid = (char *)(uintptr_t)object_owner_uid(object);
    *ret = b;
    return 0;
}

int batch_copy(const struct batch_job *from, struct batch_job *ret)
{
    struct batch_job b = *from;
    int rc = texts_copy(&texts, from, &b, POD_TEXT_MAX);

    if (rc == 0)
        *ret = b;
    return rc;
}

void batch_release(struct batch_job *b)
{
    texts_release(&texts, b);
}

bool batch_equal(const struct batch_job *a, const struct batch_job *b)
{
    return texts_equal(&texts, a, b, POD_TEXT_MAX) && a->is_complete == b->is_complete
           && a->is_failed == b->is_failed && a->is_suspended == b->is_suspended
           && a->is_deleting == b->is_deleting && a->has_start_time == b->has_start_time
           && a->ttl_s == b->ttl_s && a->active == b->active
           && a->succeeded == b->succeeded && a->failed == b->failed;
}

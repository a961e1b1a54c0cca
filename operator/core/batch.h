/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a batch/v1 Job, the launcher of an MPIJob, that the operator uses.
 * Pure. */
#ifndef OPERATOR_CORE_BATCH_H
#define OPERATOR_CORE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/doc/node.h"
#include "operator/doc/prune.h"
#include "runtime/base/err.h"

struct batch_job { /* no string is NULL */
    char *ns, *name, *uid, *owner_uid, *job_name;
    char *resource_version;
    char *reason, *message; /* those of condition Failed; "" if it has not failed */
    char *completion_time;  /* RFC 3339; "" if there is none */
    bool is_complete, is_failed, is_suspended, is_deleting, has_start_time;
    uint32_t active, succeeded, failed;
    int64_t ttl_s; /* ttlSecondsAfterFinished; -1: not set */
};

/* The fields that batch_decode reads. */
extern const struct prune_rule batch_rules[];

/* Fills *ret with pointers into the document, valid as long as the document. -EINVAL:
 * the Job has no name. */
int batch_decode(const struct node *object, struct batch_job *ret, struct err *err);
int batch_copy(const struct batch_job *from,
               struct batch_job *ret);   /* owned strings; -ENOMEM */
void batch_release(struct batch_job *b); /* b is a copy or zeroed */
bool batch_equal(const struct batch_job *a, const struct batch_job *b);

#endif

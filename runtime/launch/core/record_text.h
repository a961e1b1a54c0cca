/* SPDX-License-Identifier: Apache-2.0 */
/* What hvd-status prints of a job without a running step: its state and, from the job's
 * comment, the first failure. Pure. */
#ifndef RUNTIME_LAUNCH_CORE_RECORD_TEXT_H
#define RUNTIME_LAUNCH_CORE_RECORD_TEXT_H

#include "runtime/contract/step_comment.h"
#include "runtime/launch/core/step_list.h"

/* Appends lines, or one JSON object. False: the record says nothing about this step. */
bool record_text(const struct job_record *r,
                 const struct step_word *w,
                 bool is_json,
                 struct strbuf *out);

#endif

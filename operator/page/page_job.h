/* SPDX-License-Identifier: Apache-2.0 */
/* DETAIL of README.md: one job from the store, its pods and its report. */
#ifndef OPERATOR_PAGE_PAGE_JOB_H
#define OPERATOR_PAGE_PAGE_JOB_H

#include "operator/page/page_viewer.h"

/* Answers the viewer, whose rights were checked; requests the job from the API server if the
 * store has not kept its text. */
void page_job_answer(struct page_viewer *v);

#endif

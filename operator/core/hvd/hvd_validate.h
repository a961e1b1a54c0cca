/* SPDX-License-Identifier: Apache-2.0 */
/* The part of hvd_validate() for the pod template of one role. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_VALIDATE_H
#define OPERATOR_CORE_HVD_HVD_VALIDATE_H

#include "operator/core/hvd/hvd_job.h"

/* The role has a template. */
void hvd_validate_pod(const struct hvd_job *job,
                      enum role role,
                      struct strbuf *problems);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes spec.runPolicy into struct hvd_run. Pure; called by hvd_decode.c. */
#ifndef OPERATOR_CORE_HVD_HVD_POLICY_H
#define OPERATOR_CORE_HVD_HVD_POLICY_H

#include "operator/core/hvd/hvd_job.h"

/* run: an object or NULL. problems and the result: as in hvd_decode_spec. */
int hvd_policy_decode(const struct node *run,
                      struct arena *a,
                      struct hvd_run *ret,
                      struct strbuf *problems);
/* Decodes run.failureRules into ret->rule. */
int hvd_rules_decode(const struct node *run,
                     struct arena *a,
                     struct hvd_run *ret,
                     struct strbuf *problems);

#endif

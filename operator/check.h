/* SPDX-License-Identifier: Apache-2.0 */
/* hvd-operator --check: does an installation work? `helm test` runs it with the account
 * and the options of the operator. It writes nothing to the cluster.
 *
 *   each kind that the operator lists     defined, and may this account list it?
 *   with --page, both reviews             may this account create them?
 *   the Lease                             does an operator hold it and renew it?
 *
 * One line per check on standard output; the first word is ok, skipped or failed. */
#ifndef OPERATOR_CHECK_H
#define OPERATOR_CHECK_H

#include "operator/kube/config.h"
#include "operator/options.h"

/* The number of checks that failed; negative, with err: they cannot run, or the API
 * server does not answer. Takes at most 10 s per kind and, for the Lease, three times its
 * duration. */
int check_run(const struct kube_config *config,
              const struct operator_options *o,
              struct err *err);

#endif

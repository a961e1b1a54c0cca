/* SPDX-License-Identifier: Apache-2.0 */
/* The roles of pods in a job. Pure. */
#ifndef OPERATOR_CORE_ROLE_H
#define OPERATOR_CORE_ROLE_H

enum role { ROLE_WORKER, ROLE_LAUNCHER, ROLE_PS, ROLE_CHIEF, ROLE_EVALUATOR };
#define ROLE_COUNT 5

const char *role_name(enum role r);  /* "worker", as in labels and names of pods */
const char *role_title(enum role r); /* "Worker", as in replicaSpecs */
/* The role of that name; -1 if it is unknown. */
int role_find(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The pods that an elastic job has lost: workers, or its launcher. Pure. */
#ifndef OPERATOR_CORE_HVD_HVD_LOSS_H
#define OPERATOR_CORE_HVD_HVD_LOSS_H

#include "operator/core/hvd/hvd_cause.h"
#include "operator/core/hvd/hvd_stored.h"

struct hvd_loss {
    struct index_set lost;      /* all that have no new pod yet */
    uint32_t n_new;             /* those that the stored status does not count */
    struct hvd_retired retired; /* those of the stored status, and new ones */
    struct cause cause;         /* n_new > 0: of the first of them */
    const char *text;           /* n_new > 0: what was lost, and that it is replaced */
    bool is_too_often;          /* more than maxRestarts; cause says so */
    bool has_launcher; /* the launcher pod was removed and has no successor yet */
    const char *launcher_text; /* the same as text; NULL: the stored status counts it */
};

/* The lost workers of a job that is Pending or Running. -ENOMEM. */
int hvd_loss_find(const struct hvd_job *job,
                  const struct observed *seen,
                  const struct hvd_stored *was,
                  struct arena *a,
                  struct hvd_loss *ret);
/* Adds the launcher if c, which cause_find() has found, is its removal by Kubernetes or
 * another client, and no rule of the spec says what follows from that. 1: it is not: the
 * cause counts. 0: it is. -ENOMEM. */
int hvd_loss_add_launcher(const struct hvd_job *job,
                          const struct hvd_stored *was,
                          const struct cause *c,
                          struct arena *a,
                          struct hvd_loss *loss);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Each loss is counted once: before a worker is replaced, the status is stored with a
 * higher count and with the worker's index. The index stays there until the worker has a
 * new pod, so that a sync that sees the same loss again, of this operator or of the one
 * after a crash, does not count it again. The same holds for the launcher.
 *
 * How a worker ends does not matter, but a pod that has retired is remembered
 * (hvd_retired.h). The launcher decides about the job if it ends by itself, so only its
 * removal is a loss. Called by hvd_verdict.c. */
#include "operator/core/hvd/hvd_loss.h"

#include <errno.h>

#include "operator/core/hvd/hvd_class.h"
#include "operator/core/hvd/hvd_crew.h"
#include "operator/core/hvd/hvd_elastic.h"

static int loss_explain(const struct hvd_job *job,
                        const struct hvd_stored *was,
                        uint32_t first,
                        struct arena *a,
                        struct hvd_loss *loss)
{
    const int64_t max = job->elastic.max_restarts;
    const uint32_t n = was->worker_replacements + loss->n_new;
    const char *what = loss->cause.message, *more = "", *where = "";
    const char *avoided = hvd_retired_node(&loss->retired, first);

    if (loss->n_new > 1)
        more = arena_printf(a, ", and %u more were lost", loss->n_new - 1);
    if (avoided)
        where = arena_printf(a, ", not on %s if another node has room", avoided);
    if (more && where)
        loss->text =
            arena_printf(a, "%s%s; recreated, replacement %u%s", what, more, n, where);
    loss->is_too_often = max >= 0 && n > (uint64_t)max;
    if (loss->is_too_often) {
        loss->cause.reason = "TooManyWorkersLost";
        loss->cause.message = arena_printf(
            a, "%u workers were lost, more than maxRestarts, %lld; the last: %s", n,
            (long long)max, what);
    }
    return loss->text && loss->cause.message ? 0 : -ENOMEM;
}

static void loss_add_retired(const struct hvd_job *job,
                             const struct observed *seen,
                             uint32_t index,
                             struct hvd_retired *retired)
{
    const struct pod *p = NULL;

    (void)crew_seat(job, seen, ROLE_WORKER, index, &p);
    if (p && *p->node && pod_has_retired(p))
        hvd_retired_add(retired, index, p->node);
}

int hvd_loss_find(const struct hvd_job *job,
                  const struct observed *seen,
                  const struct hvd_stored *was,
                  struct arena *a,
                  struct hvd_loss *ret)
{
    const struct cause_query q = {.job = job, .seen = seen, .has_run = true};
    struct hvd_loss loss = {.n_new = 0, .retired = was->retired};
    uint32_t first = 0;
    int rc = 0;

    for (uint32_t i = 0; i < job->role[ROLE_WORKER].n; i++) {
        if (!hvd_elastic_has_lost(job, seen, i, was->is_created, was->resize_s))
            continue;
        index_set_add(&loss.lost, i);
        if (index_set_has(&was->lost, i))
            continue;
        if (loss.n_new++ == 0)
            first = i;
        loss_add_retired(job, seen, i, &loss.retired);
    }
    if (loss.n_new > 0)
        rc = cause_find_worker(&q, first, a, &loss.cause);
    if (rc == 0 && loss.n_new > 0)
        rc = loss_explain(job, was, first, a, &loss);
    if (rc == 0)
        *ret = loss;
    return rc;
}

int hvd_loss_add_launcher(const struct hvd_job *job,
                          const struct hvd_stored *was,
                          const struct cause *c,
                          struct arena *a,
                          struct hvd_loss *loss)
{
    if (!job->elastic.is_set || !c->is_removal || cause_class(job, c) != RULE_IGNORE)
        return 1;
    loss->has_launcher = true;
    if (was->is_launcher_lost)
        return 0;
    loss->launcher_text = arena_printf(a, "%s; recreated, replacement %u", c->message,
                                       was->launcher_replacements + 1);
    return loss->launcher_text ? 0 : -ENOMEM;
}

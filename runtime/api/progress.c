/* SPDX-License-Identifier: Apache-2.0 */
/* The process keeps the record, because a page ends with its world and an elastic program
 * continues in the next one. The record is checked, changed and copied to the page under
 * one lock, which nothing else takes. Called by hvd_progress and runtime.c. */
#include "runtime/api/progress.h"

#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/base/utf8.h"

_Static_assert(HVD_PROGRESS_METRICS == STATS_METRICS_MAX, "all metrics have room");
_Static_assert(HVD_METRIC_NAME_BYTES == STATS_NAME_MAX, "their names too");

/* --- what is given --- */

static const struct number {
    const char *name;
    size_t from, to;
} numbers[] = {
#define NUMBER(field)                                                                  \
    {                                                                                  \
#field, offsetof(struct hvd_progress, field),                                  \
            offsetof(struct stats_progress, field)                                     \
    }
    NUMBER(step),         NUMBER(total_steps), NUMBER(epoch),
    NUMBER(total_epochs), NUMBER(samples),
#undef NUMBER
};

static int64_t number_given(const struct number *n, const struct hvd_progress *given)
{
    int64_t v;

    memcpy(&v, (const char *)given + n->from, sizeof(v));
    return v;
}

static int metric_check(const struct hvd_metric *m, struct err *err)
{
    const unsigned char *s = (const unsigned char *)m->name;
    size_t n;

    if (!s || !*s)
        return err_set(err, HVD_INVALID_ARGUMENT, "metrics: a name is empty");
    if (strnlen(m->name, STATS_NAME_MAX) == STATS_NAME_MAX)
        return err_set(err, HVD_INVALID_ARGUMENT,
                       "metrics: the name \"%.40s...\" is longer than %d bytes",
                       m->name, STATS_NAME_MAX - 1);
    for (; *s; s += n) {
        n = utf8_length(s);
        if (n == 0 || *s < ' ' || *s == 0x7f)
            return err_set(err, HVD_INVALID_ARGUMENT,
                           "metrics: byte %zu of a name is a control character or not "
                           "UTF-8",
                           (size_t)(s - (const unsigned char *)m->name));
    }
    return 0;
}

static int progress_check(const struct hvd_progress *given, struct err *err)
{
    int rc = 0;

    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t v = number_given(&numbers[i], given);

        if (v < -1)
            return err_set(err, HVD_INVALID_ARGUMENT, "%s: %lld is negative",
                           numbers[i].name, (long long)v);
    }
    if (given->n_metrics < 0 || given->n_metrics > STATS_METRICS_MAX)
        return err_set(err, HVD_INVALID_ARGUMENT, "metrics: %d, at most %d are allowed",
                       given->n_metrics, STATS_METRICS_MAX);
    if (given->n_metrics > 0 && !given->metrics)
        return err_set(err, HVD_INVALID_ARGUMENT, "metrics: is NULL");
    for (int i = 0; i < given->n_metrics && rc == 0; i++)
        rc = metric_check(&given->metrics[i], err);
    return rc;
}

/* --- the record --- */

/* A new name takes the place of the metric that was set longest ago. */
static size_t metric_place(struct progress *p, const char *name)
{
    size_t n = p->now.n_metrics, oldest = 0;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(p->now.metrics[i].name, name) == 0)
            return i;
        if (p->set_at[i] < p->set_at[oldest])
            oldest = i;
    }
    if (n < STATS_METRICS_MAX)
        oldest = p->now.n_metrics++;
    memcpy(p->now.metrics[oldest].name, name, strlen(name) + 1); /* checked */
    return oldest;
}

int progress_update(struct progress *p,
                    const struct hvd_progress *given,
                    uint64_t now_wall_us,
                    struct stats_page *page,
                    struct err *err)
{
    int rc = progress_check(given, err);

    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&p->lock);
    p->n_calls++;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        int64_t v = number_given(&numbers[i], given);

        if (v >= 0)
            memcpy((char *)&p->now + numbers[i].to, &v, sizeof(v));
    }
    for (int i = 0; i < given->n_metrics; i++) {
        size_t at = metric_place(p, given->metrics[i].name);

        p->now.metrics[at].value = given->metrics[i].value;
        p->set_at[at] = p->n_calls;
    }
    if (given->is_commit) {
        p->now.commit_wall_us = now_wall_us;
        p->now.commit_step = p->now.step;
    } else {
        p->now.updated_wall_us = now_wall_us;
    }
    stats_page_put_progress(page, &p->now);
    (void)pthread_mutex_unlock(&p->lock);
    return HVD_OK;
}

void progress_show(struct progress *p, struct stats_page *page)
{
    (void)pthread_mutex_lock(&p->lock);
    stats_page_put_progress(page, &p->now);
    (void)pthread_mutex_unlock(&p->lock);
}
